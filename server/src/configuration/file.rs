//! A configuration file: TOML whose keys are the long options of `serve`. Everything that is wrong in it is told with
//! its line. Knows the command line's definition, and none of what the options are for.

use crate::likeness::nearest;
use clap::{Arg, ArgAction, Command};
use std::{
    any::TypeId,
    collections::BTreeMap,
    fs::File,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
};
use toml::de::{DeTable, DeValue};

/// A longer file is none of ours.
const MAX_BYTES: u64 = 1 << 20;
/// Faults of one file that are told.
const MAX_FAULTS: usize = 16;
/// Characters of a foreign key or value that are shown.
const SHOWN: usize = 80;

/// What a file says.
#[derive(Debug, Default)]
pub struct ConfigFile {
    entries: BTreeMap<String, Entry>,
}

/// One key of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands, from 1 on.
    pub line: usize,
    /// As they would stand on the command line.
    pub values: Vec<String>,
}

impl ConfigFile {
    /// Reads a file whose keys are the long options of `options`. Everything that is wrong, one sentence each.
    pub fn read(path: &Path, options: &Command) -> Result<Self, Vec<String>> {
        let unread = |why: &dyn std::fmt::Display| vec![format!("{}: {why}", path.display())];
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| unread(&format_args!("the configuration file cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(unread(&"this is longer than 1 MiB, so it is no configuration file"));
        }
        let text = String::from_utf8(bytes).map_err(|_| unread(&"the configuration file is not text in UTF-8"))?;
        Self::parse(&text, options).map_err(|faults| {
            let told = faults.iter().take(MAX_FAULTS);
            let mut told: Vec<String> =
                told.map(|(line, why)| format!("{}, line {line}: {why}", path.display())).collect();
            if faults.len() > MAX_FAULTS {
                told.push(format!("{}: and {} more", path.display(), faults.len() - MAX_FAULTS));
            }
            told
        })
    }

    /// The same of a text; faults have their lines.
    fn parse(text: &str, options: &Command) -> Result<Self, Vec<(usize, String)>> {
        let line_of = |span: Range<usize>| 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, line_of);
            vec![(line, format!("{}. The file is TOML, lines such as listen = \"127.0.0.1:3000\"", error.message()))]
        })?;
        let mut file = Self::default();
        let mut faults = Vec::new();
        for (key, value) in table.get_ref() {
            let (line, key) = (line_of(key.span()), key.get_ref().as_ref());
            match understood(key, value.get_ref(), options) {
                Ok(values) => drop(file.entries.insert(key.to_owned(), Entry { line, values })),
                Err(why) => faults.push((line, why)),
            }
        }
        faults.sort();
        if faults.is_empty() { Ok(file) } else { Err(faults) }
    }

    /// What it says of an option.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }
}

/// Whether an option may stand in a file: all but the one that names the file.
pub fn key(option: &Arg) -> Option<&str> {
    option.get_long().filter(|long| *long != "config")
}

/// Whether what an option holds is a secret, or may hold one.
pub fn is_secret(option: &Arg) -> bool {
    option.is_hide_env_values_set()
}

fn understood(wanted: &str, value: &DeValue<'_>, options: &Command) -> Result<Vec<String>, String> {
    let Some(option) = options.get_arguments().find(|option| key(option) == Some(wanted)) else {
        return Err(unknown(wanted, value, options));
    };
    let values = texts(option, value).map_err(|wish| {
        format!("{wanted} must be {wish}, and this is {} {}", article(value.type_str()), value.type_str())
    })?;
    for text in &values {
        let shown = if is_secret(option) { "what is given".to_owned() } else { format!("{:?}", cut(text)) };
        fits(wanted, option, text).map_err(|why| format!("{wanted}: {shown} is not taken: {why}"))?;
        if is_path(option) && !Path::new(text).is_absolute() {
            return Err(format!(
                "{wanted}: {shown} is a relative path, so what it means would depend on the folder in which the server is \
                 started. Give the whole path, from / on"
            ));
        }
    }
    Ok(values)
}

fn unknown(wanted: &str, value: &DeValue<'_>, options: &Command) -> String {
    let shown = cut(wanted);
    if matches!(value, DeValue::Table(_)) {
        return format!(
            "{shown} is a table, and none is known here: all keys stand at the top, without a heading in brackets"
        );
    }
    // Options that help does not show are not offered either.
    let offered = options.get_arguments().filter(|option| !option.is_hide_set()).filter_map(key);
    match nearest(wanted, offered) {
        Some(near) => format!("unknown key {shown}. Did you mean {near}?"),
        None => {
            format!("unknown key {shown}. Keys are the long options of `rankscope serve --help`, without the dashes")
        }
    }
}

/// A value as words of the command line, or what it must be.
fn texts(option: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
    match (option.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(value)) => Ok(vec![value.to_string()]),
        (ArgAction::SetTrue, _) => Err("true or false, without quotes"),
        (ArgAction::Append, DeValue::String(text)) => Ok(vec![text.to_string()]),
        (ArgAction::Append, DeValue::Array(items)) if !items.is_empty() => {
            let text = |item: &toml::Spanned<DeValue<'_>>| item.get_ref().as_str().map(ToOwned::to_owned);
            items.iter().map(text).collect::<Option<_>>().ok_or("a list of texts in quotes")
        }
        (ArgAction::Append, _) => Err("a text in quotes, or a list of such"),
        (_, DeValue::String(text)) => Ok(vec![text.to_string()]),
        (_, DeValue::Integer(number)) if is_size(option) && number.radix() == 10 => {
            Ok(vec![number.as_str().to_owned()])
        }
        _ if is_size(option) => Err("a size in quotes such as \"2GiB\", or a number of bytes"),
        _ => Err("a text in quotes"),
    }
}

fn is_path(option: &Arg) -> bool {
    option.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

fn is_size(option: &Arg) -> bool {
    option.get_value_parser().type_id() == TypeId::of::<u64>()
}

/// Whether the command line would take it: read with the option's own parser.
fn fits(key: &str, option: &Arg, text: &str) -> Result<(), String> {
    if matches!(option.get_action(), ArgAction::SetTrue) {
        return Ok(());
    }
    let alone = Command::new("value").no_binary_name(true).disable_help_flag(true).arg(option.clone());
    match alone.try_get_matches_from([format!("--{key}={text}")]) {
        Ok(_) => Ok(()),
        // The words of the parser alone: those of the command line quote the value.
        Err(error) => Err(std::error::Error::source(&error)
            .map_or_else(|| "it is empty, or not what this option takes".to_owned(), ToString::to_string)),
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'i', 'o']) { "an" } else { "a" }
}

fn cut(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN).map(|sign| if sign.is_control() { '\u{fffd}' } else { sign }).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::options_of_serve;

    fn faults(text: &str) -> Vec<(usize, String)> {
        ConfigFile::parse(text, &options_of_serve()).unwrap_err()
    }

    #[test]
    fn values_are_as_on_the_command_line() {
        let text = "# a team's server\nlisten = '0.0.0.0:3000'\nmax-file-bytes = 1_048_576\n\
            prometheus = [\"http://a:9090\", \"http://b\"]\ntrusted-proxy = \"10.0.0.0/8\"\nno-sampler = true\n\
            data = \"/srv/rankscope\"\n";
        let file = ConfigFile::parse(text, &options_of_serve()).unwrap();
        let values = |key: &str| file.get(key).map(|entry| (entry.line, entry.values.join(" ")));
        assert_eq!(values("listen"), Some((2, "0.0.0.0:3000".into())));
        assert_eq!(values("max-file-bytes"), Some((3, "1048576".into())));
        assert_eq!(values("prometheus"), Some((4, "http://a:9090 http://b".into())));
        assert_eq!(values("trusted-proxy"), Some((5, "10.0.0.0/8".into())));
        assert_eq!(values("no-sampler"), Some((6, "true".into())));
        assert_eq!(values("webhook-url"), None);
        assert!(ConfigFile::parse("", &options_of_serve()).unwrap().entries.is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_what_was_meant() {
        for (text, line, words) in [
            ("\nlisen = \"127.0.0.1:1\"", 2, "unknown key lisen. Did you mean listen?"),
            ("max_file_bytes = \"1GiB\"", 1, "Did you mean max-file-bytes?"),
            ("colour = 1", 1, "rankscope serve --help"),
            ("config = \"/etc/x\"", 1, "unknown key config"),
            ("[serve]\nlisten = \"127.0.0.1:1\"", 1, "without a heading"),
            ("listen = 3000", 1, "listen must be a text in quotes, and this is an integer"),
            ("no-sampler = \"yes\"", 1, "true or false, without quotes, and this is a string"),
            ("prometheus = []", 1, "a list of such, and this is an array"),
            ("prometheus = [1]", 1, "a list of texts in quotes"),
            ("max-file-bytes = true", 1, "\"2GiB\""),
            ("max-file-bytes = \"1TB\"", 1, "is not a size such as"),
            ("max-file-bytes = 0", 1, "is not a size such as"),
            ("max-file-bytes = 0x10", 1, "and this is an integer"),
            ("\n\ndata = \"data\"", 3, "relative path"),
            ("agent-token-file = \"../token\"", 1, "relative path"),
            ("data = \"\"", 1, "is not taken"),
            ("listen = \"localhost:3000\"", 1, "\"localhost:3000\" is not taken"),
            ("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"", 2, "duplicate key"),
            ("a = 1\nlisten = ", 2, "The file is TOML"),
        ] {
            let found = faults(text);
            let found = found.iter().find(|(_, why)| why.contains(words));
            assert_eq!(found.map(|(line, _)| *line), Some(line), "{text:?}: {:?}", faults(text));
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_and_no_secret_with_it() {
        let found = faults("a = 1\ndatabase-url = \"mysql://ada:hunter2@host/x\"\nwebhook-url = 5\nlisten = \"x\"");
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4], "{found:?}");
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }

    #[test]
    fn foreign_files_are_refused_in_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rankscope.toml");
        let told = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            ConfigFile::read(&path, &options_of_serve()).unwrap_err()
        };
        assert!(told(&[0xff, 0xfe, 0]).concat().contains("not text in UTF-8"));
        assert!(told(&vec![b'#'; (1 << 20) + 1]).concat().contains("longer than 1 MiB"));
        let many = (0..100).map(|n| format!("key{n} = 1")).collect::<Vec<_>>().join("\n");
        let many = told(many.as_bytes());
        assert_eq!(many.len(), MAX_FAULTS + 1);
        assert!(many[0].contains("rankscope.toml, line 1: "), "{many:?}");
        assert!(many[MAX_FAULTS].ends_with("and 84 more"), "{many:?}");
        let deep = format!("a = {}", "[".repeat(100_000));
        assert!(told(deep.as_bytes()).concat().contains("line 1"));
        let long = format!("{} = 1", "x".repeat(100_000));
        assert!(told(long.as_bytes()).concat().len() < 1000);
        assert!(ConfigFile::read(folder.path(), &options_of_serve()).unwrap_err().concat().contains("cannot be read"));
        let missing = ConfigFile::read(&folder.path().join("none"), &options_of_serve()).unwrap_err().concat();
        assert!(missing.contains("none: the configuration file cannot be read"), "{missing}");
    }
}
