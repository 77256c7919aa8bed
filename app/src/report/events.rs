//! What happened to cards, drivers and ranks while the job was watched: time, words and the line where it stands.

use super::Access;
use super::places::{Places, file_anchor};
use crate::icons;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{LiveStateKind, Report, RunEvent, Severity};

/// Events that are shown; of more the newest, unless everything is asked for.
const SHOWN: usize = 12;

/// The events, in order of time. Nothing for a run in which nothing happened.
pub fn events(report: &Report, access: &Access, places: &Places<'_>) -> Option<AnyView> {
    let all = &report.diagnosis.events;
    let left_out = if access.whole() { 0 } else { all.len().saturating_sub(SHOWN) };
    (!all.is_empty()).then(|| {
        let lines = all.iter().skip(left_out).map(|event| line(event, report, places)).collect_view();
        view! {
            <section class="card run-events" id="events" aria-labelledby="events-title">
                <h2 id="events-title">"What happened" <span>"to GPUs, the driver and ranks while the job was watched"</span></h2>
                <ol>{lines}</ol>
                {access.cut(left_out, "earlier event")}
            </section>
        }
        .into_any()
    })
}

fn line(event: &RunEvent, report: &Report, places: &Places<'_>) -> AnyView {
    let is_well = matches!(event.kind, LiveStateKind::Ok | LiveStateKind::DriverRestarted | LiveStateKind::MigChanged);
    let icon = icons::severity(if is_well { Severity::Info } else { Severity::Warning });
    let text = words::shown_line(&event.text);
    let text = event.repeated().map(|repeated| format!("{text} ({repeated})")).unwrap_or(text);
    let name = &event.evidence.artifact;
    let place = match event.evidence.line {
        Some(line) => format!("{}, line {line}", words::shown_line(name)),
        None => words::shown_line(name),
    };
    let file = report.diagnosis.artifacts.iter().position(|file| file.name == *name).filter(|file| places.shows(*file));
    let place = match file {
        Some(file) => view! { <a href=format!("#{}", file_anchor(file))>{place}</a> }.into_any(),
        None => place.into_any(),
    };
    view! {
        <li>
            {icon}
            <time datetime=words::time_iso(event.at)>{words::clock(event.at)}</time>
            <span>{text}" "<span class="dim">{place}</span></span>
        </li>
    }
    .into_any()
}
