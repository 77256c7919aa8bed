//! Who may ask: against DNS rebinding the `Host` must be a name of this server, against forged requests from other
//! sites an unsafe method must come from its own pages. Also the headers that every answer carries.

use super::AppState;
use crate::errors::{Problem, ProblemKind};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use std::net::{IpAddr, SocketAddr};

/// Pages load nothing from elsewhere and run no script but the bundle's.
const PAGE_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    script-src 'none'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Under which names the server may be addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    listen: SocketAddr,
    public: Option<PublicUrl>,
}

/// Scheme and authority under which people reach the server, for instance behind a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    https: bool,
    authority: Authority,
}

impl std::str::FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address such as https://rankscope.example.org");
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        if uri.path() != "/" || uri.query().is_some() {
            return Err(format!("{text:?} has a path; Rankscope must be served from the root of a host"));
        }
        Ok(Self { https, authority: uri.authority().cloned().ok_or_else(wrong)? })
    }
}

impl PublicUrl {
    /// Nobody on the way can read what is sent there: it is encrypted, or does not leave this machine.
    pub fn is_private(&self) -> bool {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.https || is_here
    }
}

impl std::fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.https { "https" } else { "http" }, self.authority)
    }
}

impl Front {
    /// `listen` is the real address, after the system has chosen a port.
    pub fn new(listen: SocketAddr, public: Option<PublicUrl>) -> Self {
        Self { listen, public }
    }

    /// Whether links are made with https, so that cookies can be kept to it.
    pub fn is_https(&self) -> bool {
        self.public.as_ref().is_some_and(|public| public.https)
    }

    /// Whether people come through a proxy: the other side of a connection then says nothing of who asks.
    pub fn is_behind_proxy(&self) -> bool {
        self.public.is_some()
    }

    /// Scheme and authority without a slash at the end, for absolute links.
    pub fn base_url(&self, headers: &HeaderMap, uri: &Uri) -> String {
        if let Some(public) = &self.public {
            return public.to_string();
        }
        match request_authority(headers, uri) {
            Some(authority) => format!("http://{authority}"),
            None => format!("http://{}", self.listen),
        }
    }

    /// Names that cannot be taken over by someone else's DNS: this machine's loopback names, the address that is
    /// listened on, and the public name. Open to all interfaces, any bare IP address is one of ours.
    fn answers_for(&self, authority: &Authority) -> bool {
        if self.public.as_ref().is_some_and(|public| same_authority(&public.authority, authority, public.https)) {
            return true;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.eq_ignore_ascii_case("localhost") {
            return true;
        }
        host.parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_loopback() || ip == self.listen.ip() || self.listen.ip().is_unspecified())
    }

    /// Whether an `Origin` is one of this server's own pages, seen under the name of this request.
    fn is_own_origin(&self, origin: &str, host: &Authority) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else { return false };
        let (Some(scheme), Some(authority)) = (origin.scheme_str(), origin.authority()) else { return false };
        let https = scheme == "https";
        if !https && scheme != "http" {
            return false;
        }
        same_authority(authority, host, https)
            || self
                .public
                .as_ref()
                .is_some_and(|public| public.https == https && same_authority(&public.authority, authority, https))
    }
}

fn same_authority(a: &Authority, b: &Authority, https: bool) -> bool {
    let default_port = if https { 443 } else { 80 };
    a.host().eq_ignore_ascii_case(b.host())
        && a.port_u16().unwrap_or(default_port) == b.port_u16().unwrap_or(default_port)
}

fn request_authority(headers: &HeaderMap, uri: &Uri) -> Option<Authority> {
    match headers.get(header::HOST) {
        Some(host) => host.to_str().ok()?.parse().ok(),
        None => uri.authority().cloned(),
    }
}

/// The check before, and the headers after, every request.
pub async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let for_machines = path.starts_with("/api/");
    let is_share = path.starts_with("/r/");
    let is_secret = ["/setup/", "/settings", "/login"].iter().any(|start| path.starts_with(start));
    let mut response = match check(&state.front, request.method(), request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(problem) if for_machines => problem.into_response(),
        Err(problem) => problem.into_page(),
    };
    // A locked share asks with a form, whose Origin a browser would not name under `no-referrer`.
    let is_locked = response.status() == StatusCode::UNAUTHORIZED;
    add_headers(response.headers_mut(), is_share, is_locked);
    if is_secret {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn check(front: &Front, method: &Method, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let host = request_authority(headers, uri)
        .ok_or_else(|| Problem::new(ProblemKind::ForeignHost, "The request names no host."))?;
    if !front.answers_for(&host) {
        let detail = format!(
            "The name {host} is not known as one of this server. If it is, start it with --public-url http://{host}."
        );
        return Err(Problem::new(ProblemKind::ForeignHost, detail));
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let foreign = || {
        let detail = "Changes are taken only from this server's own pages, or from programs that send no Origin.";
        Err(Problem::new(ProblemKind::ForeignOrigin, detail))
    };
    if let Some(origin) = headers.get(header::ORIGIN)
        && !origin.to_str().is_ok_and(|origin| front.is_own_origin(origin, &host))
    {
        return foreign();
    }
    // Sent by browsers and out of reach for scripts. `none` is a person's own doing, for instance a bookmark.
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => foreign(),
    }
}

fn add_headers(headers: &mut HeaderMap, is_share: bool, is_locked: bool) {
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    // On shares the address is the key and must not travel. Elsewhere `no-referrer` would turn the Origin of our own
    // forms into `null`.
    set(header::REFERRER_POLICY, if is_share && !is_locked { "no-referrer" } else { "same-origin" });
    if is_share {
        set(HeaderName::from_static("x-robots-tag"), "noindex, nofollow");
        set(header::CACHE_CONTROL, "no-store");
    }
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        // Answers change with the run and are nobody else's business; assets say otherwise themselves.
        (header::CACHE_CONTROL, "private, no-cache"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// The policy of a page whose inline start script carries `nonce`.
pub fn page_policy(nonce: Option<&str>) -> HeaderValue {
    let script = match nonce {
        Some(nonce) => format!("script-src 'self' 'nonce-{nonce}' 'wasm-unsafe-eval'; connect-src 'self'"),
        None => "script-src 'none'".to_owned(),
    };
    HeaderValue::from_str(&PAGE_POLICY.replace("script-src 'none'", &script))
        .unwrap_or(HeaderValue::from_static(PAGE_POLICY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(listen: &str, public: Option<&str>) -> Front {
        Front::new(listen.parse().unwrap(), public.map(|url| url.parse().unwrap()))
    }

    fn kind(front: &Front, method: &Method, headers: &[(&'static str, &str)]) -> Option<ProblemKind> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        check(front, method, &map, &Uri::from_static("/")).err().map(|problem| problem.kind())
    }

    #[test]
    fn only_own_names_are_answered() {
        let local = front("127.0.0.1:3000", None);
        for host in ["localhost:3000", "127.0.0.1:3000", "[::1]:3000", "LOCALHOST"] {
            assert_eq!(kind(&local, &Method::GET, &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example:3000", "10.0.0.5:3000", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert_eq!(kind(&local, &Method::GET, &[("host", host)]), Some(ProblemKind::ForeignHost), "{host}");
        }
        assert_eq!(kind(&local, &Method::GET, &[]), Some(ProblemKind::ForeignHost));

        let open = front("0.0.0.0:3000", Some("https://scope.example.org"));
        assert_eq!(kind(&open, &Method::GET, &[("host", "10.0.0.5:3000")]), None);
        assert_eq!(kind(&open, &Method::GET, &[("host", "scope.example.org")]), None);
        assert_eq!(kind(&open, &Method::GET, &[("host", "evil.example")]), Some(ProblemKind::ForeignHost));
    }

    #[test]
    fn changes_come_from_own_pages_or_from_programs() {
        let local = front("127.0.0.1:3000", None);
        let host = ("host", "localhost:3000");
        let post = |more: &[(&'static str, &str)]| kind(&local, &Method::POST, &[&[host], more].concat());
        assert_eq!(post(&[]), None);
        assert_eq!(post(&[("origin", "http://localhost:3000"), ("sec-fetch-site", "same-origin")]), None);
        for origin in ["http://evil.example", "null", "http://localhost:4000", "http://127.0.0.1:3000", "garbage"] {
            assert_eq!(post(&[("origin", origin)]), Some(ProblemKind::ForeignOrigin), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(post(&[("sec-fetch-site", site)]), Some(ProblemKind::ForeignOrigin), "{site}");
        }
        let foreign = [host, ("origin", "http://evil.example")];
        assert_eq!(kind(&local, &Method::GET, &foreign), None);

        let proxied = front("127.0.0.1:3000", Some("https://scope.example.org"));
        let headers = [("host", "127.0.0.1:3000"), ("origin", "https://scope.example.org")];
        assert_eq!(kind(&proxied, &Method::POST, &headers), None);
        let plain = [("host", "127.0.0.1:3000"), ("origin", "http://scope.example.org")];
        assert_eq!(kind(&proxied, &Method::POST, &plain), Some(ProblemKind::ForeignOrigin));
    }

    #[test]
    fn public_addresses_are_roots() {
        assert_eq!("https://a.b/".parse::<PublicUrl>().unwrap().to_string(), "https://a.b");
        for wrong in ["a.b", "ftp://a.b", "https://a.b/path", "https://"] {
            assert!(wrong.parse::<PublicUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_nonce_is_the_only_inline_script() {
        let policy = page_policy(Some("abc"));
        let policy = policy.to_str().unwrap();
        assert!(policy.contains("'nonce-abc'") && !policy.contains("script-src 'none'"));
        assert!(!policy.split("script-src").nth(1).unwrap().split(';').next().unwrap().contains("unsafe-inline"));
    }
}
