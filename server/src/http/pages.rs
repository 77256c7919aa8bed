//! Pages: hands the app what it needs to know of this request, and takes back a whole document.

use super::{AppState, forms, guard::page_policy, shared};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Response, StatusCode, header},
};
use leptos::{
    config::LeptosOptions,
    nonce::use_nonce,
    prelude::{provide_context, use_context},
};
use leptos_axum::ResponseOptions;
use rankscope_app::{Backend, RequestFacts, shell};
use std::sync::Arc;

/// Must run once before the first page.
pub fn prepare() {
    // Fails only if it was done before.
    let _ = any_spawner::Executor::init_tokio();
}

/// Renders the page of this address, also the one that says that there is none.
pub async fn page(State(state): State<AppState>, request: Request) -> Response<Body> {
    let base_url = state.front.base_url(request.headers(), request.uri());
    let cookies = request.headers().get(header::COOKIE).and_then(|cookies| cookies.to_str().ok());
    let new_share = cookies.and_then(forms::new_share);
    let visitor_name = cookies.and_then(forms::visitor_name);
    let share_proof = shared::proof(request.headers());
    // The link is shown once: the page that shows it ends the cookie that brought it.
    let ends_new_share = new_share
        .as_ref()
        .and_then(|_| forms::new_share_cookie("", request.uri().path(), 0, state.front.is_https()).ok());
    let options = LeptosOptions::builder().output_name("rankscope").site_pkg_dir("pkg").build();

    let provide = move || {
        let answer = use_context::<ResponseOptions>().unwrap_or_default();
        let redirect = {
            let answer = answer.clone();
            move |address: &str| {
                if let Ok(address) = HeaderValue::from_str(address) {
                    answer.set_status(StatusCode::SEE_OTHER);
                    answer.insert_header(header::LOCATION, address);
                }
            }
        };
        let set_status = {
            let answer = answer.clone();
            move |status| {
                if let Ok(status) = StatusCode::from_u16(status) {
                    answer.set_status(status);
                }
            }
        };
        // Leptos writes a small inline script with the nonce also into pages without the bundle.
        answer.insert_header(header::CONTENT_SECURITY_POLICY, page_policy(use_nonce().as_deref()));
        provide_context::<Arc<dyn Backend>>(Arc::clone(&state.backend));
        provide_context(state.site.clone());
        provide_context(RequestFacts {
            base_url: base_url.clone(),
            new_share: new_share.clone(),
            visitor_name: visitor_name.clone(),
            share_proof: share_proof.clone(),
            set_status: Arc::new(set_status),
            redirect: Arc::new(redirect),
        });
    };
    // Whole documents, not streams: status and head are right, and nothing needs a script to fall into place.
    let render = leptos_axum::render_app_async_with_context(provide, move || shell(options.clone()));
    let mut response = render(request).await;
    if let Some(cookie) = ends_new_share {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    response
}
