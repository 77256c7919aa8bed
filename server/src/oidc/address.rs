//! Addresses of a provider: over https, or on this machine. What is sent there is a secret that opens accounts.

use openidconnect::{IssuerUrl, url::Url};
use std::{fmt, net::IpAddr, str::FromStr};

/// Longest address that is taken.
const LONGEST: usize = 512;

/// The name of a provider, which is the address below which it says what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer(IssuerUrl);

impl FromStr for Issuer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let shown = || text.chars().take(LONGEST).collect::<String>();
        let issuer = IssuerUrl::new(text.to_owned());
        let issuer = issuer.map_err(|error| format!("{:?} is no address of a provider: {error}", shown()))?;
        let url = issuer.url();
        if text.len() > LONGEST || url.query().is_some() || url.fragment().is_some() || has_login(url) {
            return Err(format!(
                "{:?} is no issuer: it is an address such as https://id.example.org/realms/team, without a name before the \
                 host, ? and #",
                shown()
            ));
        }
        if !is_private(url) {
            return Err(format!(
                "{:?} must begin with https:// (http:// is for a provider on this machine alone): who can change what it says \
                 on the way could sign in as anybody",
                shown()
            ));
        }
        Ok(Self(issuer))
    }
}

impl Issuer {
    /// As the provider writes it, sign by sign.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// As the library takes it.
    pub fn url(&self) -> &IssuerUrl {
        &self.0
    }

    /// The name of its machine, which everybody knows it by as long as nobody says a better one.
    pub fn host(&self) -> String {
        self.0.url().host_str().unwrap_or_default().to_owned()
    }

    /// Whether it is on this machine, where nobody listens on the way.
    pub fn is_here(&self) -> bool {
        self.0.url().scheme() == "http"
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn has_login(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether nobody on the way can read or change what is said.
fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || is_loopback(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "http" && is_here
}

/// Whether an address that a provider names for its own parts may be asked: a provider on this machine may have all of
/// them here, any other has them over https.
pub fn may_be_asked(text: &str, issuer_is_here: bool) -> bool {
    Url::parse(text).is_ok_and(|url| url.scheme() == "https" || (issuer_is_here && is_loopback(&url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_asked_where_nobody_listens() {
        for good in [
            "https://accounts.google.com",
            "https://id.example.org/realms/team/",
            "http://127.0.0.1:8080",
            "http://[::1]:1",
        ] {
            let issuer: Issuer = good.parse().unwrap();
            assert_eq!(issuer.as_str(), good, "a slash more or less is another provider");
        }
        for wrong in [
            "",
            "id.example.org",
            "http://id.example.org",
            "http://127.0.0.1.example.org",
            "ftp://localhost",
            "https://a:b@id.example.org",
            "https://id.example.org?x=1",
            "https://id.example.org/#x",
            "javascript:alert(1)",
        ] {
            assert!(wrong.parse::<Issuer>().is_err(), "{wrong}");
        }
        assert!(format!("https://id.example.org/{}", "x".repeat(600)).parse::<Issuer>().unwrap_err().len() < 1000);
    }

    #[test]
    fn a_provider_on_the_network_names_no_address_in_the_clear() {
        assert!(may_be_asked("https://keys.example.org/jwks", false));
        assert!(may_be_asked("http://localhost:1/jwks", true));
        for wrong in ["http://localhost:1/jwks", "http://id.example.org/jwks", "file:///etc/passwd", "/jwks"] {
            assert!(!may_be_asked(wrong, false), "{wrong}");
        }
        assert!(!may_be_asked("http://id.example.org/jwks", true));
    }
}
