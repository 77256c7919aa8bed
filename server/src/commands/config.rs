//! `rankscope config check`: which settings a server would have and where each comes from, and whether it could work
//! with them. Starts no server and changes nothing: a folder that is missing is not made, a database is not migrated.

use super::{front_door, serve::read_token};
use crate::{
    cli::{CheckArgs, ServeArgs},
    configuration::{Origin, Setting},
    live::Webhook,
    oidc::Failure,
    store::{self, BucketSettings, Database, Objects},
};
use std::{
    fmt::Write,
    fs::{self, File, TryLockError},
    io,
    net::TcpListener,
    path::{Path, PathBuf},
};

/// What trying a setting has shown.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Well(String),
    /// Nothing that keeps a server from starting.
    Note(String),
    Wrong(String),
}

use Found::{Note, Well, Wrong};

type Finding = (&'static str, Found);

/// Prints the settings and what was found; whether a server would start with them.
pub fn check(args: &CheckArgs, settings: &[Setting]) -> anyhow::Result<bool> {
    let findings = findings(args, settings)?;
    print!("{}", told(args, settings, &findings));
    let wrong = findings.iter().filter(|(_, found)| matches!(found, Wrong(_))).count();
    match wrong {
        0 => {}
        1 => eprintln!("rankscope: one setting does not work"),
        wrong => eprintln!("rankscope: {wrong} settings do not work"),
    }
    Ok(wrong == 0)
}

fn findings(args: &CheckArgs, settings: &[Setting]) -> anyhow::Result<Vec<Finding>> {
    let serve = &args.serve;
    let is_running = is_held(&serve.data);
    let mut findings: Vec<Finding> =
        serve.contradictions().into_iter().map(|why| ("together", Wrong(why.to_owned()))).collect();
    findings.extend(args.config().and_then(|path| others_may_read(path, settings)).map(|found| ("config", found)));
    findings.push(("data", folder(&serve.data, is_running)));
    findings.push(("database-url", database(serve)?));
    if let Some(bucket) = serve.objects.bucket() {
        findings.push(("objects", objects(&bucket)?));
    }
    findings.push(("listen", address(serve, is_running)));
    if let Some(path) = &serve.agent_token_file {
        findings.push((
            "agent-token-file",
            read_token(path).map_or_else(
                |error| Wrong(format!("{error:#}")),
                |_| Well(format!("{} holds a token", path.display())),
            ),
        ));
    }
    if serve.oidc.oidc_issuer.is_some() {
        findings.extend(provider(serve)?.map(|found| ("oidc-issuer", found)));
        let secret = serve.oidc.oidc_client_secret_file.as_deref().filter(|path| is_open_to_others(path));
        findings.extend(secret.map(|path| {
            let path = path.display();
            let why = format!("{path} holds a secret, and everybody on this machine may read it: chmod o= {path}");
            ("oidc-client-secret-file", Note(why))
        }));
    }
    if let Some(url) = &serve.webhook_url {
        let read = Webhook::new(url, "http://127.0.0.1");
        findings.push(("webhook-url", read.map_or_else(Wrong, |_| Well("is an address; it was not asked".to_owned()))));
    }
    if let Some(path) = serve.nvml_library.as_deref().filter(|_| !serve.no_sampler) {
        findings.push((
            "nvml-library",
            match File::open(path) {
                Ok(_) => Well(format!("{} can be read", path.display())),
                // Not a reason to end for a server either: it goes on without GPUs of its own.
                Err(error) => {
                    Note(format!("{}: {error}; this machine's own GPUs would not be sampled", path.display()))
                }
            },
        ));
    }
    Ok(findings)
}

fn told(args: &CheckArgs, settings: &[Setting], findings: &[Finding]) -> String {
    let file = args.config().map_or_else(|| "no configuration file".to_owned(), |path| path.display().to_string());
    let mut text = format!("Settings of serve ({file})\n");
    let shown: Vec<&Setting> =
        settings.iter().filter(|setting| !setting.is_hidden || setting.origin != Origin::Default).collect();
    let value = |setting: &Setting| match &setting.value {
        Some(_) if setting.is_secret => "(set)".to_owned(),
        Some(value) => value.clone(),
        None => "-".to_owned(),
    };
    let wide = shown.iter().map(|setting| value(setting).chars().count()).filter(|wide| *wide <= 48).max().unwrap_or(0);
    let keys = shown.iter().map(|setting| setting.key.len()).max().unwrap_or(0);
    for setting in shown {
        let origin = match &setting.origin {
            Origin::CommandLine => "command line".to_owned(),
            Origin::Environment(name) => format!("environment, {name}"),
            Origin::File(line) => format!("file, line {line}"),
            Origin::Default if setting.value.is_some() => "default".to_owned(),
            Origin::Default => "not set".to_owned(),
        };
        // Writing into a String cannot fail.
        let _ = writeln!(text, "  {:<keys$}  {:<wide$}  {origin}", setting.key, value(setting));
    }
    text.push_str("\nTried\n");
    for (key, found) in findings {
        let (word, what) = match found {
            Well(what) => ("ok", what),
            Note(what) => ("note", what),
            Wrong(what) => ("WRONG", what),
        };
        let _ = writeln!(text, "  {word:<5}  {key}: {what}");
    }
    text
}

/// Whether a server works on a data folder at the moment.
fn is_held(data: &Path) -> bool {
    let lock = File::open(data.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Secrets in a file that everybody on the machine can read.
fn others_may_read(path: &Path, settings: &[Setting]) -> Option<Found> {
    let of_file = |setting: &&Setting| setting.is_secret && matches!(setting.origin, Origin::File(_));
    let secrets: Vec<&str> = settings.iter().filter(of_file).map(|setting| setting.key.as_str()).collect();
    if secrets.is_empty() || !is_open_to_others(path) {
        return None;
    }
    let (path, secrets) = (path.display(), secrets.join(" and "));
    Some(Note(format!("{path} holds {secrets}, and everybody on this machine may read it: chmod o= {path}")))
}

#[cfg(unix)]
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o007 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_path: &Path) -> bool {
    false
}

/// Whether the data folder can be used, or made.
fn folder(data: &Path, is_running: bool) -> Found {
    let shown = data.display();
    if data.exists() {
        // What an earlier start by another user has left behind is found in the folders inside.
        let inside = ["incoming", "live", "objects"].map(|name| data.join(name));
        let there = inside.iter().map(PathBuf::as_path).filter(|folder| folder.exists());
        if let Some(why) = std::iter::once(data).chain(there).find_map(|folder| can_be_written(folder).err()) {
            return Wrong(why);
        }
        let running = if is_running { "; a server works on it at the moment" } else { "" };
        return Well(format!("{shown} can be written{running}"));
    }
    let whole = std::path::absolute(data).unwrap_or_else(|_| data.to_path_buf());
    let Some(parent) = whole.ancestors().skip(1).find(|folder| folder.exists()) else {
        return Wrong(format!("{shown} is not there, and no folder above it either"));
    };
    match can_be_written(parent) {
        Ok(()) => Well(format!("{shown} is not there yet; the server makes it")),
        Err(why) => Wrong(format!("{shown} is not there and cannot be made: {why}")),
    }
}

fn can_be_written(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(format!("{shown} is no folder"));
    }
    match tempfile::Builder::new().prefix(".rankscope-check-").tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "{shown} cannot be written by this user: run this as the user of the server, or give the folder to that one \
             (chown)"
        )),
        Err(error) => Err(format!("{shown} cannot be written: {error}")),
    }
}

/// Whether the database answers; an embedded one is a file of the data folder.
fn database(args: &ServeArgs) -> anyhow::Result<Found> {
    let Some(url) = &args.database_url else {
        let file = args.data.join(store::DATABASE_FILE);
        if !file.exists() {
            return Ok(Well(format!("not set: the database will be {}", file.display())));
        }
        return Ok(match File::options().read(true).write(true).open(&file) {
            Ok(_) => Well(format!("not set: the database is {}", file.display())),
            Err(error) => Wrong(format!("not set, and {} cannot be written: {error}", file.display())),
        });
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async {
        let database = Database::at(url, 1).await?;
        database.pool().close().await;
        Ok::<(), store::StoreError>(())
    });
    Ok(match found {
        Ok(()) => Well(format!("{url} answers")),
        Err(error) => Wrong(format!("{url} cannot be used: {error}")),
    })
}

/// Whether the bucket answers. That it takes objects only a write would show.
fn objects(bucket: &BucketSettings) -> anyhow::Result<Found> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(match runtime.block_on(Objects::to_read(bucket)) {
        Ok(objects) => Well(format!("{objects} answers and lists its objects; that it takes some was not tried")),
        Err(error) => Wrong(error.to_string()),
    })
}

/// Whether the provider answers and can be used. That it knows this server only a sign-in shows.
fn provider(args: &ServeArgs) -> anyhow::Result<Option<Found>> {
    let provider = match front_door::provider(args) {
        Ok(Some(provider)) => provider,
        // What is missing stands under what does not go together.
        Ok(None) => return Ok(None),
        Err(error) => return Ok(Some(Wrong(format!("{error:#}")))),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (issuer, redirect) = (&provider.settings().issuer, &provider.settings().redirect);
    Ok(Some(match runtime.block_on(provider.try_it()) {
        Ok(()) => Well(format!(
            "{issuer} answers with its document and its keys; that it takes the client id with its secret, and {redirect} to \
             come back to, only a sign-in shows"
        )),
        // Not a reason to end for a server: it asks again at each sign-in, and passwords go on.
        Err(failure) if matches!(failure, Failure::Away(_)) => {
            Note(format!("{}; until it does, nobody can sign in with it", failure.cause()))
        }
        Err(failure) => Wrong(failure.cause().to_owned()),
    }))
}

/// Whether the address can be listened on.
fn address(args: &ServeArgs, is_running: bool) -> Found {
    let listen = args.listen;
    match TcpListener::bind(listen) {
        Ok(_) if listen.port() == 0 => Well(format!("{listen}: a free port is taken, another one at each start")),
        Ok(_) => Well(format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_running => {
            Note(format!("{listen} is in use, probably by the server that works on this data folder at the moment"))
        }
        Err(error) => Wrong(format!(
            "{listen} cannot be listened on: {error}. {}",
            match error.kind() {
                io::ErrorKind::AddrInUse => "Another program does so: end that one, or take another port",
                io::ErrorKind::PermissionDenied => {
                    "Ports below 1024 are for the superuser, or for a service with CAP_NET_BIND_SERVICE: take a higher one \
                 and put a proxy in front"
                }
                io::ErrorKind::AddrNotAvailable => "The address must be one of this machine; 0.0.0.0 means all of them",
                _ => "Take another address or port",
            }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_told_apart() {
        let folder_of = tempfile::tempdir().unwrap();
        let data = folder_of.path().join("a/b");
        assert!(matches!(folder(&data, false), Well(what) if what.contains("is not there yet")));
        assert!(!folder_of.path().join("a").exists(), "nothing is made");
        fs::create_dir_all(&data).unwrap();
        assert!(matches!(folder(&data, false), Well(what) if what.ends_with("can be written")));
        assert!(matches!(folder(&data, true), Well(what) if what.contains("a server works on it")));
        assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "nothing is left");
        fs::write(data.join("live"), "").unwrap();
        assert!(matches!(folder(&data, false), Wrong(what) if what.contains("live is no folder")));
        let file = folder_of.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(folder(&file, false), Wrong(what) if what.contains("is no folder")));
        assert!(matches!(folder(&file.join("below"), false), Wrong(what) if what.contains("cannot be made")));
    }

    #[test]
    #[cfg(unix)]
    fn a_file_with_secrets_is_for_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rankscope.toml");
        fs::write(&path, "").unwrap();
        let setting = |key: &str, is_secret, origin| Setting {
            key: key.into(),
            value: Some("x".into()),
            is_secret,
            is_hidden: false,
            origin,
        };
        let given = [
            setting("database-url", true, Origin::File(3)),
            setting("webhook-url", true, Origin::Environment("RANKSCOPE_WEBHOOK_URL".into())),
            setting("data", false, Origin::File(1)),
        ];
        let found = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            others_may_read(&path, &given)
        };
        assert!(
            matches!(found(0o644), Some(Note(what)) if what.contains("database-url, and") && what.contains("chmod"))
        );
        assert_eq!((found(0o640), found(0o600)), (None, None));
        assert_eq!(others_may_read(&path, &given[1..]), None, "no secret stands in it");
    }
}
