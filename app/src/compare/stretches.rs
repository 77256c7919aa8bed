//! Peaks of one stretch of a phase after the other, before and after: an epoch of training beside the same one, the
//! validation that follows it beside that one. A fix that holds in the first epoch only shows here.

use super::beside::{Beside, beside, not_shown};
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
    let cell = |side: &[Stretch], phase: Phase, number: usize| {
        let found = side.iter().find(|stretch| stretch.phase == phase && stretch.number == number);
        found.map_or_else(not_shown, |stretch| cell(stretch, quantity))
    };
    let lines = rows.iter().enumerate().filter(|(at, _)| left_out == 0 || *at < half || at + half >= rows.len()).map(
        |(_, &(phase, number))| {
            let name = format!("{} {number}", words::phase(Some(phase)));
            (name, cell(&before, phase, number), cell(&after, phase, number))
        },
    );
    let about = Beside {
        id: "stretches",
        title: "Epoch by epoch",
        subtitle: format!("{}, highest within each stretch of a phase", quantity.title()),
        of: "stretch",
        cut: match left_out {
            0 => None,
            1 => Some("1 stretch in the middle not shown; the charts have it.".to_owned()),
            n => Some(format!("{n} stretches in the middle not shown; the charts have them.")),
        },
    };
    Some(beside(about, lines))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::testing::{compared, report};
    use rankscope_model::{GIB, PhaseSpan, Rank, SeriesAxis, Timeline, TimelineLine};

    /// Ranks over ten steps an epoch, eight of training and two of validation; `gib` is asked by rank, epoch (from 0)
    /// and phase.
    fn epochs(count: usize, gib: impl Fn(u32, usize, Phase) -> u64) -> Report {
        let phase_of = |step: usize| if step % 10 < 8 { Phase::Train } else { Phase::Eval };
        let line = |rank: u32| TimelineLine {
            subject: Subject::Rank(Rank(rank)),
            x: (0..).take(count * 10).collect(),
            y: (0..count * 10).map(|step| gib(rank, step / 10, phase_of(step)) * GIB).collect(),
            accused: rank == 3,
        };
        let span = |phase, from: i64, to: i64| PhaseSpan { phase, from, to };
        let phases = (0..)
            .step_by(10)
            .take(count)
            .flat_map(|at| [span(Phase::Train, at, at + 7), span(Phase::Eval, at + 8, at + 9)]);
        let mut report = report();
        report.figures.timeline = Some(Timeline {
            quantity: Quantity::PeakAllocated,
            axis: SeriesAxis::Step,
            lines: (0..4).map(line).collect(),
            capacity: None,
            phases: phases.collect(),
            marks: vec![],
        });
        report
    }

    fn even(count: usize) -> Report {
        epochs(count, |_, _, _| 20)
    }

    fn html(before: Report, after: Report) -> Option<String> {
        let owner = Owner::new_root(None);
        owner.with(|| stretches(&compared(before, after)).map(leptos::prelude::RenderHtml::to_html))
    }

    #[test]
    fn each_stretch_is_counted_within_its_phase_and_knows_its_heaviest() {
        let found = of(&epochs(2, |rank, epoch, phase| match (rank, epoch, phase) {
            (3, 1, Phase::Train) => 30,
            (1, _, Phase::Eval) => 24,
            _ => 20,
        }));
        let told: Vec<(Phase, usize, Subject, u64, bool)> = found
            .iter()
            .map(|stretch| (stretch.phase, stretch.number, stretch.highest.0, stretch.highest.1 / GIB, stretch.accused))
            .collect();
        let rank = |n| Subject::Rank(Rank(n));
        assert_eq!(told[1], (Phase::Eval, 1, rank(1), 24, false));
        assert_eq!(told[2], (Phase::Train, 2, rank(3), 30, true));
        assert_eq!(told[3], (Phase::Eval, 2, rank(1), 24, false));
        assert_eq!((told.len(), told[0].0, told[0].1, told[0].3), (4, Phase::Train, 1, 20));
        assert!(found.iter().all(|stretch| stretch.median == 20 * GIB));
    }

    #[test]
    fn a_phase_without_figures_is_no_stretch() {
        let mut report = even(2);
        let timeline = report.figures.timeline.as_mut().unwrap();
        timeline.phases.push(PhaseSpan { phase: Phase::Train, from: 500, to: 600 });
        timeline.phases.push(PhaseSpan { phase: Phase::Save, from: 0, to: 19 });
        assert_eq!(of(&report).len(), 4);
        assert_eq!(of(&crate::compare::testing::report()).len(), 0);
    }

    #[test]
    fn the_order_is_that_of_the_longer_run_and_nothing_is_lost() {
        let numbers = |report: &Report| of(report);
        let order = in_order(&numbers(&even(1)), &numbers(&even(3)));
        let train_and_eval = [1, 2, 3].into_iter().flat_map(|n| [(Phase::Train, n), (Phase::Eval, n)]);
        assert_eq!(order, train_and_eval.collect::<Vec<_>>());
    }

    #[test]
    fn a_fix_that_holds_in_the_first_epoch_only_shows() {
        let before = epochs(2, |rank, _, _| if rank == 3 { 28 } else { 20 });
        let after = epochs(3, |rank, epoch, phase| if (rank, epoch, phase) == (3, 1, Phase::Train) { 27 } else { 20 });
        let html = html(before, after).unwrap();
        let rows: Vec<&str> = html.split("<tr").skip(2).collect();
        assert_eq!(rows.len(), 6);
        assert!(rows[0].contains("training 1") && rows[0].contains("rank 3 28.0 GiB, 8.0 GiB over the median"));
        assert!(rows[0].contains("even, 20.0 GiB"));
        assert!(rows[2].contains("training 2") && rows[2].contains("rank 3 27.0 GiB, 7.0 GiB over the median"));
        assert_eq!(rows[2].matches("hot-cell").count(), 2);
        assert!(rows[4].contains("training 3") && rows[4].contains("not shown") && rows[4].contains("even, 20.0 GiB"));
        assert!(rows[5].contains("validation 3"));
    }

    #[test]
    fn what_cannot_be_held_side_by_side_has_no_table() {
        assert_eq!(html(even(1), even(1)), None, "one stretch of each phase");
        assert_eq!(html(even(2), report()), None, "no timeline after");
        let mut other = even(2);
        other.figures.timeline.as_mut().unwrap().quantity = Quantity::Reserved;
        assert_eq!(html(even(2), other), None, "another quantity");
    }

    #[test]
    fn a_long_job_shows_its_first_and_its_last_epochs() {
        let html = html(even(20), even(20)).unwrap();
        assert_eq!(html.matches("<tr").count(), 1 + MOST_ROWS);
        assert!(html.contains("training 1<") && html.contains("validation 20<") && !html.contains("training 10<"));
        assert!(html.contains("16 stretches in the middle not shown; the charts have them."));
    }
}
