//! Two runs side by side: is the imbalance of the first gone in the second?
//!
//! Pure, and content with two frozen reports: nothing here reads evidence. A proof needs equal ground: the same
//! quantity, world, cards, phases and as much of the run as it took before; what is missing is said with what to
//! collect. Figures decide; causes only confirm or object.

mod causes;
mod doubts;
mod figures;
mod sentence;

use crate::policy::Policy;
use doubts::Doubts;
use figures::Ground;
use rankscope_model::{
    COMPARISON_FORMAT, CauseFate, ComparedCause, Comparison, Diagnosis, Figures, Item, Outcome, Report, SpreadFigures,
    Verdict,
};

/// One of the two runs: what a report holds of it.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Its diagnosis.
    pub diagnosis: &'a Diagnosis,
    /// Its figures, with the facts behind them.
    pub figures: &'a Figures,
}

impl<'a> From<&'a Report> for Side<'a> {
    fn from(report: &'a Report) -> Self {
        Self { diagnosis: &report.diagnosis, figures: &report.figures }
    }
}

/// Whether the imbalance of `base` is gone in `head`, with everything that the answer rests on.
pub fn compare(base: Side, head: Side, policy: &Policy) -> Comparison {
    let ground = Ground::new(base, head, policy);
    let causes = causes::compared(base.diagnosis, head.diagnosis, ground.input.is_even_now == Some(true), policy);
    let doubts = Doubts::find(base, head, &ground, &causes, policy);
    let outcome = outcome(base, head, &ground, &causes, &doubts, policy);
    let back_to = match outcome {
        Outcome::Fixed => None,
        _ => back_to(base.diagnosis, head.diagnosis),
    };
    let sentence = sentence::sentence(outcome, base, head, &ground, &causes, &doubts, policy);
    let sentence = sentence::with_item(sentence, outcome, back_to);
    let collect = if outcome == Outcome::Fixed { Vec::new() } else { doubts.collect(back_to, &ground) };
    Comparison {
        format: COMPARISON_FORMAT.to_owned(),
        outcome,
        sentence,
        quantity: ground.quantity,
        rows: ground.rows,
        base: ground.base,
        head: ground.head,
        phases: ground.phases,
        input: ground.input,
        causes,
        doubts: doubts.into_list(),
        collect,
        back_to,
    }
}

fn outcome(
    base: Side,
    head: Side,
    ground: &Ground,
    causes: &[ComparedCause],
    doubts: &Doubts,
    policy: &Policy,
) -> Outcome {
    let (Some(before), Some(after)) = (&ground.base, &ground.head) else { return Outcome::CannotTell };
    if base.diagnosis.verdict != Verdict::Imbalance || before.is_even() {
        // Nothing was wrong, or not in what the runs share: only a new imbalance is an answer.
        let worse = before.is_even() && !after.is_even() && head.diagnosis.verdict == Verdict::Imbalance;
        return if worse { Outcome::NotFixed } else { Outcome::CannotTell };
    }
    // A phase that was even before and is even now says nothing of the fix.
    let outcomes: Vec<Outcome> =
        ground.phases.iter().filter(|phase| figures::is_telling(phase)).filter_map(|phase| phase.outcome).collect();
    let all = |wanted: Outcome| outcomes.iter().all(|outcome| *outcome == wanted);
    let overall = figures::outcome_of(before, after, policy);
    let settled = matches!(head.diagnosis.verdict, Verdict::Balanced | Verdict::UniformPressure);
    let first = base.diagnosis.causes.first().map(|cause| cause.label);
    let remains = causes.iter().any(|cause| {
        let is_meant = Some(cause.label) == first || cause.head_confidence >= policy.leaning;
        cause.fate == CauseFate::Remains && is_meant
    });
    let uneven_input = ground.input.is_even_now == Some(false) && ground.input_was_uneven(policy);

    if overall == Outcome::NotFixed && !outcomes.contains(&Outcome::Fixed) && !outcomes.contains(&Outcome::Partly) {
        return Outcome::NotFixed;
    }
    if doubts.forbid_proof() {
        return Outcome::CannotTell;
    }
    if overall == Outcome::Fixed && all(Outcome::Fixed) {
        return match (settled, remains || uneven_input) {
            (true, false) if is_levelled_up(before, after, policy) => Outcome::Partly,
            (true, false) => Outcome::Fixed,
            (true, true) => Outcome::Partly,
            // Another quantity of the run after is uneven, or memory ran out at a moment that was not seen.
            (false, _) if head.diagnosis.verdict == Verdict::Imbalance => Outcome::Partly,
            (false, _) => Outcome::CannotTell,
        };
    }
    if overall == Outcome::NotFixed && all(Outcome::NotFixed) { Outcome::NotFixed } else { Outcome::Partly }
}

/// Even, because everybody holds what only the heaviest held before: no card has gained room.
fn is_levelled_up(before: &SpreadFigures, after: &SpreadFigures, policy: &Policy) -> bool {
    let was_high = before.max.0;
    let is_as_high = |bytes: u64| bytes >= was_high || !policy.differs(was_high, bytes);
    !before.is_even() && after.is_even() && is_as_high(after.min.0)
}

/// The item that the remaining difference points to.
fn back_to(base: &Diagnosis, head: &Diagnosis) -> Option<Item> {
    let first = |diagnosis: &Diagnosis| diagnosis.causes.first().map(|cause| cause.label.item());
    first(head).filter(|_| head.verdict == Verdict::Imbalance).or_else(|| first(base)).filter(|i| *i != Item::Verified)
}
