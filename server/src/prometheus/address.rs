//! Addresses of servers that the operator allowed, and whether what a visitor names is one of them.
//!
//! Scheme, host and port must be the same, the path must be that of the list or below it. What is then asked is put
//! together from the list's own words, so no trick of an address can lead elsewhere.

use axum::http::Uri;
use std::{fmt, str::FromStr};

/// Longest address that is looked at.
const MAX_BYTES: usize = 2048;

/// Where the HTTP API of one server begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    https: bool,
    /// Lower case; of IPv6 with its brackets.
    host: String,
    port: u16,
    /// Begins with a slash and does not end with one; empty for the root.
    path: String,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "give one such as http://prometheus.example.org:9090";
        // Before parsing: a parser may drop a fragment silently.
        let is_plain = text.len() <= MAX_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || text.contains(['#', '?', '\\', '%']) {
            return Err(format!("{text:?} is not a plain address; {example}, without query"));
        }
        let uri: Uri = text.parse().map_err(|_| format!("{text:?} is not an address; {example}"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("{text:?} does not begin with http:// or https://; {example}")),
        };
        let authority = uri.authority().ok_or_else(|| format!("{text:?} names no host; {example}"))?;
        if authority.as_str().contains('@') {
            return Err(format!("{text:?} holds a name before its host; {example}"));
        }
        let host = authority.host().to_ascii_lowercase();
        let port = match authority.port() {
            Some(_) => authority.port_u16().filter(|port| *port > 0),
            None => Some(if https { 443 } else { 80 }),
        };
        // A colon without a number behind it is no port, and no default.
        let port = port.filter(|_| !authority.as_str().ends_with(':'));
        let port = port.ok_or_else(|| format!("{text:?} has no valid port; {example}"))?;
        if host.is_empty() {
            return Err(format!("{text:?} names no host; {example}"));
        }
        let path = uri.path().trim_end_matches('/').to_owned();
        let is_segment = |segment: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
            !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(fits)
        };
        if !path.is_empty() && !path.split('/').skip(1).all(is_segment) {
            return Err(format!("{text:?} has a path with other signs than letters, digits, -, _, . and ~; {example}"));
        }
        Ok(Self { https, host, port, path })
    }
}

impl Source {
    /// The place below this one that `wanted` names; `None` if it names any other.
    pub fn under(&self, wanted: &str) -> Option<Self> {
        let wanted: Self = wanted.parse().ok()?;
        let is_same = (wanted.https, &wanted.host, wanted.port) == (self.https, &self.host, self.port);
        let rest = wanted.path.strip_prefix(&self.path)?;
        (is_same && (rest.is_empty() || rest.starts_with('/')))
            .then(|| Self { path: wanted.path.clone(), ..self.clone() })
    }

    /// Host with its port, for a title.
    pub fn host(&self) -> String {
        format!("{}{}", self.host, self.shown_port())
    }

    /// Only what a scheme does not imply.
    fn shown_port(&self) -> String {
        let default = if self.https { 443 } else { 80 };
        if self.port == default { String::new() } else { format!(":{}", self.port) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}{}", self.host, self.shown_port(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(text: &str) -> Source {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_shown_as_they_are_asked() {
        for (written, shown) in [
            ("http://Prom.Example:9090/", "http://prom.example:9090"),
            ("https://mimir.example:443/prometheus/", "https://mimir.example/prometheus"),
            ("http://[FD00::7]:9090", "http://[fd00::7]:9090"),
            ("http://10.0.0.7", "http://10.0.0.7"),
        ] {
            assert_eq!(source(written).to_string(), shown);
            assert_eq!(source(shown), source(written));
        }
    }

    #[test]
    fn only_the_same_scheme_host_and_port_and_paths_below_are_allowed() {
        let allowed = source("http://prom.example:9090/prometheus");
        for fine in [
            "http://prom.example:9090/prometheus",
            "http://PROM.example:9090/prometheus/",
            "http://prom.example:9090/prometheus/tenant-7",
        ] {
            assert!(allowed.under(fine).is_some(), "{fine}");
        }
        for wrong in [
            "https://prom.example:9090/prometheus",
            "http://prom.example/prometheus",
            "http://prom.example:9091/prometheus",
            "http://prom.example:9090",
            "http://prom.example:9090/prometheus2",
            "http://prom.example:9090/prometheus/../admin",
            "http://prom.example:9090/prometheus/%2e%2e/admin",
            "http://prom.example:9090/prometheus/./x",
            "http://prom.example:9090/prometheus//x",
            "http://prom.example.:9090/prometheus",
            "http://prom.example:9090@evil.example/prometheus",
            "http://user:secret@prom.example:9090/prometheus",
            "http://evil.example#@prom.example:9090/prometheus",
            "http://evil.example?@prom.example:9090/prometheus",
            "http://prom.example:9090\\@evil.example/prometheus",
            "http://prom.example:9090/prometheus?x=http://evil.example",
            "http://prom.example:09090x/prometheus",
            "http://prom.example:/prometheus",
            "http://prom.example:0/prometheus",
            "file:///etc/passwd",
            "gopher://prom.example:9090/prometheus",
            "//prom.example:9090/prometheus",
            "prom.example:9090/prometheus",
            "/prometheus",
            "",
            "http://prom.example:9090/prometheus\r\nHost: evil.example",
            "http://127.0.0.1:9090/prometheus",
            "http://рrom.example:9090/prometheus",
        ] {
            assert!(allowed.under(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn an_address_that_holds_a_secret_or_a_query_cannot_be_allowed() {
        for wrong in
            ["http://a:b@prom", "http://prom/?x", "http://prom/#x", "ftp://prom", "prom", "http://", "http://:9090"]
        {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_found_under_an_address_is_there(wanted in r"(http|https|file)://[a-z.@:\[\]#?/\\%0-9]{0,40}") {
            let allowed = source("http://a:9090/x");
            if let Some(found) = allowed.under(&wanted) {
                prop_assert!(found.to_string().starts_with("http://a:9090/x"));
            }
            let _ = wanted.parse::<Source>();
        }
    }
}
