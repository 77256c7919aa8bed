//! What its owner can do with a run as a whole: another title, or its end. Plain forms.

use crate::words;
use leptos::prelude::*;
use rankscope_model::Report;

/// The card below the exports.
pub fn manage(report: &Report) -> AnyView {
    let run = &report.run;
    view! {
        <section class="card manage" aria-labelledby="manage-title">
            <h2 id="manage-title">"This run"</h2>
            <form method="post" action=format!("/runs/{}/title", run.id) class="share-form">
                <label for="run-title">"Title"</label>
                <input id="run-title" type="text" name="title" value=words::shown_line(&run.title) required maxlength="200"/>
                <button type="submit" class="button">"Rename"</button>
            </form>
            <p><a href=format!("/runs/{}/delete", run.id)>"Delete this run"</a></p>
        </section>
    }
    .into_any()
}
