//! A `PostgreSQL` for the tests: the one that `DATABASE_URL` names, or a cluster of our own that lives as long as they do.
//!
//! Its programs come from Debian's package; it listens on a socket in its own folder, so nothing else can reach it, and
//! does not care for power failures. Knows nothing of tables.

use crate::system_packages::{self, is_root};
use crate::{command, say};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Where the tests may make schemas of their own.
const GIVEN: &str = "DATABASE_URL";
/// A server refuses to run as root; Debian's package makes this user.
const USER: &str = "postgres";

/// A database for tests; ends with the value.
pub struct Postgres {
    url: String,
    cluster: Option<Cluster>,
}

struct Cluster {
    programs: PathBuf,
    folder: TempDir,
}

impl Postgres {
    /// Finds or starts one, and installs what that takes.
    pub fn start() -> Result<Self> {
        if let Ok(url) = std::env::var(GIVEN)
            && url.starts_with("postgres")
        {
            say::line(format!("{GIVEN} names the PostgreSQL for the tests"));
            return Ok(Self { url, cluster: None });
        }
        if programs().is_none() {
            system_packages::install("for the tests on PostgreSQL", &["postgresql"])?;
        }
        let programs = programs().context("neither initdb nor pg_ctl is to be found")?;
        // Short: the path of a socket may have a hundred bytes.
        let folder = tempfile::Builder::new().prefix("rs-pg-").tempdir_in("/tmp")?;
        let cluster = Cluster { programs, folder };
        cluster.make()?;
        let url = format!("postgres://rankscope@localhost/postgres?host={}", cluster.folder.path().display());
        Ok(Self { url, cluster: Some(cluster) })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(cluster) = &self.cluster
            && let Err(error) = cluster.stop()
        {
            say::error(&error);
        }
    }
}

impl Cluster {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn make(&self) -> Result<()> {
        let folder = self.folder.path();
        if is_root() {
            command::run(Command::new("chown").arg(USER).arg(folder))?;
        }
        let mut make = self.program("initdb");
        make.arg("--pgdata").arg(self.data()).args(["--username", "rankscope", "--auth", "trust"]);
        make.args(["--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"]);
        command::run(make.stdout(Stdio::null()))?;
        let settings = format!(
            "-c listen_addresses='' -c unix_socket_directories={} -c unix_socket_permissions=0700 -c fsync=off \
             -c full_page_writes=off -c max_connections=200",
            folder.display()
        );
        let mut start = self.program("pg_ctl");
        start.args(["start", "--wait", "--silent", "--pgdata"]).arg(self.data());
        start.arg("--log").arg(folder.join("log")).arg("--options").arg(settings);
        if let Err(error) = command::run(start.stdout(Stdio::null())) {
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            bail!("{error:#}\n{log}");
        }
        Ok(())
    }

    fn stop(&self) -> Result<()> {
        let mut stop = self.program("pg_ctl");
        stop.args(["stop", "--mode", "immediate", "--silent", "--pgdata"]).arg(self.data());
        command::run(stop.stdout(Stdio::null()))
    }

    /// One of its programs, as a user that it accepts.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", USER, "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        // Where everyone may stand.
        command.current_dir("/").stdin(Stdio::null());
        command
    }
}

/// The folder with `initdb` and `pg_ctl`: Debian keeps them off the search path, one folder for each version.
fn programs() -> Option<PathBuf> {
    let has_both = |folder: &Path| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file();
    let told = command::output(Command::new("pg_config").arg("--bindir")).ok();
    let told = told.map(|folder| PathBuf::from(folder.trim()));
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    versions.sort();
    let on_path = command::on_path(&["initdb"]).and_then(|program| program.parent().map(Path::to_path_buf));
    told.into_iter().chain(versions.into_iter().rev()).chain(on_path).find(|folder| has_both(folder))
}
