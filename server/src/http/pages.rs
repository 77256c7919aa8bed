//! Pages: hands the app what it needs to know of this request, and takes back a whole document.

use super::{AppState, accounts::shown_once, forms, guard::page_policy, shared};
use crate::{
    access::{Granted, Principal, Scoped, Via},
    accounts::Role,
};
use axum::{
    body::Body,
    extract::{RawQuery, Request, State},
    http::{HeaderValue, Response, StatusCode, header},
    response::Redirect,
};
use leptos::{
    config::LeptosOptions,
    nonce::use_nonce,
    prelude::{provide_context, use_context},
};
use leptos_axum::ResponseOptions;
use rankscope_app::{Backend, May, RequestFacts, Said, Visitor, shell};
use std::sync::Arc;

/// Must run once before the first page.
pub fn prepare() {
    // Fails only if it was done before.
    let _ = any_spawner::Executor::init_tokio();
}

/// Whoever shortens the address of a run looks for the list: it is a part of the start page.
pub async fn list_of_runs(RawQuery(query): RawQuery) -> Redirect {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Redirect::permanent(&format!("/{query}#runs"))
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
    let shown = cookies.filter(|_| request.uri().path().starts_with("/settings")).and_then(shown_once::read);
    let ends_shown = shown.as_ref().and_then(|_| shown_once::end(state.front.is_https()).ok());
    let who = request.extensions().get::<Principal>().cloned().unwrap_or(Principal::Nobody);
    let granted = request.extensions().get::<Granted>().copied();
    let said = request.extensions().get::<Said>().cloned();
    let visitor = visitor(&who, granted).map(|visitor| Visitor { shown_once: shown, ..visitor });
    let backend: Arc<dyn Backend> = match who {
        Principal::SingleUser => Arc::clone(&state.backend),
        who => Arc::new(Scoped::new(state.clone(), who)),
    };
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
        provide_context(Arc::clone(&backend));
        if let Some(visitor) = &visitor {
            provide_context(visitor.clone());
        }
        if let Some(said) = &said {
            provide_context(said.clone());
        }
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
    for cookie in [ends_new_share, ends_shown].into_iter().flatten() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    response
}

/// What pages are told of their visitor; nothing where the server is its owner's alone.
fn visitor(who: &Principal, granted: Option<Granted>) -> Option<Visitor> {
    match who {
        Principal::SingleUser => None,
        Principal::Nobody | Principal::Token(_) => Some(Visitor::default()),
        Principal::User(signed_in) => Some(Visitor {
            name: Some(signed_in.user.name.clone()),
            is_admin: signed_in.user.is_admin,
            manages_projects: who.has_anywhere(Role::Admin),
            may: may(who, granted),
            may_sign_out: signed_in.via == Via::Session,
            shown_once: None,
        }),
    }
}

/// By the role where the page is from; on a page of no one project by the best one anywhere.
fn may(who: &Principal, granted: Option<Granted>) -> May {
    let has = |role| match granted.and_then(|granted| granted.role) {
        Some(own) => own >= role,
        None => who.has_anywhere(role),
    };
    if has(Role::Admin) {
        May::Delete
    } else if has(Role::Editor) {
        May::Edit
    } else {
        May::Read
    }
}
