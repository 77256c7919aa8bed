//! The cookie that carries a new secret to the next page, the only one that can show it; that page ends it.

use axum::http::{HeaderValue, header::InvalidHeaderValue};
use rankscope_app::ShownOnce;

const NAME: &str = "rankscope_shown_once";
/// Seconds for which it is kept.
const SECONDS: u32 = 120;

/// Takes a secret along. Signs that may not stand in a cookie do not occur in tokens and addresses of this server.
pub fn carry(secret: &ShownOnce, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    let value = match secret {
        ShownOnce::Token(token) => format!("token.{token}"),
        ShownOnce::Link(link) => format!("link.{link}"),
    };
    cookie(&value, SECONDS, is_https)
}

/// Ends the cookie.
pub fn end(is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    cookie("", 0, is_https)
}

fn cookie(value: &str, seconds: u32, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    let secure = if is_https { "; Secure" } else { "" };
    HeaderValue::from_str(&format!(
        "{NAME}={value}; HttpOnly; SameSite=Strict; Path=/settings; Max-Age={seconds}{secure}"
    ))
}

/// The secret that a request brings.
pub fn read(cookies: &str) -> Option<ShownOnce> {
    let value = cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(NAME)?.strip_prefix('='))?;
    let (kind, secret) = value.split_once('.')?;
    match kind {
        "token" => Some(ShownOnce::Token(secret.to_owned())),
        "link" => Some(ShownOnce::Link(secret.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_survive_the_way_to_the_next_page() {
        for secret in
            [ShownOnce::Token("rks_a-b".into()), ShownOnce::Link("https://scope.example.org:3000/setup/x_y".into())]
        {
            let cookie = carry(&secret, true).unwrap().to_str().unwrap().to_owned();
            assert!(cookie.contains("HttpOnly") && cookie.ends_with("; Secure"));
            let pair = cookie.split(';').next().unwrap();
            assert_eq!(read(&format!("a=b; {pair}")), Some(secret));
        }
        assert_eq!(read("rankscope_shown_once=other.x"), None);
        assert_eq!(read(""), None);
    }
}
