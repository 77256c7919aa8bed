//! What people say of an item: their status now, the history of their notes, and the form that adds to it. It stands
//! beside the machine's view.

use super::Wizard;
use crate::accounts::{Visitor, may_edit};
use crate::icons;
use crate::standing::Standing;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{ItemNote, OwnStatus};

/// The status that a person gave, beside the machine's.
pub fn badge(standing: &Standing<'_>) -> Option<AnyView> {
    let note = standing.own()?;
    let status = note.status?;
    let who = words::shown_line(&note.author);
    Some(
        view! { <span class="badge is-own">{icons::own(status)}{format!("{who}: {}", status.title())}</span> }
            .into_any(),
    )
}

/// State, form and history.
pub fn own(standing: &Standing<'_>, wizard: &Wizard<'_>) -> AnyView {
    let now = standing.own().and_then(|note| Some((note, note.status?)));
    let state = match now {
        Some((note, status)) => {
            let who = words::shown_line(&note.author);
            view! {
                <p class="own-now">
                    {icons::own(status)}
                    <span>
                        <strong>{status.title()}</strong>
                        {format!(", says {who}, ")}
                        <time datetime=words::time_iso(note.created_at)>{words::time(note.created_at)}</time>
                        <span class="dim">{format!(". The files say: {}.", standing.word())}</span>
                    </span>
                </p>
            }
            .into_any()
        }
        None => view! { <p class="dim">"Nobody has said anything yet. A note stays beside what the files say."</p> }
            .into_any(),
    };
    let history = (!standing.notes.is_empty()).then(|| {
        let lines = standing.notes.iter().rev().map(|note| entry(note)).collect_view();
        view! { <ol class="notes">{lines}</ol> }
    });
    let add = may_edit().then(|| {
        view! {
            <details class="exact add-note">
                <summary>{if standing.notes.is_empty() { "Say where it stands" } else { "Add to it" }}</summary>
                {form(standing, wizard, now.map(|(_, status)| status))}
            </details>
        }
    });
    view! {
        <div class="own">
            <h3>"What people say"</h3>
            {state}
            {history}
            {add}
        </div>
    }
    .into_any()
}

fn entry(note: &ItemNote) -> AnyView {
    let status =
        note.status.map(|status| view! { <span class="note-status">{icons::own(status)}{status.title()}</span> });
    let text = (!note.note.is_empty()).then(|| view! { <p class="note-text">{words::shown(&note.note)}</p> });
    view! {
        <li>
            <p class="note-head">
                <strong><bdi>{words::shown_line(&note.author)}</bdi></strong>
                {status}
                <time class="dim" datetime=words::time_iso(note.created_at)>{words::time(note.created_at)}</time>
            </p>
            {text}
        </li>
    }
    .into_any()
}

fn form(standing: &Standing<'_>, wizard: &Wizard<'_>, now: Option<OwnStatus>) -> AnyView {
    let item = standing.item();
    let slug = item.slug();
    let options = OwnStatus::ALL
        .iter()
        .map(|&status| view! { <option value=status.slug() selected={now == Some(status)}>{status.title()}</option> })
        .collect_view();
    let (status_id, note_id, name_id) = (format!("{slug}-status"), format!("{slug}-note"), format!("{slug}-name"));
    // Whoever has signed in need not say who it is.
    let author = use_context::<Visitor>().is_none_or(|visitor| visitor.name.is_none()).then(|| {
        view! {
            <div class="field">
                <label for=name_id.clone()>"Your name"</label>
                <input id=name_id.clone() type="text" name="author" maxlength="80" autocomplete="name" value=wizard.visitor_name.clone().unwrap_or_default()/>
            </div>
        }
    });
    view! {
        <form class="note-form" method="post" action=format!("/runs/{}/checklist/{slug}/notes", wizard.report.run.id)>
            <div class="field">
                <label for=status_id.clone()>"Status"</label>
                <select id=status_id name="status">
                    <option value="" selected={now.is_none()}>"a note only"</option>
                    {options}
                </select>
            </div>
            {author}
            <div class="field wide">
                <label for=note_id.clone()>"Note " <span class="optional">"optional"</span></label>
                <textarea id=note_id name="note" rows="2" maxlength="4000" placeholder="What was found, changed or decided"></textarea>
            </div>
            <button type="submit" class="button">"Save"</button>
        </form>
    }
    .into_any()
}
