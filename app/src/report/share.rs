//! Handing the report out: links that expire and can be revoked, and files.

use super::Owned;
use super::code::copy_button;
use crate::accounts::may_edit;
use crate::islands::ShareBox;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Report, ShareInfo, UnixMicros};

/// Choices of expiry: seconds (empty for never) and words.
const EXPIRIES: [(&str, &str); 4] =
    [("86400", "after 1 day"), ("604800", "after 7 days"), ("2592000", "after 30 days"), ("", "never")];
/// The choice made for whoever does not choose.
const DEFAULT_EXPIRY: &str = "604800";

/// The share box.
pub fn share(report: &Report, owned: &Owned) -> AnyView {
    let (action, api) = (format!("/runs/{}/shares", report.run.id), format!("/api/v1/runs/{}/shares", report.run.id));
    let options = EXPIRIES
        .iter()
        .map(|&(seconds, words)| view! { <option value=seconds selected={seconds == DEFAULT_EXPIRY}>{words}</option> })
        .collect_view();
    let new_link = owned.new_share.as_ref().map(|(_, token)| new_link(&format!("{}/r/{token}", owned.base_url)));
    let lines = owned.shares.iter().map(|share| share_line(share, report)).collect_view();
    let form = may_edit().then(|| {
        view! {
            <form method="post" action=action class="share-form" data-api=api>
                <label for="expires">"Link ends"</label>
                <select id="expires" name="expires_in">{options}</select>
                <button type="submit" class="button primary">"Create link"</button>
                <details class="options">
                    <summary>"Password, masking, files"</summary>
                    <label for="share-password">"Password "<span class="optional">"optional, at least 6 characters"</span></label>
                    <input id="share-password" type="password" name="password" autocomplete="new-password" minlength="6" maxlength="256"/>
                    <label class="check"><input type="checkbox" name="masked" value="1"/>"Mask host names, user names and paths"</label>
                    <label class="check"><input type="checkbox" name="raw_files" value="1"/>"Include the files as uploaded"</label>
                </details>
            </form>
        }
    });
    view! {
        <section class="card share" id="share" aria-labelledby="share-title">
            <h2 id="share-title">"Share" <span>"read-only, by link"</span></h2>
            <ShareBox>
                {form}
                <p class="dim">"Whoever has the link sees this report as it is now. Files stay here unless they are included; quoted lines are part of it."</p>
                <div class="new-links">{new_link}</div>
                <ul class="shares">{lines}</ul>
            </ShareBox>
        </section>
    }
    .into_any()
}

/// The only time a link is shown: only its hash is kept.
fn new_link(address: &str) -> AnyView {
    view! {
        <div class="new-link">
            <label for="new-link">"New link, shown only now"</label>
            <div class="row">
                <input id="new-link" type="text" readonly value=address.to_owned()/>
                {copy_button(address, "Copy link")}
            </div>
        </div>
    }
    .into_any()
}

fn share_line(share: &ShareInfo, report: &Report) -> AnyView {
    // "Now" is the newest moment that the page knows; the server decides what a visitor sees.
    let now = now();
    let ended = share.expires_at.is_some_and(|at| at <= now);
    let state = match (share.revoked_at, share.expires_at) {
        (Some(at), _) => format!("revoked {}", words::time(at)),
        (None, Some(at)) if ended => format!("ended {}", words::time(at)),
        (None, Some(at)) => format!("ends {}", words::time(at)),
        (None, None) => "never ends".to_owned(),
    };
    let live = share.revoked_at.is_none() && !ended;
    let revoke = (live && may_edit()).then(|| {
        view! {
            <form method="post" class="revoke" action=format!("/runs/{}/shares/{}/revoke", report.run.id, share.id) data-api=format!("/api/v1/shares/{}", share.id)>
                <button type="submit" class="button small">"Revoke"</button>
            </form>
        }
    });
    view! {
        <li class:over=!live>
            <span>
                <span class="share-state">{if live { "open" } else { "closed" }}</span>
                {format!(" diagnosis {}, {state}", share.version)}
                <span class="dim">{format!("made {}, {}", words::time(share.created_at), seen(share))}</span>
                {extras(share)}
            </span>
            {revoke}
        </li>
    }
    .into_any()
}

fn seen(share: &ShareInfo) -> String {
    share.last_seen_at.map_or_else(|| "never opened".to_owned(), |at| format!("last opened {}", words::time(at)))
}

/// What was decided when the link was made.
fn extras(share: &ShareInfo) -> Option<AnyView> {
    let words: Vec<&str> = [
        share.password.then_some("asks for a password"),
        share.masked.then_some("names masked"),
        share.raw_files.then_some("files included"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!words.is_empty()).then(|| view! { <span class="dim">{words.join(", ")}</span> }.into_any())
}

fn now() -> UnixMicros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The report as files.
pub fn exports(report: &Report) -> AnyView {
    let (run, version) = (&report.run.id, report.version);
    let kinds = [
        ("html", "HTML", "one self-contained file"),
        ("md", "Markdown", "for an issue or a chat"),
        ("json", "JSON", "for programs"),
    ];
    let links = kinds
        .iter()
        .map(|&(ending, name, what)| {
            view! {
                <li>
                    <a href=format!("/api/v1/runs/{run}/report.{ending}?version={version}") download=format!("rankscope-{run}.{ending}")>{name}</a>
                    <span class="dim">{what}</span>
                </li>
            }
        })
        .collect_view();
    view! {
        <section class="card exports" aria-labelledby="exports-title">
            <h2 id="exports-title">"Take it with you"</h2>
            <ul>{links}</ul>
            <p class="dim">"PDF: print this page. On paper everything that is folded here stands open."</p>
        </section>
    }
    .into_any()
}
