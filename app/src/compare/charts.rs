//! The peaks before and after, one drawing each, on one scale.

use crate::backend::ComparedReports;
use crate::report::figure;
use leptos::prelude::*;
use rankscope_charts::{Theme, svg};
use rankscope_model::{Bytes, ComparedRow, Comparison, PeakBar, Peaks, Report, lower_median};

/// Two small charts; nothing where the runs share no figures.
pub fn charts(compared: &ComparedReports) -> Option<AnyView> {
    let ComparedReports { base, head, comparison } = compared;
    let before = peaks(comparison, base, |row| (row.base, row.base_accused))?;
    let after = peaks(comparison, head, |row| (row.head, row.head_accused))?;
    let top = [&before, &after].into_iter().flat_map(|peaks| &peaks.bars).map(|bar| bar.peak.0).max()?;
    let card = |word: &'static str, peaks: &Peaks| {
        view! {
            <figure class="half">
                <figcaption>{word}</figcaption>
                {figure(|width| svg::peaks_reaching(peaks, width, Theme::Page, top))}
            </figure>
        }
    };
    let quantity = comparison.quantity?.title();
    Some(
        view! {
            <section class="card" aria-labelledby="pair-title">
                <h2 id="pair-title">"Peaks before and after" <span>{format!("{quantity}, on one scale; the line is the median")}</span></h2>
                <div class="halves">{card("Before", &before)}{card("After", &after)}</div>
            </section>
        }
        .into_any(),
    )
}

fn peaks(
    comparison: &Comparison,
    report: &Report,
    side: impl Fn(&ComparedRow) -> (Option<Bytes>, bool),
) -> Option<Peaks> {
    let bars: Vec<PeakBar> = comparison
        .rows
        .iter()
        .filter_map(|row| {
            let (peak, accused) = side(row);
            Some(PeakBar { subject: row.subject, peak: peak?, accused })
        })
        .collect();
    let median = lower_median(&bars.iter().map(|bar| bar.peak).collect::<Vec<_>>())?;
    let capacity = report.figures.peaks.as_ref().and_then(|peaks| peaks.capacity);
    Some(Peaks { quantity: comparison.quantity?, bars, median, capacity, per_node: None, at: None })
}
