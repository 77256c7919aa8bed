//! Where a bucket is and how it is asked. Nothing here is secret: credentials have no place in an address.

use std::{fmt, path::PathBuf, str::FromStr};
use url::Url;

/// Longest prefix; keys have up to 1024 bytes, and ours need some 120 of them.
const MAX_PREFIX: usize = 512;

/// A bucket, and under which prefix objects lie in it: `s3://bucket/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    pub(super) bucket: String,
    /// Without slashes at its ends; empty for the whole bucket.
    pub(super) prefix: String,
}

/// The server of a bucket: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

/// How a request names its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Style {
    /// `https://server/bucket/key`
    Path,
    /// `https://bucket.server/key`
    Host,
}

/// All that is set about a bucket.
#[derive(Debug, Clone)]
pub struct BucketSettings {
    /// Which one.
    pub url: BucketUrl,
    /// Its server, if that is not AWS.
    pub endpoint: Option<Endpoint>,
    /// Its region; otherwise the environment's, or us-east-1.
    pub region: Option<String>,
    /// How it is named; otherwise as its server usually wants it.
    pub style: Option<Style>,
    /// Its server may be asked without TLS.
    pub plain_http: bool,
    /// File with the credentials, in the form of `~/.aws/credentials`; otherwise the environment says which.
    pub credentials_file: Option<PathBuf>,
    /// Authorities (PEM) from which the server's certificate may come, instead of Mozilla's list.
    pub ca_file: Option<PathBuf>,
}

impl FromStr for BucketUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err("a place for objects is s3://bucket or s3://bucket/prefix; without one they lie in the data \
                folder"
                .to_owned());
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains(['@', ':']) {
            return Err("credentials and ports have no place in it: give credentials in the environment \
                (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) or in a file, and a server with its port as the endpoint"
                .to_owned());
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if bucket.is_empty() || bucket.len() > 255 || !is_plain(bucket) || bucket.starts_with('.') {
            return Err("a bucket's name has letters, digits, hyphens, dots and underscores".to_owned());
        }
        let prefix = prefix.trim_end_matches('/');
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && is_plain(part);
        if prefix.len() > MAX_PREFIX || !(prefix.is_empty() || prefix.split('/').all(is_part)) {
            return Err(format!(
                "a prefix has up to {MAX_PREFIX} letters, digits, hyphens, dots and underscores, with single slashes \
                 between its parts"
            ));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|error| format!("this is no address of a server: {error}"))?;
        if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none_or(str::is_empty) {
            return Err("a server is https://host or https://host:port".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("credentials have no place in it: give them in the environment (AWS_ACCESS_KEY_ID and \
                AWS_SECRET_ACCESS_KEY) or in a file"
                .to_owned());
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err("only scheme, host and port: the bucket and the prefix stand in s3://bucket/prefix".to_owned());
        }
        Ok(Self(url))
    }
}

impl Endpoint {
    pub(super) fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// The same with the bucket before the host.
    pub(super) fn with_bucket(&self, bucket: &str) -> Result<Self, String> {
        let host = self.0.host_str().unwrap_or_default();
        let mut url = self.0.clone();
        let with = url.set_host(Some(&format!("{bucket}.{host}")));
        with.map_err(|_| format!("{bucket}.{host} is no name of a host; let the bucket be named in the path"))?;
        Ok(Self(url))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_a_name_and_a_prefix_and_nothing_that_is_secret() {
        let read = |text: &str| text.parse::<BucketUrl>().map(|url| url.to_string());
        assert_eq!(read("s3://team").unwrap(), "s3://team");
        assert_eq!(read("s3://team/").unwrap(), "s3://team");
        assert_eq!(read("s3://team.example/rank-scope/a_1/").unwrap(), "s3://team.example/rank-scope/a_1");
        for wrong in [
            "team",
            "http://team",
            "s3://",
            "s3:///x",
            "s3://a b",
            "s3://..",
            "s3://a//b",
            "s3://a/../b",
            "s3://a/b?c",
            "s3://a/%2e%2e",
            "s3://a/ä",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let error = read("s3://AKIA:hunter2@team").unwrap_err();
        assert!(error.contains("environment") && !error.contains("hunter2"), "{error}");
        assert!(read(&format!("s3://a/{}", "x".repeat(600))).is_err());
    }

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_a_port() {
        let read = |text: &str| text.parse::<Endpoint>().map(|url| url.to_string());
        assert_eq!(read("https://minio.example.org:9000/").unwrap(), "https://minio.example.org:9000");
        assert!(read("http://127.0.0.1:9000").unwrap().parse::<Endpoint>().unwrap().is_plain());
        for wrong in ["minio", "ftp://a", "https://", "https://a/bucket", "https://a?x=1", "https://a#x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let error = read("https://AKIA:hunter2@minio.example.org").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
        let host: Endpoint = "https://s3.example.org:9000".parse().unwrap();
        assert_eq!(host.with_bucket("team").unwrap().to_string(), "https://team.s3.example.org:9000");
        assert!("https://10.0.0.1".parse::<Endpoint>().unwrap().with_bucket("team").is_err());
    }
}
