//! Files inside the binary: the browser bundle, the style sheet, the public folder. Everything else is a page.

use super::{AppState, pages};
use crate::errors::Problem;
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use rust_embed::{Embed, EmbeddedFile};

/// `pkg/rankscope.js` and `pkg/rankscope_bg.wasm`, or nothing; see `build.rs`.
#[derive(Embed)]
#[folder = "$RANKSCOPE_SITE_DIR"]
struct Bundle;

#[derive(Embed)]
#[folder = "$CARGO_MANIFEST_DIR/../style"]
struct Style;

#[derive(Embed)]
#[folder = "$CARGO_MANIFEST_DIR/../public"]
struct Public;

/// Pictures of the documentation.
#[derive(Embed)]
#[folder = "$CARGO_MANIFEST_DIR/../docs/images"]
struct DocImages;

/// Whether islands can come to life.
pub fn has_bundle() -> bool {
    Bundle::get("pkg/rankscope.js").is_some() && Bundle::get("pkg/rankscope_bg.wasm").is_some()
}

/// An embedded file if there is one at this address, else a page (or the page that says that there is none).
pub async fn asset_or_page(State(state): State<AppState>, request: Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/api/") || path == "/api" {
        return Problem::not_found().into_response();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return super::api::method_not_allowed(request.uri().clone()).await;
    }
    match find(path.trim_start_matches('/')) {
        Some((name, file)) => answer(&name, file, request.uri().query(), request.headers()),
        None if path.starts_with("/pkg/") => Problem::not_found().into_page(),
        None => pages::page(State(state), request).await,
    }
}

fn find(path: &str) -> Option<(String, EmbeddedFile)> {
    let file = if path.starts_with("pkg/") {
        Bundle::get(path)
    } else if let Some(image) = path.strip_prefix("docs/images/") {
        DocImages::get(image)
    } else if has_ending(path, "css") {
        Style::get(path).or_else(|| Public::get(path))
    } else {
        Public::get(path)
    };
    file.map(|file| (path.to_owned(), file))
}

fn has_ending(path: &str, ending: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, found)| found.eq_ignore_ascii_case(ending))
}

/// The address does not name the content, so the browser asks each time whether its copy is still right; an address
/// with `?v=` and the content's hash may be kept for ever.
fn answer(name: &str, file: EmbeddedFile, query: Option<&str>, request: &HeaderMap) -> Response {
    let hash = crate::hex(&file.metadata.sha256_hash()[..16]);
    let tag = format!("\"{hash}\"");
    let keep = if query == Some(&format!("v={hash}")) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    // Compression makes the tag weak on its way out.
    let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    if known.flat_map(|tags| tags.split(',')).any(|known| known.trim().trim_start_matches("W/") == tag) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    (headers, Body::from(file.data.into_owned())).into_response()
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("json" | "webmanifest") => "application/json",
        Some("py") => "text/x-python; charset=utf-8",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_address_and_nothing_else_is() {
        assert!(find("style.css").is_some());
        for nothing in ["", "../Cargo.toml", "pkg/../style.css", "style", "runs/1", "pkg/"] {
            assert!(find(nothing).is_none(), "{nothing}");
        }
    }

    #[test]
    fn the_probe_is_served_as_python() {
        let (name, file) = find("rankscope_probe.py").unwrap();
        assert!(file.data.starts_with(b"# Copyright"));
        let sent = answer(&name, file, None, &HeaderMap::new());
        assert_eq!(sent.headers()[header::CONTENT_TYPE], "text/x-python; charset=utf-8");
    }

    #[test]
    fn unchanged_files_are_not_sent_again() {
        let (name, file) = find("style.css").unwrap();
        let first = answer(&name, file, None, &HeaderMap::new());
        assert_eq!(first.headers()[header::CACHE_CONTROL], "no-cache");
        let mut request = HeaderMap::new();
        let tag = first.headers()[header::ETAG].to_str().unwrap();
        request.insert(header::IF_NONE_MATCH, format!("\"other\", W/{tag}").parse().unwrap());
        let (name, file) = find("style.css").unwrap();
        assert_eq!(answer(&name, file, None, &request).status(), StatusCode::NOT_MODIFIED);
    }
}
