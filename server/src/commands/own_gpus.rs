//! The GPUs of the machine that serves: sampled without an agent, if there is a driver.

use super::nvml;
use crate::{agent::local, live::Live};
use rankscope_telemetry::{
    NvmlState, ProcFs,
    sampler::{Hz, SamplerConfig},
};
use std::{io::Write, path::PathBuf, sync::Arc};
use tokio::task::JoinHandle;

/// What is asked for.
#[derive(Debug)]
pub struct Wanted {
    /// The driver's library, where it is not the system's.
    pub library: Option<PathBuf>,
    /// Where processes are looked up.
    pub proc: PathBuf,
    /// Sample, not only look.
    pub sample: bool,
}

/// A sampler at work.
pub struct OwnGpus {
    stop: Box<dyn Fn() + Send + Sync>,
    kept: JoinHandle<()>,
}

/// Looks for the driver, prints one line about it, and begins to sample if that is wanted. Blocks: opening the driver
/// may take a second. Must be called inside the runtime.
pub fn start(wanted: &Wanted, live: &Arc<Live>) -> Option<OwnGpus> {
    let state = nvml::open(wanted.library.as_deref());
    // Whoever started the server may have read the first line and closed the pipe; that is no reason not to sample.
    let _ = writeln!(std::io::stdout(), "{state}");
    if !wanted.sample || !matches!(state, NvmlState::Ready(_)) {
        return None;
    }
    // The sampler opens it on its own thread.
    drop(state);
    let proc = ProcFs::at(&wanted.proc);
    let config = SamplerConfig {
        library: nvml::library(wanted.library.as_deref()),
        node: proc.host_name().unwrap_or_else(|| "localhost".to_owned()),
        proc,
        hz: Hz::default(),
        agent: Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    let (batches, kept) = live.local_source();
    match local::sample(config, batches) {
        Ok(stop) => Some(OwnGpus { stop: Box::new(stop), kept }),
        Err(error) => {
            tracing::warn!("this machine's GPUs are not sampled: {error}");
            None
        }
    }
}

impl OwnGpus {
    /// Ends sampling; returns when what was read is kept.
    pub async fn end(self) {
        (self.stop)();
        // It only fails when it has panicked, which was shown.
        let _ = self.kept.await;
    }
}
