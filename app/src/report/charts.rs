//! The charts of a report. Each is drawn for several widths; the style sheet shows the widest that fits, so that text
//! never gets smaller than it was drawn.

use super::moment::is_of_snapshots;
use super::places::Places;
use super::{Access, Shown};
use crate::islands::TimelineLens;
use crate::words;
use leptos::prelude::*;
use rankscope_charts::{
    ChartError, Pattern, Theme, has_heatmap, heatmap_is_even, heatmap_pattern, heatmap_rows, part_pattern, part_token,
    peaks_unit, svg, timeline_unit,
};
use rankscope_model::{
    ArtifactKind, Bytes, Composition, PartKind, Peaks, Quantity, Report, Scatter, ScatterCloud, SeriesAxis, Timeline,
    TimelineLine,
};
use std::borrow::Cow;

/// Widths of the drawings in CSS pixels, each with its class in the style sheet: the narrowest phones, phones, one
/// column, two columns.
const WIDTHS: [(u32, &str); 4] = [(256, "w256"), (320, "w320"), (480, "w480"), (720, "w720")];
/// Beside those, for figures that have the whole page.
const BROAD: (u32, &str) = (1040, "w1040");

/// Timeline, heatmap, peaks, scatter and composition, as far as the evidence has them.
pub fn charts(report: &Report, access: &Access, places: &Places<'_>) -> AnyView {
    let figures = &report.figures;
    let root = access.data_root(report);
    let files = Files { root: root.clone(), version: matches!(access, Access::Owner(_)).then_some(report.version) };
    let heatmap = figures.timeline.as_ref().filter(|timeline| has_heatmap(timeline));
    view! {
        {match &figures.timeline {
            Some(timeline) => Some(timeline_card(timeline, root, report.version, access, &files)),
            None => place_of_timeline(report, access),
        }}
        {heatmap.map(|timeline| heatmap_card(timeline, access, &files))}
        {figures.peaks.as_ref().map(|peaks| peaks_card(peaks, is_of_snapshots(report), access, &files))}
        {figures.scatter.as_ref().map(|scatter| scatter_card(scatter, access, &files))}
        {snapshots_card(report, access)}
        {figures.composition.iter().any(|device| device.used().0 > 0).then(|| composition_card(&figures.composition, places, access, &files))}
    }
    .into_any()
}

/// The timeline of a run that has just begun comes later: its place, in which the lens waits for it. See
/// `islands::live_run`.
fn place_of_timeline(report: &Report, access: &Access) -> Option<AnyView> {
    let Access::Owner(_) = access else { return None };
    let is_live = report.diagnosis.artifacts.iter().any(|file| file.kind == ArtifactKind::LiveRecord);
    is_live.then(|| {
        view! {
            <section class="card" id="timeline" hidden>
                <TimelineLens>""</TimelineLens>
            </section>
        }
        .into_any()
    })
}

/// Leads the owner to the comparison by call site, where there are snapshots.
fn snapshots_card(report: &Report, access: &Access) -> Option<AnyView> {
    let Access::Owner(_) = access else { return None };
    let files = report.diagnosis.artifacts.iter().filter(|file| file.kind == ArtifactKind::TorchSnapshot).count();
    (files > 0).then(|| {
        let title = format!("{} of memory", words::count(files, "snapshot"));
        view! {
            <section class="card" id="snapshots" aria-labelledby="snapshots-title">
                <h2 id="snapshots-title">{title} <span>"which line of code holds which bytes"</span></h2>
                <p><a class="button" href=format!("/runs/{}/snapshots", report.run.id)>"Compare the ranks by line of code"</a></p>
            </section>
        }
        .into_any()
    })
}

/// Where the drawings can be had as files; a report on its own offers none.
struct Files {
    root: Option<String>,
    /// For its owner; a share has only one.
    version: Option<u32>,
}

impl Files {
    /// Links to one drawing, `timeline` or another name that the server knows.
    fn links(&self, chart: &str, what: &'static str) -> Option<AnyView> {
        let root = self.root.as_ref()?;
        let link = |format: &str, name: &'static str| {
            let version = self.version.map(|version| format!("?version={version}")).unwrap_or_default();
            let address = format!("{root}/charts/{chart}.{format}{version}");
            // Without the id of the run, which visitors of a share do not know.
            let file = format!("rankscope-{chart}.{format}");
            view! { <a href=address download=file aria-label=format!("{what} as {name}")>{name}</a> }
        };
        Some(view! { <span class="chart-files">{link("svg", "SVG")}{link("png", "PNG")}</span> }.into_any())
    }
}

/// A figure in a column: the same drawing for every width.
pub fn figure(draw: impl Fn(u32) -> Result<String, ChartError>) -> AnyView {
    view! { <div class="figure">{drawings(&WIDTHS, draw)}</div> }.into_any()
}

/// A figure that may be as wide as the page.
pub fn broad_figure(draw: impl Fn(u32) -> Result<String, ChartError>) -> AnyView {
    let widths: Vec<(u32, &str)> = WIDTHS.into_iter().chain([BROAD]).collect();
    view! { <div class="figure broad">{drawings(&widths, draw)}</div> }.into_any()
}

fn drawings(widths: &[(u32, &str)], draw: impl Fn(u32) -> Result<String, ChartError>) -> AnyView {
    let drawn: Result<Vec<AnyView>, ChartError> = widths
        .iter()
        .map(|&(width, class)| {
            draw(width).map(|svg| view! { <div class=format!("drawing {class}") inner_html=svg></div> }.into_any())
        })
        .collect();
    // Where there is too little to draw, the exact values stand below all the same.
    drawn.map_or_else(|_| view! { <p class="dim">"Too little to draw."</p> }.into_any(), IntoAny::into_any)
}

/// What the island writes values as: bytes, or counts.
fn value_kind(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::BatchTokens | Quantity::BatchSamples => "count",
        _ => "bytes",
    }
}

fn timeline_card(timeline: &Timeline, root: Option<String>, version: u32, access: &Access, files: &Files) -> AnyView {
    let over = match timeline.axis {
        SeriesAxis::Step => "by step",
        SeriesAxis::UnixMicros => "over time",
        SeriesAxis::SinceStart => "over the time since each recording began (they were not made at the same time)",
        SeriesAxis::Index => "in the order of the events",
    };
    let axis = match timeline.axis {
        SeriesAxis::Step => "step",
        SeriesAxis::UnixMicros => "time",
        SeriesAxis::SinceStart => "since start",
        SeriesAxis::Index => "event",
    };
    let drawn = drawable(timeline);
    let drawing = drawings(&WIDTHS, |width| svg::timeline(&drawn, width, Theme::Page));
    let accused: Vec<String> =
        timeline.lines.iter().filter(|line| line.accused).map(|line| line.subject.to_string()).collect();
    let (kind, accused) = (value_kind(timeline.quantity), accused.join("|"));
    let chart = match root {
        // The island reads where to ask from this element; see `islands::timeline`.
        Some(root) => view! {
            <TimelineLens>
                <div
                    class="figure"
                    data-root=root
                    data-version=version.to_string()
                    data-axis=axis
                    data-unit=kind
                    data-accused=accused
                >
                    {drawing}
                </div>
            </TimelineLens>
        }
        .into_any(),
        None => view! { <div class="figure">{drawing}</div> }.into_any(),
    };
    view! {
        <section class="card" id="timeline" aria-labelledby="timeline-title">
            <h2 id="timeline-title">
                {per(timeline.lines.iter().all(|line| line.subject.rank().is_some()), "Memory per")}
                <span>{format!("{}, {} {over}", timeline.quantity.title(), timeline_unit(timeline))}</span>
            </h2>
            {files.links("timeline", "Memory over time")}
            {chart}
            {timeline_table(timeline, access)}
        </section>
    }
    .into_any()
}

/// Marks may quote a log: their text is shown like any foreign text. Copies only where that changes something.
fn drawable(timeline: &Timeline) -> Cow<'_, Timeline> {
    if timeline.marks.iter().all(|mark| words::shown_line(&mark.text) == mark.text) {
        return Cow::Borrowed(timeline);
    }
    let mut timeline = timeline.clone();
    for mark in &mut timeline.marks {
        mark.text = words::shown_line(&mark.text);
    }
    Cow::Owned(timeline)
}

fn per(ranks: bool, start: &str) -> String {
    format!("{start} {}", if ranks { "rank" } else { "GPU" })
}

fn timeline_table(timeline: &Timeline, access: &Access) -> AnyView {
    let highest = |line: &TimelineLine| line.y.iter().max().copied().unwrap_or(0);
    let (lines, left_out) = telling(&timeline.lines, access.whole(), |line| line.accused, highest);
    let rows = lines
        .into_iter()
        .map(|line| {
            let (first, peak, last) = (line.y.first(), line.y.iter().max(), line.y.last());
            let cell = |n: Option<&u64>| n.map(|n| words::value(timeline.quantity, *n)).unwrap_or_default();
            view! {
                <tr class:hot=line.accused>
                    <th scope="row">{line.subject.to_string()}{line.accused.then_some(mark())}</th>
                    <td>{cell(first)}</td>
                    <td>{cell(peak)}</td>
                    <td>{cell(last)}</td>
                    <td>{words::grouped(line.y.len() as u64)}</td>
                </tr>
            }
        })
        .collect_view();
    table(
        "First, highest and last values",
        view! { <th scope="col">"subject"</th><th scope="col">"first"</th><th scope="col">"highest"</th><th scope="col">"last"</th><th scope="col">"points"</th> }.into_any(),
        rows.into_any(),
        access.cut(left_out, "row"),
    )
}

/// Ranks against steps: its sentence stands above it, because it is what a glance at the picture says.
fn heatmap_card(timeline: &Timeline, access: &Access, files: &Files) -> AnyView {
    let ranks = timeline.lines.iter().all(|line| line.subject.rank().is_some());
    let over = match timeline.axis {
        SeriesAxis::Step => "step",
        SeriesAxis::UnixMicros => "time",
        SeriesAxis::SinceStart => "time since its start",
        SeriesAxis::Index => "event",
    };
    let pattern = heatmap_pattern(timeline);
    // An even grid shows nothing that the sentence does not say.
    let picture = (!heatmap_is_even(timeline)).then(|| figure(|width| svg::heatmap(timeline, width, Theme::Page)));
    let links = picture.is_some().then(|| files.links("heatmap", "Ranks by moment"));
    let exact = picture.is_some().then(|| distances(timeline, access));
    let title = format!("{} by {over}", if ranks { "Rank" } else { "GPU" });
    view! {
        <section class="card" id="heatmap" aria-labelledby="heatmap-title">
            <h2 id="heatmap-title">{title} <span>"the same one always, in turns, or once?"</span></h2>
            {links}
            <p class="pattern">{words::sentence(&pattern)}</p>
            {picture}
            {exact}
        </section>
    }
    .into_any()
}

/// How far each rank is from the median, and how often.
fn distances(timeline: &Timeline, access: &Access) -> AnyView {
    let all = heatmap_rows(timeline);
    let (rows, left_out) = telling(&all, access.whole(), |row| row.accused, |row| row.above.max(row.below));
    let rows = rows
        .into_iter()
        .map(|row| {
            view! {
                <tr class:hot=row.accused>
                    <th scope="row">{row.subject.to_string()}{row.accused.then_some(mark())}</th>
                    <td>{words::grouped(row.far_above as u64)}</td>
                    <td>{words::value(timeline.quantity, row.above)}</td>
                    <td>{words::value(timeline.quantity, row.below)}</td>
                </tr>
            }
        })
        .collect_view();
    table(
        "Distance of each rank",
        view! { <th scope="col">"subject"</th><th scope="col">"moments far above"</th><th scope="col">"furthest above"</th><th scope="col">"furthest below"</th> }.into_any(),
        rows.into_any(),
        access.cut(left_out, "row"),
    )
}

fn scatter_card(scatter: &Scatter, access: &Access, files: &Files) -> AnyView {
    let what = if scatter.input == Quantity::BatchSamples { "samples" } else { "tokens" };
    let (mark_head, memory) = (format!("most {what}"), scatter.quantity);
    let highest = |cloud: &ScatterCloud| cloud.y.iter().max().copied().unwrap_or(0);
    let (clouds, left_out) = telling(&scatter.clouds, access.whole(), |cloud| cloud.accused, highest);
    let rows = clouds
        .into_iter()
        .map(|cloud| {
            let (fewest, most) = (cloud.x.iter().min(), cloud.x.iter().max());
            let count = |n: Option<&u64>| n.map(|n| words::grouped(*n)).unwrap_or_default();
            let peak = cloud.y.iter().max().map(|n| words::value(memory, *n)).unwrap_or_default();
            view! {
                <tr class:hot=cloud.accused>
                    <th scope="row">{cloud.subject.to_string()}{cloud.accused.then_some(mark())}</th>
                    <td>{words::grouped(cloud.x.len() as u64)}</td>
                    <td>{count(fewest)}</td>
                    <td>{count(most)}</td>
                    <td>{peak}</td>
                </tr>
            }
        })
        .collect_view();
    let fit = scatter.fit.map(|fit| {
        let of = match fit.r {
            r if r >= 0.9 => "memory follows the input",
            r if r >= 0.7 => "memory mostly follows the input",
            r if r >= 0.4 => "the input explains part of it",
            _ => "the input does not explain it",
        };
        let slope = Bytes::from_float(fit.slope * 1000.0, 1).filter(|_| fit.r >= 0.7);
        let slope = slope.map(|bytes| format!(", {bytes} for each 1,000 {what}")).unwrap_or_default();
        view! { <p class="pattern">{words::sentence(&format!("{of}: r = {:.2}{slope}", fit.r))}</p> }
    });
    let title = format!("{} against memory", if what == "samples" { "Samples" } else { "Tokens" });
    view! {
        <section class="card" id="scatter" aria-labelledby="scatter-title">
            <h2 id="scatter-title">{title} <span>{format!("one dot for each rank and step, {}", memory.title())}</span></h2>
            {files.links("scatter", "Input against memory")}
            {fit}
            {figure(|width| svg::scatter(scatter, width, Theme::Page))}
            {table(
                "Batches of each rank",
                view! { <th scope="col">"subject"</th><th scope="col">"batches"</th><th scope="col">{format!("fewest {what}")}</th><th scope="col">{mark_head}</th><th scope="col">"highest"</th> }.into_any(),
                rows.into_any(),
                access.cut(left_out, "row"),
            )}
        </section>
    }
    .into_any()
}

fn peaks_card(peaks: &Peaks, at_the_end: bool, access: &Access, files: &Files) -> AnyView {
    let ranks = peaks.bars.iter().all(|bar| bar.subject.rank().is_some());
    let by_size = access.shown().is_some_and(|shown| shown.by_size);
    let sorted = by_size.then(|| {
        let mut sorted = peaks.clone();
        sorted.bars.sort_by_key(|bar| std::cmp::Reverse(bar.peak));
        // Neighbours by size share no node.
        sorted.per_node = None;
        sorted
    });
    let peaks = sorted.as_ref().unwrap_or(peaks);
    let (bars, left_out) = telling(&peaks.bars, access.whole(), |bar| bar.accused, |bar| bar.peak.0);
    let rows = bars
        .into_iter()
        .map(|bar| {
            let median = peaks.median.0;
            let over = if bar.peak.0 >= median {
                format!("+{}", words::value(peaks.quantity, bar.peak.0 - median))
            } else {
                format!("\u{2212}{}", words::value(peaks.quantity, median - bar.peak.0))
            };
            view! {
                <tr class:hot=bar.accused>
                    <th scope="row">{bar.subject.to_string()}{bar.accused.then_some(mark())}</th>
                    <td>{words::value(peaks.quantity, bar.peak.0)}</td>
                    <td>{over}</td>
                    <td>{words::grouped(bar.peak.0)}</td>
                </tr>
            }
        })
        .collect_view();
    // Values of one step, or of the end, are no peaks.
    let (title, value) = match &peaks.at {
        Some(at) => (format!("{} {}", per(ranks, "Each"), words::shown_line(at)), "value"),
        None if at_the_end => (format!("{} when its snapshot was taken", per(ranks, "Each")), "value"),
        None => (per(ranks, "Peak per"), "peak"),
    };
    view! {
        <section class="card" id="peaks" aria-labelledby="peaks-title">
            <h2 id="peaks-title">
                {title}
                <span>{format!("{}, {}; the line is the median", peaks.quantity.title(), peaks_unit(peaks))}</span>
            </h2>
            {files.links("imbalance", "Peaks")}
            {access.shown().filter(|_| peaks.bars.len() > 2).map(|shown| order(shown, ranks))}
            {figure(|width| svg::peaks(peaks, width, Theme::Page))}
            {table(
                "Exact values",
                view! { <th scope="col">"subject"</th><th scope="col">{value}</th><th scope="col">"from the median"</th><th scope="col">"exact"</th> }.into_any(),
                rows.into_any(),
                access.cut(left_out, "row"),
            )}
        </section>
    }
    .into_any()
}

/// In which order the peaks stand.
fn order(shown: &Shown, ranks: bool) -> AnyView {
    let choice = |by_size: bool, word: &'static str| {
        let href = format!("{}#peaks", Shown { by_size, ..shown.clone() }.query());
        let current = (shown.by_size == by_size).then_some("true");
        view! { <a href=href aria-current=current>{word}</a> }
    };
    view! {
        <nav class="choice" aria-label="Order of the peaks">
            {choice(false, if ranks { "by rank" } else { "by GPU" })}
            {choice(true, "by size")}
        </nav>
    }
    .into_any()
}

/// Parts in the order of the key, as far as any device has them.
fn kinds(composition: &[Composition]) -> Vec<PartKind> {
    let mut kinds: Vec<PartKind> =
        composition.iter().flat_map(|device| device.parts.iter().map(|part| part.kind)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Classes of the key's swatch: colour and pattern are the drawing's own.
fn swatch(kind: PartKind) -> String {
    let pattern = match part_pattern(kind) {
        Pattern::Plain => "plain",
        Pattern::Rising => "rising",
        Pattern::Falling => "falling",
        Pattern::Level => "level",
        Pattern::Upright => "upright",
        Pattern::Outlined => "outlined",
    };
    format!("swatch {} {pattern}", part_token(kind).trim_start_matches('-'))
}

/// Why only some cards are split further, where that is so.
fn unsplit(composition: &[Composition]) -> Option<String> {
    let has = |device: &Composition, kind| device.parts.iter().any(|part| part.kind == kind && part.bytes.0 > 0);
    let split: Vec<&Composition> = composition.iter().filter(|device| has(device, PartKind::Allocated)).collect();
    let whole = composition.iter().filter(|device| has(device, PartKind::OwnProcess)).count();
    let first = split.first().filter(|_| whole > 0)?;
    let who = match split.len() {
        1 => first.subject.to_string(),
        n if composition.iter().all(|device| device.subject.rank().is_some()) => words::count(n, "rank"),
        n => words::count(n, "card"),
    };
    let rest = if whole == 1 { "the other one".to_owned() } else { format!("the other {whole}") };
    Some(format!(
        "Only {who} can be split: no message or log line of the same moment says what PyTorch held on {rest}."
    ))
}

fn composition_card(composition: &[Composition], places: &Places<'_>, access: &Access, files: &Files) -> AnyView {
    let kinds = kinds(composition);
    let key = kinds.iter().map(|&kind| view! { <li><i class=swatch(kind)></i>{kind.title()}</li> }).collect_view();
    let free = composition
        .iter()
        .any(|device| device.capacity.is_some())
        .then(|| view! { <li><i class="swatch free"></i>"free"</li> });
    let heads = kinds.iter().map(|kind| view! { <th scope="col">{kind.title()}</th> }).collect_view();
    let (devices, left_out) = telling(composition, access.whole(), |d| d.accused, |d| d.used().0);
    let rows = devices
        .into_iter()
        .map(|device| {
            let cells = kinds
                .iter()
                .map(|&kind| {
                    let part = device.parts.iter().find(|part| part.kind == kind);
                    view! { <td>{part.map(|part| part.bytes.to_string())}</td> }
                })
                .collect_view();
            view! {
                <tr class:hot=device.accused>
                    <th scope="row">{device.subject.to_string()}{device.accused.then_some(mark())}</th>
                    {cells}
                    <td>{device.used().to_string()}</td>
                    <td>{device.capacity.map(|capacity| capacity.to_string())}</td>
                </tr>
            }
        })
        .collect_view();
    let mut sources: Vec<&str> = composition.iter().map(|device| device.source.as_str()).collect();
    sources.retain(|source| !source.is_empty());
    sources.dedup();
    let sources = places.sources(&sources);
    view! {
        <section class="card" id="composition" aria-labelledby="composition-title">
            <h2 id="composition-title">"What fills each card" <span>"read from"{sources}</span></h2>
            {files.links("composition", "What fills each card")}
            {figure(|width| svg::composition(composition, width, Theme::Page))}
            <ul class="key">{key}{free}</ul>
            {unsplit(composition).map(|text| view! { <p class="dim unsplit">{text}</p> })}
            {table(
                "Exact values",
                view! { <th scope="col">"subject"</th>{heads}<th scope="col">"used"</th><th scope="col">"capacity"</th> }.into_any(),
                rows.into_any(),
                access.cut(left_out, "row"),
            )}
        </section>
    }
    .into_any()
}

/// Rows that a table shows at once, and how many of very many.
const MAX_ROWS: usize = 64;
const TELLING_ROWS: usize = 48;

/// Of very many rows those that stand out and the highest, in their own order; and how many are left out.
fn telling<T>(all: &[T], whole: bool, accused: impl Fn(&T) -> bool, value: impl Fn(&T) -> u64) -> (Vec<&T>, usize) {
    if whole || all.len() <= MAX_ROWS {
        return (all.iter().collect(), 0);
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| (!accused(&all[*at]), std::cmp::Reverse(value(&all[*at]))));
    order.truncate(TELLING_ROWS);
    order.sort_unstable();
    (order.into_iter().map(|at| &all[at]).collect(), all.len() - TELLING_ROWS)
}

/// The word beside the accusing colour.
fn mark() -> &'static str {
    " \u{25c6} stands out"
}

fn table(title: &'static str, head: AnyView, rows: AnyView, cut: Option<AnyView>) -> AnyView {
    view! {
        <details class="exact">
            <summary>{title}</summary>
            <div class="scroll" tabindex="0" role="region" aria-label=title>
                <table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>
            </div>
            {cut}
        </details>
    }
    .into_any()
}
