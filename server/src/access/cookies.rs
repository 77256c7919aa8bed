//! The cookies that carry a session, and a sign-in on its way through a provider: for this server alone, out of reach for
//! scripts, not sent along by other sites.

use crate::accounts::{LONGEST, PENDING};
use axum::http::{HeaderMap, HeaderValue, header, header::InvalidHeaderValue};

/// With https the browser itself holds that this cookie comes from this host, for all its addresses, encrypted: a
/// neighbour under the same domain cannot plant one.
const SESSION: Name = Name { secure: "__Host-rankscope_session", plain: "rankscope_session" };
const SIGN_IN: Name = Name { secure: "__Host-rankscope_sign_in", plain: "rankscope_sign_in" };

struct Name {
    secure: &'static str,
    plain: &'static str,
}

impl Name {
    fn text(&self, is_https: bool) -> &'static str {
        if is_https { self.secure } else { self.plain }
    }
}

/// Begins a session in the browser.
pub fn session_cookie(secret: &str, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    cookie(&SESSION, secret, LONGEST.as_secs(), is_https)
}

/// Ends it.
pub fn end_session_cookie(is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    cookie(&SESSION, "", 0, is_https)
}

/// Marks the browser that goes to a provider.
pub fn begin_sign_in_cookie(secret: &str, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    cookie(&SIGN_IN, secret, PENDING.as_secs(), is_https)
}

/// It has come back.
pub fn end_sign_in_cookie(is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    cookie(&SIGN_IN, "", 0, is_https)
}

fn cookie(name: &Name, value: &str, seconds: u64, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    let secure = if is_https { "; Secure" } else { "" };
    let name = name.text(is_https);
    HeaderValue::from_str(&format!("{name}={value}; HttpOnly; SameSite=Lax; Path=/; Max-Age={seconds}{secure}"))
}

/// The secret of the session that a browser says it has.
pub fn session_secret(headers: &HeaderMap, is_https: bool) -> Option<&str> {
    secret(&SESSION, headers, is_https)
}

/// The secret of the sign-in with which a browser says it comes back.
pub fn sign_in_secret(headers: &HeaderMap, is_https: bool) -> Option<&str> {
    secret(&SIGN_IN, headers, is_https)
}

fn secret<'a>(name: &Name, headers: &'a HeaderMap, is_https: bool) -> Option<&'a str> {
    let name = name.text(is_https);
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
        .filter(|secret| !secret.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_kept_from_scripts_neighbours_and_plain_lines() {
        let cookie = session_cookie("abc", true).unwrap().to_str().unwrap().to_owned();
        for part in ["__Host-rankscope_session=abc;", "HttpOnly", "SameSite=Lax", "Path=/;", "; Secure"] {
            assert!(cookie.contains(part), "{part} is not in {cookie}");
        }
        assert!(!cookie.contains("Domain"));
        assert!(!session_cookie("abc", false).unwrap().to_str().unwrap().contains("Secure"));
        assert!(end_session_cookie(true).unwrap().to_str().unwrap().contains("Max-Age=0"));
    }

    #[test]
    fn only_the_own_cookie_is_read() {
        let headers = |cookies: &str| HeaderMap::from_iter([(header::COOKIE, cookies.parse().unwrap())]);
        let found = |cookies: &str, https| session_secret(&headers(cookies), https).map(ToOwned::to_owned);
        assert_eq!(found("a=b; rankscope_session=s", false).as_deref(), Some("s"));
        assert_eq!(found("rankscope_session=s", true), None, "without https it could be anybody's");
        assert_eq!(found("__Host-rankscope_session=s", true).as_deref(), Some("s"));
        for none in ["", "rankscope_session=", "xrankscope_session=s", "rankscope_session2=s"] {
            assert_eq!(found(none, false), None, "{none}");
        }
    }
}
