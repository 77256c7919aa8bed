//! From the words of the command line, the environment and a configuration file to one command. A word of the command
//! line counts more than the environment, that more than the file, and that more than the default.
//!
//! What the file says becomes the default of the command line's own definition, so each value has one parser, and
//! what counts more is decided where it always was.

mod file;

use crate::cli::{self, Cli};
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, error::ErrorKind, parser::ValueSource};
use file::ConfigFile;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What is to be done, and with which settings.
#[derive(Debug)]
pub struct Invocation {
    /// The command with its arguments.
    pub command: cli::Command,
    /// The settings of `serve` with where they come from; only for the command that tells them.
    pub settings: Vec<Setting>,
}

/// Why there is nothing to be done.
#[derive(Debug)]
pub enum Failure {
    /// The command line, or a wish for help.
    CommandLine(clap::Error),
    /// The configuration file.
    File {
        /// What is wrong, one sentence each.
        faults: Vec<String>,
        /// It was asked about.
        is_check: bool,
    },
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::CommandLine(error)
    }
}

/// One setting of `serve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The long option, without dashes.
    pub key: String,
    /// What it is, as it was written; `None` where it is not set.
    pub value: Option<String>,
    /// It is not for showing.
    pub is_secret: bool,
    /// It is for tests.
    pub is_hidden: bool,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    CommandLine,
    /// This variable of the environment.
    Environment(String),
    /// This line of the configuration file.
    File(usize),
    /// Nobody has set it.
    Default,
}

/// Reads the words of a command line, the program's name first.
pub fn read(words: &[OsString]) -> Result<Invocation, Failure> {
    let plain = Cli::command();
    let mut matches = plain.clone().try_get_matches_from(words)?;
    let is_check = check_of(&matches).is_some();
    let file = match file_of(&matches)? {
        Some(path) => {
            let read = ConfigFile::read(&path, &options_of_serve());
            Some(read.map_err(|faults| Failure::File { faults, is_check })?)
        }
        None => None,
    };
    if let Some(file) = &file {
        matches = with_file(plain, file).try_get_matches_from(words)?;
    }
    let settings = check_of(&matches).map(|check| settings(check, file.as_ref())).unwrap_or_default();
    let Cli { command } = Cli::from_arg_matches(&matches)?;
    Ok(Invocation { command, settings })
}

/// The definition of `serve`, whose long options are the keys of a file.
pub fn options_of_serve() -> Command {
    Cli::command().find_subcommand("serve").cloned().unwrap_or_default()
}

/// What was given to `config check`.
fn check_of(matches: &ArgMatches) -> Option<&ArgMatches> {
    matches.subcommand_matches("config")?.subcommand_matches("check")
}

/// The file that the command is to read, if it reads one.
fn file_of(matches: &ArgMatches) -> Result<Option<PathBuf>, clap::Error> {
    if let Some(check) = check_of(matches) {
        let named = check.get_one::<PathBuf>("file");
        if named.is_some() && check.value_source("config") == Some(ValueSource::CommandLine) {
            let text = "name the file once: as FILE or with --config\n";
            return Err(Cli::command().error(ErrorKind::ArgumentConflict, text));
        }
        return Ok(named.or_else(|| check.get_one("config")).cloned());
    }
    let Some((_, given)) = matches.subcommand() else { return Ok(None) };
    // An error: a command without this option.
    Ok(given.try_get_one::<PathBuf>("config").ok().flatten().cloned())
}

/// The definition with what the file says as defaults, for every command that reads it.
fn with_file(command: Command, file: &ConfigFile) -> Command {
    let reads = |command: &Command| command.get_arguments().any(|option| option.get_long() == Some("config"));
    let readers: Vec<String> =
        command.get_subcommands().filter(|sub| reads(sub)).map(|sub| sub.get_name().to_owned()).collect();
    let with = |sub: Command| {
        sub.mut_args(|option| match file::key(&option).and_then(|key| file.get(key)) {
            Some(entry) => option.default_values(entry.values.clone()),
            None => option,
        })
    };
    let command = readers.into_iter().fold(command, |command, name| command.mut_subcommand(name, with));
    command.mut_subcommand("config", |config| config.mut_subcommand("check", with))
}

fn settings(given: &ArgMatches, file: Option<&ConfigFile>) -> Vec<Setting> {
    let options = options_of_serve();
    let setting = |option: &clap::Arg| {
        let (key, id) = (file::key(option)?, option.get_id().as_str());
        let values = given.get_raw(id).map(|values| {
            let shown: Vec<_> = values.map(|value| Path::new(value).display().to_string()).collect();
            shown.join(", ")
        });
        let origin = match given.value_source(id) {
            Some(ValueSource::CommandLine) => Origin::CommandLine,
            Some(ValueSource::EnvVariable) => {
                Origin::Environment(option.get_env().unwrap_or_default().to_string_lossy().into_owned())
            }
            _ => file.and_then(|file| file.get(key)).map_or(Origin::Default, |entry| Origin::File(entry.line)),
        };
        Some(Setting {
            key: key.to_owned(),
            value: values,
            is_secret: file::is_secret(option),
            is_hidden: option.is_hide_set(),
            origin,
        })
    };
    options.get_arguments().filter_map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{ConfigCommand, ServeArgs, UserArgs};

    fn read_words(words: &[&str]) -> Result<Invocation, Failure> {
        let words: Vec<OsString> =
            std::iter::once("rankscope").chain(words.iter().copied()).map(OsString::from).collect();
        read(&words)
    }

    fn serve(words: &[&str]) -> ServeArgs {
        match read_words(&[&["serve"], words].concat()).unwrap().command {
            cli::Command::Serve(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rankscope.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_word_counts_more_than_the_file_and_that_more_than_the_default() {
        let (_folder, path) = file(
            "listen = \"127.0.0.1:4000\"\nmax-file-bytes = \"1MiB\"\nno-sampler = true\n\
             prometheus = [\"http://a:1\", \"http://b:1\"]\ndata = \"/srv/a\"\n",
        );
        let args = serve(&["--config", &path, "--max-file-bytes", "2MiB"]);
        assert_eq!(args.listen.to_string(), "127.0.0.1:4000");
        assert_eq!(args.max_file_bytes, 2 << 20, "the word");
        assert_eq!(args.max_request_bytes, 8 << 30, "the default");
        assert_eq!((args.no_sampler, args.prometheus.len()), (true, 2));
        // A list on the command line takes the place of the file's.
        assert_eq!(serve(&["--config", &path, "--prometheus", "http://c:1"]).prometheus.len(), 1);
        assert!(!serve(&[]).no_sampler);
    }

    #[test]
    fn commands_beside_a_server_read_the_same_file() {
        let (_folder, path) =
            file("data = \"/srv/a\"\nlisten = \"127.0.0.1:4000\"\npublic-url = \"https://a.example\"\n");
        for words in [&["user", "--config", &path, "list"][..], &["user", "list", "--config", &path]] {
            let Ok(Invocation { command: cli::Command::User(UserArgs { data, public_url, .. }), .. }) =
                read_words(words)
            else {
                panic!("{words:?}")
            };
            assert_eq!(data, Path::new("/srv/a"), "{words:?}");
            assert_eq!(public_url.unwrap().to_string(), "https://a.example");
        }
        let Ok(Invocation { command: cli::Command::User(args), .. }) =
            read_words(&["user", "list", "--config", &path, "--data", "/srv/b"])
        else {
            panic!()
        };
        assert_eq!(args.data, Path::new("/srv/b"));
        let Ok(Invocation { command: cli::Command::Backup(args), .. }) =
            read_words(&["backup", "--config", &path, "x.tar"])
        else {
            panic!()
        };
        assert_eq!(args.data, Path::new("/srv/a"));
        assert!(matches!(read_words(&["agent", "--config", &path]), Err(Failure::CommandLine(_))));
    }

    #[test]
    fn each_setting_says_where_it_comes_from() {
        let (_folder, path) = file("data = \"/srv/a\"\n\ndatabase-url = \"postgres://ada:secret@host/x\"\n");
        let told = read_words(&["config", "check", &path, "--listen", "127.0.0.1:0"]).unwrap();
        let cli::Command::Config { command: ConfigCommand::Check(args) } = &told.command else { panic!() };
        assert_eq!((args.serve.listen.port(), &*args.serve.data), (0, Path::new("/srv/a")));
        let of = |key: &str| {
            let found = told.settings.iter().find(|setting| setting.key == key).unwrap();
            (found.value.as_deref(), found.is_secret, found.origin.clone())
        };
        assert_eq!(of("listen"), (Some("127.0.0.1:0"), false, Origin::CommandLine));
        assert_eq!(of("data"), (Some("/srv/a"), false, Origin::File(1)));
        assert_eq!(of("database-url"), (Some("postgres://ada:secret@host/x"), true, Origin::File(3)));
        assert_eq!(of("max-file-bytes"), (Some("2GiB"), false, Origin::Default));
        assert_eq!(of("prometheus"), (None, false, Origin::Default));
        assert!(told.settings.iter().all(|setting| setting.key != "config" && setting.key != "help"));

        let twice = read_words(&["config", "check", &path, "--config", &path]);
        assert!(matches!(twice, Err(Failure::CommandLine(_))));
        let missing = read_words(&["config", "check", "/nowhere/rankscope.toml"]);
        assert!(matches!(missing, Err(Failure::File { is_check: true, .. })), "{missing:?}");
        let missing = read_words(&["serve", "--config", "/nowhere/rankscope.toml"]);
        assert!(matches!(missing, Err(Failure::File { is_check: false, .. })), "{missing:?}");
    }
}
