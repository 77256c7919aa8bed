//! Configuration files as the binary reads them, and the table of settings in the documentation.

use clap::{ArgAction, CommandFactory};
use rankscope::cli::Cli;
use std::{
    fs,
    io::Read,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// The binary with nothing of this test's own environment that it reads.
fn rankscope() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rankscope"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RANKSCOPE_")) {
        command.env_remove(name);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a check printed, without the runs of spaces that set its columns.
fn lines(output: &Output) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text(&output.stdout).lines().map(words).collect()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }
}

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Serving {
    /// Starts a server; gives its first line.
    fn start(command: &mut Command) -> (Self, String) {
        let mut child = command.arg("serve").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        while !line.ends_with('\n') {
            let mut sign = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut sign).unwrap();
            line.push(char::from(sign[0]));
        }
        (Self(child), line)
    }
}

#[test]
fn a_server_takes_its_settings_from_a_file_and_commands_find_it_there() {
    let folder = Folder::new();
    let data = folder.path("of the file");
    let file = folder.write(
        "rankscope.toml",
        &format!("listen = \"127.0.0.1:0\"\nno-sampler = true\ndata = {:?}\n", data.to_str().unwrap()),
    );
    let (serving, line) = Serving::start(rankscope().env("RANKSCOPE_CONFIG", &file));
    assert!(line.ends_with(&format!("(data in {})\n", data.display())), "{line}");

    let added = rankscope().args(["user", "add", "ada", "--config"]).arg(&file).output().unwrap();
    assert!(added.status.success(), "{}", text(&added.stderr));
    let copy = folder.path("copy.tar");
    let saved = rankscope().args(["backup", "--config"]).arg(&file).arg(&copy).output().unwrap();
    assert!(saved.status.success() && copy.exists(), "{}", text(&saved.stderr));

    // The address of a server that runs is its own; that of another is not.
    let port = line.split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let check = |data: &Path| {
        let mut check = rankscope();
        check.args(["config", "check", "--no-sampler", "--listen", &format!("127.0.0.1:{port}"), "--data"]).arg(data);
        check.output().unwrap()
    };
    let own = check(&data);
    assert_eq!(own.status.code(), Some(0), "{}", text(&own.stdout));
    assert!(lines(&own).iter().any(|line| line.starts_with("note listen: ")), "{}", text(&own.stdout));
    let other = check(&folder.path("other"));
    assert_eq!(other.status.code(), Some(1), "{}", text(&other.stdout));
    drop(serving);

    // The environment counts more than the file, and a word more than both.
    let elsewhere = folder.path("of the environment");
    let (serving, line) = Serving::start(rankscope().env("RANKSCOPE_CONFIG", &file).env("RANKSCOPE_DATA", &elsewhere));
    assert!(line.contains("of the environment"), "{line}");
    drop(serving);
}

#[test]
fn a_file_that_is_wrong_starts_nothing() {
    let folder = Folder::new();
    let file = folder.write("rankscope.toml", "listen = \"127.0.0.1:0\"\nlive-keep-byts = \"1GiB\"\ndata = \"data\"\n");
    for (words, status) in
        [(&["serve", "--config"][..], 2), (&["user", "list", "--config"], 2), (&["config", "check"], 1)]
    {
        let refused = rankscope().args(words).arg(&file).current_dir(folder.0.path()).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(status), "{words:?}: {said}");
        let at = |line: u32| format!("rankscope: {}, line {line}: ", file.display());
        assert!(said.contains(&(at(2) + "unknown key live-keep-byts. Did you mean live-keep-bytes?")), "{said}");
        assert!(said.contains(&(at(3) + "data: \"data\" is a relative path")), "{said}");
    }
    assert!(!folder.path("data").exists());
    // Without the file nothing is read: these commands have no settings.
    let other = rankscope().args(["diagnose", "--help"]).env("RANKSCOPE_CONFIG", &file).output().unwrap();
    assert!(other.status.success());
}

#[test]
fn a_check_tells_each_setting_its_origin_and_no_secret() {
    let folder = Folder::new();
    let token = folder.write("token", "0123456789abcdef\n");
    let file = folder.write(
        "rankscope.toml",
        &format!(
            "data = {:?}\nagent-token-file = {:?}\nwebhook-url = \"https://hooks.example/s3cret\"\n",
            folder.path("data").to_str().unwrap(),
            token.to_str().unwrap()
        ),
    );
    let mut check = rankscope();
    check.args(["config", "check"]).arg(&file).args(["--listen", "127.0.0.1:0", "--no-sampler"]);
    let done = check.env("RANKSCOPE_PUBLIC_URL", "https://scope.example").output().unwrap();
    let said = lines(&done);
    assert_eq!(done.status.code(), Some(0), "{said:#?}{}", text(&done.stderr));
    for line in [
        format!("Settings of serve ({})", file.display()),
        "listen 127.0.0.1:0 command line".into(),
        "no-sampler true command line".into(),
        "public-url https://scope.example environment, RANKSCOPE_PUBLIC_URL".into(),
        format!("agent-token-file {} file, line 2", token.display()),
        "webhook-url (set) file, line 3".into(),
        "max-file-bytes 2GiB default".into(),
        "database-url - not set".into(),
        format!("ok data: {} is not there yet; the server makes it", folder.path("data").display()),
        "ok listen: 127.0.0.1:0: a free port is taken, another one at each start".into(),
        format!("ok agent-token-file: {} holds a token", token.display()),
    ] {
        assert!(said.contains(&line), "{line:?} is not in {said:#?}");
    }
    assert!(!text(&done.stdout).contains("s3cret") && !text(&done.stdout).contains("0123456789abcdef"));
    assert!(!folder.path("data").exists(), "a check makes nothing");
}

#[test]
fn a_check_says_what_would_not_work_and_why() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let short = folder.write("token", "short\n");
    let plain = folder.write("plain", "");
    let mut check = rankscope();
    check.args(["config", "check", "--listen", &taken.local_addr().unwrap().to_string(), "--data"]).arg(&plain);
    check.arg("--agent-token-file").arg(&short).args(["--max-request-bytes", "1MiB", "--webhook-url", "hooks/s3cret"]);
    check.args(["--proxy-user-header", "X-Remote-User"]);
    // Nothing listens there: bound, and let go.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let done = check.env("RANKSCOPE_DATABASE_URL", format!("postgres://ada:s3cret@{closed}/x")).output().unwrap();
    let said = lines(&done);
    assert_eq!(done.status.code(), Some(1), "{said:#?}");
    for words in [
        "WRONG together: max-request-bytes is smaller",
        "WRONG together: proxy-user-header names a header",
        "WRONG data: ",
        "WRONG listen: ",
        "WRONG webhook-url: this is not an address",
    ] {
        assert!(said.iter().any(|line| line.starts_with(words)), "{words:?} is not in {said:#?}");
    }
    let line_of = |key: &str| said.iter().find(|line| line.starts_with(&format!("WRONG {key}: "))).unwrap();
    assert!(line_of("data").contains("plain is no folder"), "{said:#?}");
    assert!(line_of("listen").contains("end that one, or take another port"), "{said:#?}");
    assert!(line_of("agent-token-file").contains("fewer than 16 characters"), "{said:#?}");
    assert!(line_of("database-url").contains(&format!("postgres://{closed}/x cannot be used: ")), "{said:#?}");
    assert!(!(text(&done.stdout) + &text(&done.stderr)).contains("s3cret"));
    assert!(text(&done.stderr).contains("7 settings do not work"), "{}", text(&done.stderr));
}

/// The rows of the table under `## All settings`.
fn settings_in_the_documentation() -> Vec<[String; 3]> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md")).unwrap();
    let table = page.split("## All settings").nth(1).unwrap();
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(cell);
        std::array::from_fn(|_| cells.next().unwrap())
    })
    .collect()
}

#[test]
fn the_documentation_lists_every_setting_as_it_is() {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let listed = settings_in_the_documentation();
    let shown = serve.get_arguments().filter(|option| !option.is_hide_set() && option.get_id() != "config");
    let mut keys = Vec::new();
    for option in shown {
        let Some(key) = option.get_long().filter(|long| *long != "help") else { continue };
        let row = listed.iter().find(|[listed, ..]| listed == key);
        let [_, variable, default] = row.unwrap_or_else(|| panic!("{key} is not in docs/configuration.md"));
        let text = |value: Option<&std::ffi::OsStr>| value.map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(*variable, text(option.get_env()).unwrap_or_default(), "{key}");
        if matches!(option.get_action(), ArgAction::SetTrue) {
            assert_eq!(default, "false", "{key}");
        } else if !option.get_default_values().is_empty() {
            let values = option.get_default_values().iter().map(|value| value.to_str().unwrap());
            assert_eq!(*default, values.collect::<Vec<_>>().join("`, `"), "{key}");
        }
        keys.push(key.to_owned());
    }
    let listed: Vec<String> = listed.into_iter().map(|[key, ..]| key).collect();
    assert!(listed.iter().all(|key| keys.contains(key)), "no option: {listed:?} of {keys:?}");
}
