//! Everything around the code: set-up, browser bundle, run and check.
//!
//! `cargo xtask serve | test | bundle | bench | fuzz`. Brings what is missing and says so in one line each; knows nothing of
//! what the product does.

mod bench_agent;
mod bench_diagnosis;
mod bench_live;
mod bench_load;
mod bench_page;
mod bench_readers;
mod bench_snapshot;
mod browser;
mod bundle;
mod command;
mod fingerprint;
mod fuzz;
mod layout;
mod node;
mod postgres;
mod probe;
mod say;
mod serve;
mod summary;
mod system_packages;
mod test;
mod wasm_size;
mod wasm_toolchain;

use bundle::WasmProfile;
use clap::{Parser, Subcommand};
use layout::Layout;
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Set-up, browser bundle, run and check.")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Bring what is missing, build the bundle and the binary, and start the server.
    Serve {
        /// Passed on to `rankscope serve`, for instance `--listen 127.0.0.1:8080`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Formatting, clippy, all Rust tests, the probe's tests, the bundle, and the browser tests.
    Test {
        /// Leave out the bundle and the browser tests.
        #[arg(long)]
        quick: bool,
    },
    /// Build the browser bundle and print its size.
    Bundle {
        /// `wasm-release` is small, `wasm-dev` is quick to build.
        #[arg(long, value_enum, default_value = "wasm-release")]
        profile: WasmProfile,
    },
    /// Measurements.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Fuzz the readers, with the files at hand as seeds.
    Fuzz {
        /// One target; all of them without it.
        target: Option<String>,
        /// How long each target runs.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
}

#[derive(Subcommand)]
enum Bench {
    /// What the agent costs a node with eight cards at ten samples a second.
    Agent,
    /// The diagnosis on the reconstructed cases; needs `../shared/cases`.
    Diagnosis,
    /// What the server takes in of live data, and how soon it answers, with browsers watching.
    Live,
    /// Two hundred people who read and 64 agents that send, for five minutes; needs a quiet machine.
    Load,
    /// First byte of a big report, answer to a zoom, weight of the bundle; builds the release and needs a quiet machine.
    Page,
    /// The readers of logs, loops and traces beside the least that can be done with the same bytes.
    Readers,
    /// The snapshot reader against CPython's unpickler; needs `../shared/bench` and a quiet machine.
    Snapshot {
        /// Also a file of 1.5 GB, whose making takes minutes and 8 GB of memory.
        #[arg(long)]
        big: bool,
    },
}

fn main() -> ExitCode {
    let outcome = Layout::find().and_then(|layout| match Arguments::parse().task {
        Task::Serve { arguments } => serve::serve(&layout, &arguments),
        Task::Test { quick } => test::test(&layout, quick),
        Task::Bundle { profile } => bundle::bundle(&layout, profile).map(drop),
        Task::Bench { what: Bench::Agent } => bench_agent::bench(&layout),
        Task::Bench { what: Bench::Diagnosis } => bench_diagnosis::bench(&layout),
        Task::Bench { what: Bench::Live } => bench_live::bench(&layout),
        Task::Bench { what: Bench::Load } => bench_load::bench(&layout),
        Task::Bench { what: Bench::Page } => bench_page::bench(&layout),
        Task::Bench { what: Bench::Readers } => bench_readers::bench(&layout),
        Task::Bench { what: Bench::Snapshot { big } } => bench_snapshot::bench(&layout, big),
        Task::Fuzz { target, seconds } => fuzz::fuzz(&layout, target.as_deref(), seconds),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(&error);
            ExitCode::FAILURE
        }
    }
}
