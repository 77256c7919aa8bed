//! Starts one of the commands.

use rankscope::{
    cli::{Command, ConfigCommand},
    commands::{agent, backup, config, diagnose, migrate_data, serve, user, worker},
    configuration::{self, Failure},
};
use std::{ffi::OsString, process::ExitCode};

/// Also clap's own status for a command line that it cannot read.
const UNUSABLE: u8 = 2;

/// What was asked about is not as it should be.
const NOT_SO: u8 = 1;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let invocation = match configuration::read(&words) {
        Ok(invocation) => invocation,
        Err(Failure::CommandLine(error)) => error.exit(),
        Err(Failure::File { faults, is_check }) => {
            for fault in &faults {
                eprintln!("rankscope: {fault}");
            }
            return ExitCode::from(if is_check { NOT_SO } else { UNUSABLE });
        }
    };
    let done = match invocation.command {
        Command::Serve(args) => serve::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Agent(args) => agent::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::User(args) => user::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Backup(args) => backup::backup(&args).map(|()| ExitCode::SUCCESS),
        Command::Restore(args) => backup::restore(&args).map(|()| ExitCode::SUCCESS),
        Command::MigrateData(args) => migrate_data::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Worker(args) => worker::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Config { command: ConfigCommand::Check(args) } => config::check(&args, &invocation.settings)
            .map(|is_well| if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) }),
    };
    done.unwrap_or_else(|error| {
        eprintln!("rankscope: {error:#}");
        ExitCode::from(UNUSABLE)
    })
}
