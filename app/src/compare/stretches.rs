//! Peaks of one stretch of a phase after the other, before and after: an epoch of training beside the same one, the
//! validation that follows it beside that one. A fix that holds in the first epoch only shows here.

use crate::backend::ComparedReports;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Phase, Quantity, Report, Subject, lower_median};

/// Rows that are shown; a long job has hundreds of epochs, and the first and the last ones tell most.
const MOST_ROWS: usize = 24;
/// A highest one nearer to the median than this part of it is no difference.
const EVEN: f64 = 0.02;

/// What the ranks held at most within one stretch.
struct Stretch {
    phase: Phase,
    /// Counted within its phase, from 1.
    number: usize,
    highest: (Subject, u64),
    median: u64,
    /// The one that the report accuses is the highest.
    accused: bool,
}

/// The table; nothing where the logs name no phases, or only one stretch of each.
pub fn stretches(compared: &ComparedReports) -> Option<AnyView> {
    let quantity = compared.base.figures.timeline.as_ref()?.quantity;
    if compared.head.figures.timeline.as_ref()?.quantity != quantity {
        return None;
    }
    let (before, after) = (of(&compared.base), of(&compared.head));
    let rows: Vec<(Phase, usize)> = in_order(&before, &after);
    if !rows.iter().any(|(_, number)| *number > 1) {
        return None;
    }
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    let half = MOST_ROWS / 2;
    let lines = rows
        .iter()
        .enumerate()
        .filter(|(at, _)| left_out == 0 || *at < half || at + half >= rows.len())
        .map(|(_, (phase, number))| {
            let find = |side: &[Stretch]| {
                let found = side.iter().find(|stretch| stretch.phase == *phase && stretch.number == *number);
                found.map_or_else(|| view! { <span class="dim">"not shown"</span> }.into_any(), |s| cell(s, quantity))
            };
            view! {
                <tr>
                    <th scope="row">{format!("{} {number}", words::phase(Some(*phase)))}</th>
                    <td>{find(&before)}</td>
                    <td>{find(&after)}</td>
                </tr>
            }
        })
        .collect_view();
    let cut = (left_out > 0).then(|| {
        let text = format!(
            "{} in the middle not shown; the charts have them.",
            words::count(left_out, "stretch").replace("stretchs", "stretches")
        );
        view! { <p class="cut dim">{text}</p> }
    });
    Some(
        view! {
            <section class="card" aria-labelledby="stretches-title">
                <h2 id="stretches-title">"Epoch by epoch" <span>{format!("peak within each stretch of a phase, {}", quantity.title())}</span></h2>
                <div class="scroll" tabindex="0" role="region" aria-label="Epoch by epoch">
                    <table class="wordy-cells">
                        <thead><tr><th scope="col">"stretch"</th><th scope="col">"before"</th><th scope="col">"after"</th></tr></thead>
                        <tbody>{lines}</tbody>
                    </table>
                </div>
                {cut}
            </section>
        }
        .into_any(),
    )
}

/// Every stretch of either run in the order of the one that has more.
fn in_order(before: &[Stretch], after: &[Stretch]) -> Vec<(Phase, usize)> {
    let longer = if before.len() >= after.len() { [before, after] } else { [after, before] };
    let mut rows: Vec<(Phase, usize)> = Vec::new();
    for stretch in longer.into_iter().flatten() {
        if !rows.contains(&(stretch.phase, stretch.number)) {
            rows.push((stretch.phase, stretch.number));
        }
    }
    rows
}

fn of(report: &Report) -> Vec<Stretch> {
    let Some(timeline) = &report.figures.timeline else { return Vec::new() };
    let mut seen: Vec<Phase> = Vec::new();
    let mut found = Vec::new();
    for span in timeline.phases.iter().filter(|span| matches!(span.phase, Phase::Train | Phase::Eval)) {
        let peaks: Vec<(Subject, u64, bool)> = timeline
            .lines
            .iter()
            .filter_map(|line| {
                let within = line.x.iter().zip(&line.y).filter(|(x, _)| (span.from..=span.to).contains(*x));
                Some((line.subject, within.map(|(_, y)| *y).max()?, line.accused))
            })
            .collect();
        let Some(median) = lower_median(&peaks.iter().map(|(_, peak, _)| *peak).collect::<Vec<_>>()) else { continue };
        let Some((subject, peak, accused)) = peaks.into_iter().max_by_key(|(_, peak, _)| *peak) else { continue };
        seen.push(span.phase);
        let number = seen.iter().filter(|phase| **phase == span.phase).count();
        found.push(Stretch { phase: span.phase, number, highest: (subject, peak), median, accused });
    }
    found
}

fn cell(stretch: &Stretch, quantity: Quantity) -> AnyView {
    let (subject, peak) = stretch.highest;
    let over = peak.saturating_sub(stretch.median);
    if over as f64 <= stretch.median as f64 * EVEN {
        return view! { <span>{format!("even, {}", words::value(quantity, peak))}</span> }.into_any();
    }
    let text = format!("{subject} {}, {} over the median", words::value(quantity, peak), words::value(quantity, over));
    view! { <span class:hot-cell=stretch.accused>{text}</span> }.into_any()
}
