//! Starts one of the commands.

use clap::Parser;
use rankscope::{
    cli::{Cli, Command},
    commands::{agent, backup, diagnose, serve, user},
};
use std::process::ExitCode;

/// Also clap's own status for a command line that it cannot read.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Agent(args) => agent::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::User(args) => user::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Backup(args) => backup::backup(&args).map(|()| ExitCode::SUCCESS),
        Command::Restore(args) => backup::restore(&args).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("rankscope: {error:#}");
        ExitCode::from(UNUSABLE)
    })
}
