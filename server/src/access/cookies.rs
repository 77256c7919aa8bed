//! The cookie that carries a session: for this server alone, out of reach for scripts, not sent along by other sites.

use crate::accounts::LONGEST;
use axum::http::{HeaderMap, HeaderValue, header, header::InvalidHeaderValue};

/// With https the browser itself holds that this cookie comes from this host, for all its addresses, encrypted: a
/// neighbour under the same domain cannot plant one.
const SECURE: &str = "__Host-rankscope_session";
const PLAIN: &str = "rankscope_session";

fn name(is_https: bool) -> &'static str {
    if is_https { SECURE } else { PLAIN }
}

/// Begins a session in the browser.
pub fn session_cookie(secret: &str, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    cookie(secret, LONGEST.as_secs(), is_https)
}

/// Ends it.
pub fn end_session_cookie(is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    cookie("", 0, is_https)
}

fn cookie(value: &str, seconds: u64, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    let secure = if is_https { "; Secure" } else { "" };
    let name = name(is_https);
    HeaderValue::from_str(&format!("{name}={value}; HttpOnly; SameSite=Lax; Path=/; Max-Age={seconds}{secure}"))
}

/// The secret of the session that a browser says it has.
pub fn session_secret(headers: &HeaderMap, is_https: bool) -> Option<&str> {
    let name = name(is_https);
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
