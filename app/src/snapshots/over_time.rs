//! One rank's live memory over its recording, stacked by line of code, and the choice of the rank.

use super::pictures::{Picture, links};
use super::subjects::{MomentOf, Subject, Subjects, Wanted, in_common};
use crate::report::broad_figure;
use crate::{icons, words};
use leptos::prelude::*;
use rankscope_charts::{BandsFigure, REST_NAME, Theme, band_look, bands_height, rest_look, rest_most, svg};
use rankscope_model::{Frame, RecordedFailure, SiteBands};

/// A width at which the bands are drawn where they can be.
const DRAWN_WIDTH: u32 = 720;
/// More ranks than this are chosen from a list.
const LINKED: usize = 16;

/// The section.
pub fn section(run: &str, found: &Subjects<'_>, wanted: &Wanted) -> AnyView {
    let picked = found.picked();
    let drawn = picked.device.bands.as_ref().map(|bands| chart(picked, bands, &only_here(found, bands)));
    let nothing = picked.device.events == 0;
    let truncated = picked.device.window_truncated.then(|| {
        view! { <p class="note dim">"Events before the first one were overwritten: a peak before it is not seen. Record with a larger "<code>"max_entries"</code>"."</p> }
    });
    let failed = picked.device.last_failure().map(|RecordedFailure { event, tried, free }| {
        let (event, events) = (words::grouped(event.saturating_add(1)), words::grouped(picked.device.events));
        let told = match (tried, free) {
            (Some(tried), Some(free)) => format!(": {tried} were asked for, {free} were free"),
            (Some(tried), None) => format!(": {tried} were asked for"),
            (None, Some(free)) => format!(": {free} were free"),
            (None, None) => String::new(),
        };
        let text = format!("Out of memory at event {event} of {events}{told}.");
        view! { <p class="note">{icons::warning()}" "{text}</p> }
    });
    view! {
        <section class="card" id="over-time" aria-labelledby="over-time-title">
            <h2 id="over-time-title">{picked.label.clone()} <span>"live memory by line of code"</span></h2>
            {drawn.is_some().then(|| links(run, picked, Picture::OverTime))}
            {choice(run, found, wanted)}
            {drawn}
            {nothing.then(|| view! { <p class="note dim">"This snapshot has no recorded events, so there is no course over time. Call "<code>"torch.cuda.memory._record_memory_history()"</code>" before the steps."</p> })}
            {failed}
            {truncated}
        </section>
    }
    .into_any()
}

/// Lines that hold memory on this rank and on no other one.
pub fn only_here(found: &Subjects<'_>, bands: &SiteBands) -> Vec<bool> {
    let others: Vec<&SiteBands> = found
        .all
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != found.picked)
        .filter_map(|(_, subject)| subject.device.bands.as_ref())
        .collect();
    if others.is_empty() {
        return Vec::new();
    }
    bands
        .sites
        .iter()
        .map(|site| {
            let most = site.bytes.iter().max().copied().unwrap_or(0);
            site.frame.is_some()
                && others.iter().all(|other| {
                    let listed = other.sites.iter().any(|theirs| theirs.frame == site.frame);
                    // A line that is too small for the other's list may still be there.
                    let floor = other.sites.last().and_then(|last| last.bytes.iter().max()).copied().unwrap_or(0);
                    !listed && most > floor
                })
        })
        .collect()
}

fn choice(run: &str, found: &Subjects<'_>, wanted: &Wanted) -> AnyView {
    if found.all.len() < 2 {
        return ().into_any();
    }
    let moment = in_common(found.moment);
    let when = if moment == MomentOf::Peak { "at its peak" } else { "at the end" };
    let size = |subject: &Subject<'_>| subject.bytes(moment).map(|bytes| bytes.to_string()).unwrap_or_default();
    if found.all.len() <= LINKED {
        let links = found.all.iter().enumerate().map(|(at, subject)| {
            let current = (at == found.picked).then_some("true");
            let address = wanted.address(run, &[("rank", subject.key.as_str())]);
            view! { <a href=address aria-current=current>{subject.label.clone()} <span>{size(subject)}</span></a> }
        });
        let what = if moment == MomentOf::Peak {
            "Requested bytes live at each rank's own peak:"
        } else {
            "Allocated bytes when each snapshot was taken:"
        };
        return view! {
            <p class="choice-what">{what}</p>
            <nav class="choice" aria-label="Rank">{links.collect_view()}</nav>
        }
        .into_any();
    }
    let options = found
        .all
        .iter()
        .enumerate()
        .map(|(at, subject)| {
            let words = format!("{}, {} {when}", subject.label, size(subject));
            view! { <option value=subject.key.clone() selected={at == found.picked}>{words}</option> }
        })
        .collect_view();
    view! {
        <form class="search" method="get" action=format!("/runs/{run}/snapshots")>
            <label for="rank">"Rank"</label>
            <select id="rank" name="rank">{options}</select>
            <button class="button" type="submit">"Show"</button>
        </form>
    }
    .into_any()
}

/// The drawing in words.
pub fn describe(subject: &Subject<'_>) -> String {
    let most = subject.bytes(MomentOf::Peak).map(|peak| format!(", at most {peak}")).unwrap_or_default();
    format!(
        "Live requested bytes of {} over its recording by line of code{most}; the lines are listed below.",
        subject.label
    )
}

fn chart(subject: &Subject<'_>, bands: &SiteBands, accused: &[bool]) -> AnyView {
    let peak = subject.device.peak.as_ref().and_then(|peak| peak.x);
    let figure = BandsFigure { bands, accused, peak, names: &[] };
    let label = describe(subject);
    let key = bands
        .sites
        .iter()
        .enumerate()
        .map(|(position, site)| {
            let accused = accused.get(position).copied().unwrap_or(false);
            let (variable, alpha) = band_look(position, accused);
            let most = site.bytes.iter().max().copied().unwrap_or(0);
            let style = format!("background:var({variable});opacity:{alpha:.2}");
            view! {
                <li class:hot=accused>
                    <i class="swatch" style=style></i>
                    <span>{line(site.frame.as_ref())}{accused.then_some(" \u{25c6} on this rank only")}</span>
                    <span class="num">{rankscope_model::Bytes(most).to_string()}</span>
                </li>
            }
        })
        .collect_view();
    let is_drawn = bands_height(figure, DRAWN_WIDTH) > 0;
    let note = if is_drawn {
        "The numbers are those in the drawing: in a band, or above it where the band is too thin. Sizes are requested bytes, the most that each line held at one moment."
    } else {
        "Sizes are requested bytes, the most that each line held at one moment."
    };
    let rest = rest_most(bands);
    let others = (rest > 0).then(|| {
        let (variable, alpha) = rest_look();
        let style = format!("background:var({variable});opacity:{alpha:.2}");
        view! {
            <li class="rest">
                <i class="swatch free" style=style></i>
                <span>{REST_NAME}</span>
                <span class="num">{rankscope_model::Bytes(rest).to_string()}</span>
            </li>
        }
    });
    view! {
            {broad_figure(|width| svg::bands(figure, &label, width, Theme::Page))}
            <ol class="band-key" class:bare=!is_drawn>{key}{others}</ol>
    <p class="dim">{note}</p>
        }
    .into_any()
}

/// `train.py:56 forward`, the file cut to its name.
pub fn line(frame: Option<&Frame>) -> String {
    match frame {
        None => "no stack recorded".to_owned(),
        Some(frame) if frame.line == 0 => words::shown_line(&frame.function),
        Some(frame) => {
            let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
            words::shown_line(&format!("{file}:{} {}", frame.line, frame.function))
        }
    }
}
