//! Forms that work without JavaScript: each ends in a redirect to the page that shows the result, or in a page that
//! says what went wrong.

use super::{
    AppState,
    api::{ApiPath, ApiQuery, author_of, item_url, live, stage_url},
    upload_body::UploadBody,
};
use crate::{
    access::Who,
    accounts::Action,
    checklist::NewNote,
    errors::{Problem, Result},
    http::api::{expiry, run_url},
    intake,
    service::to_the_end,
    store::{MintedShare, ShareOptions},
};
use axum::{
    Form,
    extract::{State, rejection::FormRejection},
    http::{HeaderValue, header, header::InvalidHeaderValue},
    response::{IntoResponse, Redirect, Response},
};
use rankscope_model::{Item, Stage};
use serde::Deserialize;
use std::future::Future;

/// Carries a new link to the next page, the only one that can show it.
pub const NEW_SHARE_COOKIE: &str = "rankscope_new_share";
/// Seconds for which that cookie is kept.
const NEW_SHARE_SECONDS: u32 = 300;
/// Holds the name under which a visitor writes notes.
const NAME_COOKIE: &str = "rankscope_name";

/// The share form.
#[derive(Deserialize)]
pub struct ShareForm {
    /// Seconds; empty or `never` for no end.
    #[serde(default)]
    expires_in: String,
    /// Empty for none.
    #[serde(default)]
    password: String,
    /// Present when the box is ticked.
    raw_files: Option<String>,
    masked: Option<String>,
}

/// Upload of the home page.
pub async fn create_run(State(state): State<AppState>, who: Who, body: Result<UploadBody, Problem>) -> Response {
    or_page(async {
        let mut upload = body?.receive(&state).await?;
        upload.project = Some(who.principal.project_for_upload(upload.project.as_deref())?);
        let taken = to_the_end(async move { state.service.create_run(upload).await }).await?;
        Ok(Redirect::to(&run_url(&taken.report.run.id)).into_response())
    })
    .await
}

/// Where the page that sent files wants its visitor to be afterwards.
#[derive(Debug, Deserialize)]
pub struct ReturnQuery {
    /// Slug of a checklist item: back to its place in the wizard. A closed set, so that no form leads elsewhere.
    item: Option<String>,
}

impl ReturnQuery {
    fn address(&self, run: &str) -> String {
        self.item.as_deref().and_then(Item::from_slug).map_or_else(|| run_url(run), |item| item_url(run, item))
    }
}

/// More evidence, from the report's page or from an item of the wizard.
pub async fn add_files(
    State(state): State<AppState>,
    path: Result<ApiPath<String>, Problem>,
    query: Result<ApiQuery<ReturnQuery>, Problem>,
    body: Result<UploadBody, Problem>,
) -> Response {
    or_page(async {
        let ApiPath(id) = path?;
        let ApiQuery(back) = query?;
        state.service.store.run(&id).await?;
        let upload = body?.receive(&state).await?;
        let run = id.clone();
        to_the_end(async move { state.service.add_files(&run, upload).await }).await?;
        Ok(Redirect::to(&back.address(&id)).into_response())
    })
    .await
}

/// A new link.
pub async fn create_share(
    State(state): State<AppState>,
    who: Who,
    path: Result<ApiPath<String>, Problem>,
    form: Result<Form<ShareForm>, FormRejection>,
) -> Response {
    or_page(async {
        let ApiPath(id) = path?;
        let Form(form) = form.map_err(|error| Problem::invalid("The form is not complete.").because(error))?;
        let seconds = match form.expires_in.trim() {
            "" | "never" => None,
            seconds => {
                Some(seconds.parse().map_err(|_| Problem::invalid("expires_in is a number of seconds, or never."))?)
            }
        };
        let options = ShareOptions {
            expires_in: expiry(seconds)?,
            raw_files: form.raw_files.is_some(),
            masked: form.masked.is_some(),
            ..ShareOptions::default()
        };
        let MintedShare { info, token } = state.service.share(&id, options, Some(form.password)).await?;
        state.record(&who.principal, who.from, Action::ShareMade, &format!("run {id}, share {}", info.id)).await;
        let value = format!("{}.{token}", info.id);
        let cookie = new_share_cookie(&value, &run_url(&id), NEW_SHARE_SECONDS, state.front.is_https())
            .map_err(Problem::internal)?;
        Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&format!("{}#share", run_url(&id)))).into_response())
    })
    .await
}

/// The end of a link.
pub async fn revoke_share(
    State(state): State<AppState>,
    who: Who,
    path: Result<ApiPath<(String, String)>, Problem>,
) -> Response {
    or_page(async {
        let ApiPath((id, share)) = path?;
        state.service.store.revoke_share(&share, Some(&id)).await?;
        state.record(&who.principal, who.from, Action::ShareRevoked, &format!("run {id}, share {share}")).await;
        Ok(Redirect::to(&format!("{}#share", run_url(&id))).into_response())
    })
    .await
}

/// The form for another title.
#[derive(Debug, Deserialize)]
pub struct TitleForm {
    #[serde(default)]
    title: String,
}

/// Another title.
pub async fn rename_run(
    State(state): State<AppState>,
    path: Result<ApiPath<String>, Problem>,
    form: Result<Form<TitleForm>, FormRejection>,
) -> Response {
    or_page(async {
        let ApiPath(id) = path?;
        let Form(form) = form.map_err(|error| Problem::invalid("The form is not complete.").because(error))?;
        let title = intake::clean_line(&form.title, state.service.limits.max_title_chars)
            .ok_or_else(|| Problem::invalid("A title needs at least one visible character."))?;
        state.service.store.rename_run(&id, &title).await?;
        Ok(Redirect::to(&run_url(&id)).into_response())
    })
    .await
}

/// All files of a run once more.
pub async fn read_again(State(state): State<AppState>, who: Who, path: Result<ApiPath<String>, Problem>) -> Response {
    or_page(async {
        let ApiPath(id) = path?;
        state.service.read_again(&id).await?;
        state.record(&who.principal, who.from, Action::RunReadAgain, &id).await;
        Ok(Redirect::to(&run_url(&id)).into_response())
    })
    .await
}

/// The form beside a silent node.
#[derive(Debug, Deserialize)]
pub struct NodeForm {
    #[serde(default)]
    node: String,
}

/// The end of a node that is gone for good.
pub async fn remove_node(
    State(state): State<AppState>,
    who: Who,
    form: Result<Form<NodeForm>, FormRejection>,
) -> Response {
    or_page(async {
        let Form(form) = form.map_err(|error| Problem::invalid("The form is not complete.").because(error))?;
        live::remove(&state, &who, form.node).await?;
        Ok(Redirect::to("/live").into_response())
    })
    .await
}

/// The end of a run. Sent only by the page that says what goes with it.
pub async fn delete_run(State(state): State<AppState>, who: Who, path: Result<ApiPath<String>, Problem>) -> Response {
    or_page(async {
        let ApiPath(id) = path?;
        let title = state.service.store.run(&id).await?.run.title;
        state.service.store.delete_run(&id).await?;
        state.record(&who.principal, who.from, Action::RunDeleted, &format!("{id} {title}")).await;
        Ok(Redirect::to("/#runs").into_response())
    })
    .await
}

/// The form beside a checklist item.
#[derive(Debug, Deserialize)]
pub struct NoteForm {
    #[serde(default)]
    status: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    author: String,
}

/// A person's view of an item. The name is remembered, so that it is written once.
pub async fn add_note(
    State(state): State<AppState>,
    who: Who,
    path: Result<ApiPath<(String, String)>, Problem>,
    form: Result<Form<NoteForm>, FormRejection>,
) -> Response {
    or_page(async {
        let ApiPath((id, item)) = path?;
        let item = Item::from_slug(&item).ok_or_else(Problem::not_found)?;
        let Form(NoteForm { status, note, author }) =
            form.map_err(|error| Problem::invalid("The form is not complete.").because(error))?;
        let signed_in = author_of(&who.principal);
        let by = signed_in.clone().unwrap_or_else(|| author.clone());
        let new = NewNote { status: Some(status), note: Some(note), author: Some(by) };
        state.service.add_note(&id, item, new).await?;
        if signed_in.is_some() {
            return Ok(Redirect::to(&item_url(&id, item)).into_response());
        }
        let cookie = name_cookie(author.trim(), state.front.is_https()).map_err(Problem::internal)?;
        Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&item_url(&id, item))).into_response())
    })
    .await
}

/// The form that names the run after the fix.
#[derive(Debug, Deserialize)]
pub struct AfterForm {
    #[serde(default)]
    run: String,
    /// An address that was pasted; counts before the choice.
    #[serde(default)]
    address: String,
}

/// The run after the fix, chosen among those that exist.
pub async fn attach_after(
    State(state): State<AppState>,
    who: Who,
    path: Result<ApiPath<String>, Problem>,
    form: Result<Form<AfterForm>, FormRejection>,
) -> Response {
    or_page(async {
        let ApiPath(id) = path?;
        let Form(form) = form.map_err(|error| Problem::invalid("The form is not complete.").because(error))?;
        let chosen = if form.address.trim().is_empty() { &form.run } else { &form.address };
        state.service.attach_after(&id, chosen, &who.principal.sees()).await?;
        Ok(Redirect::to(&stage_url(&id, Stage::Verify)).into_response())
    })
    .await
}

/// The run after the fix, from files.
pub async fn create_after(
    State(state): State<AppState>,
    path: Result<ApiPath<String>, Problem>,
    body: Result<UploadBody, Problem>,
) -> Response {
    or_page(async {
        let ApiPath(id) = path?;
        state.service.store.run(&id).await?;
        let upload = body?.receive(&state).await?;
        let run = id.clone();
        to_the_end(async move { state.service.create_after(&run, upload).await }).await?;
        Ok(Redirect::to(&stage_url(&id, Stage::Verify)).into_response())
    })
    .await
}

/// Remembers the name under which a visitor writes, for a year. In hexadecimal, because cookies take plain signs only.
fn name_cookie(name: &str, is_https: bool) -> Result<HeaderValue, InvalidHeaderValue> {
    let secure = if is_https { "; Secure" } else { "" };
    let value = crate::hex(name.as_bytes());
    HeaderValue::from_str(&format!(
        "{NAME_COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/runs; Max-Age=31536000{secure}"
    ))
}

/// The name under which this visitor wrote last, from the cookies of the request.
pub fn visitor_name(cookies: &str) -> Option<String> {
    let value = cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(NAME_COOKIE)?.strip_prefix('='))?;
    let digits: Vec<u8> =
        value.chars().map(|sign| sign.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let bytes = digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty() && name.chars().count() <= 80)
}

async fn or_page(answer: impl Future<Output = Result<Response>>) -> Response {
    answer.await.unwrap_or_else(Problem::into_page)
}

/// The cookie that carries a new link to the next page; with `max_age_seconds` 0, its end.
pub fn new_share_cookie(
    value: &str,
    path: &str,
    max_age_seconds: u32,
    is_https: bool,
) -> Result<HeaderValue, InvalidHeaderValue> {
    let secure = if is_https { "; Secure" } else { "" };
    HeaderValue::from_str(&format!(
        "{NEW_SHARE_COOKIE}={value}; HttpOnly; SameSite=Strict; Path={path}; Max-Age={max_age_seconds}{secure}"
    ))
}

/// Id and token of the link that this visitor has just made, from the cookies of the request.
pub fn new_share(cookies: &str) -> Option<(String, String)> {
    let value =
        cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(NEW_SHARE_COOKIE)?.strip_prefix('='))?;
    let (id, token) = value.split_once('.')?;
    let is_plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    (is_plain(id) && is_plain(token)).then(|| (id.to_owned(), token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_way_through_a_cookie() {
        for name in ["Ada", "张伟; Path=/", "a b=c"] {
            let cookie = name_cookie(name, true).unwrap().to_str().unwrap().to_owned();
            assert!(cookie.ends_with("; Secure") && cookie.contains("HttpOnly"));
            let pair = cookie.split(';').next().unwrap();
            assert_eq!(visitor_name(&format!("x=y; {pair}")).as_deref(), Some(name));
        }
        for cookies in ["", "rankscope_name=", "rankscope_name=zz", "rankscope_name=ff"] {
            assert_eq!(visitor_name(cookies), None, "{cookies}");
        }
    }

    #[test]
    fn the_new_link_is_read_from_its_cookie_only() {
        let found = new_share("a=b; rankscope_new_share=0198-x.Tok_en-1; c=d");
        assert_eq!(found, Some(("0198-x".to_owned(), "Tok_en-1".to_owned())));
        for cookies in ["", "rankscope_new_share=", "rankscope_new_share=a.", "rankscope_new_share=a.<b>", "x=a.b"] {
            assert_eq!(new_share(cookies), None, "{cookies}");
        }
    }
}
