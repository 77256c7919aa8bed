//! What its owner can do with a run as a whole: another title, or its end. Plain forms.

use crate::accounts::{may_delete, may_edit};
use crate::words;
use leptos::prelude::*;
use rankscope_model::Report;

/// The card below the exports; none for who may do neither.
pub fn manage(report: &Report) -> Option<AnyView> {
    let run = &report.run;
    let rename = may_edit().then(|| {
        view! {
            <form method="post" action=format!("/runs/{}/title", run.id) class="share-form">
                <label for="run-title">"Title"</label>
                <input id="run-title" type="text" name="title" value=words::shown_line(&run.title) required maxlength="200"/>
                <button type="submit" class="button">"Rename"</button>
            </form>
        }
    });
    let read_again = may_edit().then(|| {
        view! {
            <form method="post" action=format!("/runs/{}/read-again", run.id)>
                <button type="submit" class="button">"Read the files again"</button>
                <p class="dim">"With the readers that this server has now, for instance after an upgrade. It makes a new version of the report; those before it stay."</p>
            </form>
        }
    });
    let delete =
        may_delete().then(|| view! { <p><a href=format!("/runs/{}/delete", run.id)>"Delete this run"</a></p> });
    if rename.is_none() && delete.is_none() {
        return None;
    }
    Some(
        view! {
            <section class="card manage" aria-labelledby="manage-title">
                <h2 id="manage-title">"This run"</h2>
                {rename}
                {read_again}
                {delete}
            </section>
        }
        .into_any(),
    )
}
