//! The command line. Its words are a public contract: see docs/architecture.md.

use crate::{http::PublicUrl, limits::parse_bytes};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{net::SocketAddr, path::PathBuf};

/// Why does one GPU use more memory than the others?
#[derive(Debug, Parser)]
#[command(name = "rankscope", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the pages and the API.
    Serve(ServeArgs),
    /// Diagnose files here, without a server.
    Diagnose(DiagnoseArgs),
}

/// `rankscope serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3000", env = "RANKSCOPE_LISTEN")]
    pub listen: SocketAddr,
    /// Folder for the database and the files.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "RANKSCOPE_DATA")]
    pub data: PathBuf,
    /// Largest accepted file, for instance 500MiB or 2GiB.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_bytes)]
    pub max_file_bytes: u64,
    /// Largest accepted upload in all.
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = parse_bytes)]
    pub max_request_bytes: u64,
    /// Address under which people reach this server, if it stands behind a proxy or has a name: used in links, and
    /// accepted as host name.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_PUBLIC_URL")]
    pub public_url: Option<PublicUrl>,
    /// File with the token that agents and probes must show. Without it only this machine may send.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_AGENT_TOKEN_FILE")]
    pub agent_token_file: Option<PathBuf>,
    /// Room for live samples on disk; the oldest go first, those of jobs that have ended before others.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_bytes)]
    pub live_keep_bytes: u64,
    /// Address that is told, once per run, when an imbalance or a context leak is found while a job runs: a JSON text
    /// as Slack and others take it.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_WEBHOOK_URL", hide_env_values = true)]
    pub webhook_url: Option<String>,
    /// Allow an address that other machines can reach. There are no accounts yet: whoever reaches it can read and
    /// delete every run.
    #[arg(long)]
    pub open_to_network: bool,
}

/// `rankscope diagnose`
#[derive(Debug, Args)]
#[command(after_help = "Exit status:\n  0  done; a file of a folder that cannot be read is named in the result\n  \
    1  the --fail-on condition holds\n  2  nothing to diagnose, or a FILE or DIR that was named cannot be read: the rest \
    is still reported")]
pub struct DiagnoseArgs {
    /// How to write the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Exit with status 1 if this is the verdict.
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub fail_on: Option<FailOn>,
    /// Files or a folder of the run before a fix: says whether the difference is gone. May be given several times.
    #[arg(long, value_name = "FILE|DIR")]
    pub baseline: Vec<PathBuf>,
    /// Also read the GPUs of this machine now, through the driver.
    #[arg(long)]
    pub nvml: bool,
    /// Files, folders (their files, without hidden ones), or - for standard input.
    #[arg(required_unless_present = "nvml", value_name = "FILE|DIR|-")]
    pub inputs: Vec<PathBuf>,
}

/// Formats of `rankscope diagnose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading in the terminal.
    Text,
    /// `rankscope.diagnosis/1`.
    Json,
    /// One self-contained page.
    Html,
    /// For an issue or a chat.
    Markdown,
}

/// Conditions of `--fail-on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Some ranks or devices use more than the others.
    Imbalance,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
