//! Where credentials for a bucket come from: a file in the form of `~/.aws/credentials`, or what the environment says in
//! the variables that tools for AWS know. They never come from an option and are never shown.

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};
use std::{fmt, fs::File, io::Read, path::Path, path::PathBuf};

/// A longer file holds no credentials of ours.
const MAX_BYTES: u64 = 64 << 10;

/// Variables that are read, each with what it sets. No other of the family is: whether requests are signed and where the
/// bucket is are settings of ours.
const VARIABLES: [(&str, Key); 13] = [
    ("AWS_ACCESS_KEY_ID", Key::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", Key::SecretAccessKey),
    ("AWS_SESSION_TOKEN", Key::Token),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", Key::WebIdentityTokenFile),
    ("AWS_ROLE_ARN", Key::RoleArn),
    ("AWS_ROLE_SESSION_NAME", Key::RoleSessionName),
    ("AWS_ENDPOINT_URL_STS", Key::StsEndpoint),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", Key::ContainerCredentialsRelativeUri),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", Key::ContainerCredentialsFullUri),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Key::ContainerAuthorizationTokenFile),
    ("AWS_METADATA_ENDPOINT", Key::MetadataEndpoint),
    ("AWS_DEFAULT_REGION", Key::Region),
    ("AWS_REGION", Key::Region),
];

/// Where they come from, for what is told when they do not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Environment,
    WebIdentity,
    Container,
    Instance,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment => f.write_str("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
            Self::WebIdentity => f.write_str("the role of AWS_ROLE_ARN with the token of AWS_WEB_IDENTITY_TOKEN_FILE"),
            Self::Container => f.write_str("the container's role (AWS_CONTAINER_CREDENTIALS_…)"),
            Self::Instance => f.write_str("the role of this machine (instance metadata)"),
        }
    }
}

/// Gives a builder what the environment says, or what the file says instead of its credentials.
pub fn give(
    mut builder: AmazonS3Builder,
    file: Option<&Path>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(AmazonS3Builder, Source), String> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    for (name, key) in VARIABLES {
        // Those of the file and those of the environment are not mixed.
        let is_wanted = key == Key::Region || file.is_none();
        if let Some(value) = variable(name).filter(|value| is_wanted && !value.is_empty()) {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(path) = file {
        let keys = Keys::read(path)?;
        builder = builder.with_access_key_id(keys.id).with_secret_access_key(keys.secret);
        if let Some(token) = keys.token {
            builder = builder.with_token(token);
        }
        return Ok((builder, Source::File(path.to_path_buf())));
    }
    let source = match (is_set("AWS_ACCESS_KEY_ID"), is_set("AWS_SECRET_ACCESS_KEY")) {
        (true, true) => Source::Environment,
        (true, false) => return Err("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not".to_owned()),
        (false, true) => return Err("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not".to_owned()),
        // In the order in which the library looks.
        (false, false) if is_set("AWS_WEB_IDENTITY_TOKEN_FILE") && is_set("AWS_ROLE_ARN") => Source::WebIdentity,
        (false, false)
            if is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") || is_set("AWS_CONTAINER_CREDENTIALS_FULL_URI") =>
        {
            Source::Container
        }
        (false, false) => Source::Instance,
    };
    Ok((builder, source))
}

/// No `Debug`: it would show them.
struct Keys {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Keys {
    fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
        read.map_err(|error| format!("the file with the credentials, {shown}, cannot be read: {error}"))?;
        Self::parse(&text).ok_or_else(|| {
            format!(
                "{shown} holds no credentials: it needs the lines aws_access_key_id = … and aws_secret_access_key = …, at \
                 the top or below [default]"
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (mut id, mut secret, mut token, mut is_ours) = (None, None, None, true);
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[') {
                is_ours = section.trim_end_matches(']').trim() == "default";
            } else if let (true, Some((key, value))) = (is_ours, line.split_once('=')) {
                let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
                match key.trim() {
                    "aws_access_key_id" => id = value,
                    "aws_secret_access_key" => secret = value,
                    "aws_session_token" => token = value,
                    _ => {}
                }
            }
        }
        Some(Self { id: id?, secret: secret?, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    fn source(set: &[(&str, &str)]) -> Result<Source, String> {
        give(AmazonS3Builder::new(), None, of(set)).map(|(_, source)| source)
    }

    #[test]
    fn the_environment_says_which_credentials_are_taken() {
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
        assert_eq!(source(&keys), Ok(Source::Environment));
        assert!(source(&keys[..1]).unwrap_err().contains("AWS_SECRET_ACCESS_KEY is not"));
        let error = source(&keys[1..]).unwrap_err();
        assert!(error.contains("AWS_ACCESS_KEY_ID is not") && !error.contains("hunter2"), "{error}");
        let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn:x")];
        assert_eq!(source(&web), Ok(Source::WebIdentity));
        assert_eq!(source(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")]), Ok(Source::Container));
        assert_eq!(source(&[]), Ok(Source::Instance));
        assert_eq!(source(&[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")]), Ok(Source::Instance));
        // What would change how requests are made is none of the environment's business.
        let (builder, _) = give(AmazonS3Builder::new(), None, of(&[("AWS_SKIP_SIGNATURE", "true")])).unwrap();
        assert_eq!(builder.get_config_value(&Key::SkipSignature).as_deref(), Some("false"));
        let (builder, _) = give(AmazonS3Builder::new(), None, of(&[("AWS_REGION", "eu-west-1")])).unwrap();
        assert_eq!(builder.get_config_value(&Key::Region).as_deref(), Some("eu-west-1"));
    }

    #[test]
    fn a_file_has_the_form_that_other_tools_write() {
        let text = "# of the team\n[other]\naws_access_key_id = b\naws_secret_access_key = c\n[default]\n\
            aws_access_key_id = AKIA\naws_secret_access_key=a/b+c==\naws_session_token = t\n";
        let keys = Keys::parse(text).unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str(), keys.token.as_deref()), ("AKIA", "a/b+c==", Some("t")));
        assert!(Keys::parse("aws_access_key_id=a\naws_secret_access_key=b").is_some());
        for wrong in ["", "aws_access_key_id = a", "[x]\naws_access_key_id=a\naws_secret_access_key=b", "\0=\n[=]"] {
            assert!(Keys::parse(wrong).is_none(), "{wrong:?}");
        }

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        std::fs::write(&path, "aws_secret_access_key = hunter2\n").unwrap();
        let error = give(AmazonS3Builder::new(), Some(&path), of(&[])).map(|_| ()).unwrap_err();
        assert!(error.contains("holds no credentials") && !error.contains("hunter2"), "{error}");
        std::fs::write(&path, text).unwrap();
        // The environment's are not mixed with those of the file.
        let set = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SESSION_TOKEN", "b"), ("AWS_ROLE_ARN", "c")];
        let (builder, source) = give(AmazonS3Builder::new(), Some(&path), of(&set)).unwrap();
        assert_eq!(source, Source::File(path));
        assert_eq!(builder.get_config_value(&Key::AccessKeyId).as_deref(), Some("AKIA"));
        assert_eq!(builder.get_config_value(&Key::Token).as_deref(), Some("t"));
        assert_eq!(builder.get_config_value(&Key::RoleArn), None);
        let missing = give(AmazonS3Builder::new(), Some(Path::new("/nowhere/x")), of(&[])).map(|_| ()).unwrap_err();
        assert!(missing.contains("/nowhere/x, cannot be read"), "{missing}");
    }
}
