//! `rankscope agent`: samples the GPUs of a node and sends what is read, until it is asked to end.

use super::{log, stop::stop_signal};
use crate::{
    agent::{Agent, Sender, Spool, new_source},
    cli::AgentArgs,
};
use anyhow::Context;
use rankscope_telemetry::{
    ProcFs,
    sampler::{self, SamplerConfig},
};

/// Runs until SIGINT or SIGTERM.
pub fn run(args: &AgentArgs) -> anyhow::Result<()> {
    log::init();
    let proc = ProcFs::at(&args.proc);
    let host = || proc.host_name().context("this machine does not say its host name; give one with --node");
    let node = args.node.clone().map_or_else(host, Ok)?;
    let sender = Sender::new(&args.server, args.token_file.as_deref(), args.ca_file.as_deref())?;
    if args.token_file.is_some() && !args.server.is_private() {
        tracing::warn!("the token goes to {} without encryption: use https", args.server);
    }
    let spool = Spool::open(&args.spool, &node, &new_source(), args.spool_bytes)
        .with_context(|| format!("opening the spool in {}", args.spool.display()))?;
    let sampler = sampler::spawn(SamplerConfig {
        library: args.nvml_library.clone(),
        proc,
        node: node.clone(),
        hz: args.hz,
        agent: Some(env!("CARGO_PKG_VERSION").to_owned()),
    })?;

    // Only to be asked to end; everything else has a thread of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let stop = {
        let _inside = runtime.enter();
        stop_signal()?
    };
    let agent = Agent::start(sampler, spool, sender)?;
    // Tests and scripts wait for this line.
    println!("Rankscope samples {node} for {} (spool in {})", args.server, args.spool.display());
    runtime.block_on(stop);
    if agent.end() {
        tracing::info!("ended");
    } else {
        tracing::warn!("ended; what the server has not taken stays in the spool for the next run");
    }
    Ok(())
}
