//! The files of a run: what each was taken for, what it speaks of, and the lines that the report quotes.

use super::places::{Places, file_anchor};
use crate::icons;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{ArtifactInfo, ArtifactKind, Bytes, Report};

/// Every file, in the order of upload. `raw`: the visitor may download it as it was.
pub fn files(report: &Report, raw: bool, places: &Places<'_>) -> AnyView {
    let artifacts = &report.diagnosis.artifacts;
    let lines = artifacts
        .iter()
        .enumerate()
        .map(|(n, file)| {
            let address = raw.then(|| format!("/api/v1/runs/{}/artifacts/{n}", report.run.id));
            line(n, file, address, places)
        })
        .collect_view();
    view! {
        <section class="card files" id="files" aria-labelledby="files-title">
            <h2 id="files-title">"Files" <span>"what each was taken for, and the lines quoted above"</span></h2>
            <ul>{lines}</ul>
        </section>
    }
    .into_any()
}

fn line(n: usize, file: &ArtifactInfo, raw: Option<String>, places: &Places<'_>) -> AnyView {
    let name = words::shown_line(&file.name);
    let speaks_of = words::speaks_of(file);
    let unread = file.kind == ArtifactKind::Unreadable;
    let warnings = file
        .warnings
        .iter()
        .map(|warning| view! { <p class="warning">{icons::warning()}<span>{words::shown(warning)}</span></p> })
        .collect_view();
    let quotes = places
        .quotes(n)
        .into_iter()
        .map(|quote| {
            let href = format!("#{}", quote.id);
            view! {
                <li id=quote.id>
                    <a class="place" href=href>{quote.place}</a>
                    {if quote.text.is_empty() {
                        view! { <span class="dim">"not quoted"</span> }.into_any()
                    } else {
                        view! { <code>{words::shown(quote.text.trim())}</code> }.into_any()
                    }}
                </li>
            }
        })
        .collect_view();
    let quoted = !places.quotes(n).is_empty();
    view! {
        <li class="file" id=file_anchor(n)>
            <div class="file-head">
                <strong class="file-name"><bdi>{name.clone()}</bdi></strong>
                <span class="kind" class:warn=unread>{file.kind.title()}</span>
                {(!speaks_of.is_empty()).then(|| view! { <span class="dim">{speaks_of}</span> })}
                <span class="file-size">{Bytes(file.bytes).to_string()}</span>
                {raw.map(|href| view! { <a href=href download=name.clone() aria-label=format!("Download {name}")>"raw"</a> })}
            </div>
            {warnings}
            {quoted.then(|| view! { <ol class="quotes">{quotes}</ol> })}
        </li>
    }
    .into_any()
}
