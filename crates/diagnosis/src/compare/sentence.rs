//! The answer in a sentence or two.

use super::Side;
use super::doubts::{Doubts, long_word};
use super::figures::Ground;
use crate::policy::Policy;
use crate::words;
use rankscope_model::{CauseFate, ComparedCause, Item, Outcome, SpreadFigures, Subject, Verdict};

/// The sentence.
pub(super) fn sentence(
    outcome: Outcome,
    base: Side,
    head: Side,
    ground: &Ground,
    causes: &[ComparedCause],
    doubts: &Doubts,
    policy: &Policy,
) -> String {
    match outcome {
        Outcome::Fixed => fixed(ground),
        Outcome::Partly => partly(ground, causes, policy),
        Outcome::NotFixed => not_fixed(base, ground, causes, policy.leaning),
        Outcome::CannotTell => cannot_tell(base, head, ground, doubts),
    }
}

/// With the item to go back to, where something is left to do.
pub(super) fn with_item(text: String, outcome: Outcome, back_to: Option<Item>) -> String {
    match back_to.filter(|_| matches!(outcome, Outcome::Partly | Outcome::NotFixed)) {
        Some(item) => format!("{text} Go back to: {}.", item.short_title()),
        None => text,
    }
}

fn group(ground: &Ground) -> &'static str {
    if ground.rows.first().is_some_and(|row| row.subject.rank().is_some()) { "ranks" } else { "cards" }
}

fn who(figures: &SpreadFigures) -> String {
    let mut heavy: Vec<Subject> = figures.heaviest.clone();
    heavy.sort_unstable();
    words::subjects(&heavy)
}

/// `GPU 0 was 5.9 GiB above the others`.
fn before(figures: &SpreadFigures) -> String {
    let was = if figures.heaviest.len() == 1 { "was" } else { "were" };
    let up_to = if figures.heaviest.len() == 1 { "" } else { "up to " };
    let when = if figures.at_one_moment { " at one step" } else { "" };
    format!("{} {was} {up_to}{} above the others{when}", who(figures), figures.gap)
}

fn fixed(ground: &Ground) -> String {
    let (Some(base), Some(head)) = (&ground.base, &ground.head) else { return "Fixed.".to_owned() };
    let count = usize::try_from(head.compared).unwrap_or(usize::MAX);
    let seen: Vec<&str> = ground.phases.iter().filter_map(|phase| phase.phase).map(long_word).collect();
    let phases = if seen.len() > 1 { format!(", in {}", words::join_words(&seen)) } else { String::new() };
    let tokens = match (ground.input.base_ratio, ground.input.head_ratio) {
        (Some(before), Some(after)) if before > after => {
            format!(" Tokens of a step differ {after:.2}\u{d7} over ranks, {before:.2}\u{d7} before.")
        }
        _ => String::new(),
    };
    format!(
        "Fixed: {}; now {} are {}{phases}.{tokens}",
        before(base),
        words::all_of(count, group(ground)),
        words::span(head.min.0, head.max.0)
    )
}

fn partly(ground: &Ground, causes: &[ComparedCause], policy: &Policy) -> String {
    let (Some(base), Some(head)) = (&ground.base, &ground.head) else { return "Partly fixed.".to_owned() };
    let mut rest: Vec<String> = Vec::new();
    let uneven: Vec<&str> = ground
        .phases
        .iter()
        .filter(|phase| matches!(phase.outcome, Some(Outcome::Partly | Outcome::NotFixed)))
        .filter_map(|phase| phase.phase)
        .map(long_word)
        .collect();
    let even: Vec<&str> = ground
        .phases
        .iter()
        .filter(|phase| phase.outcome == Some(Outcome::Fixed) && phase.base.as_ref().is_some_and(|b| !b.is_even()))
        .filter_map(|phase| phase.phase)
        .map(long_word)
        .collect();
    let head_text = if super::is_levelled_up(base, head, policy) {
        format!(
            "Partly fixed: {} and the difference is gone, but only because the others hold as much now: {}, {} before",
            before(base),
            words::span(head.min.0, head.max.0),
            base.median
        )
    } else if head.is_even() {
        format!("Partly fixed: {} and the difference is gone", before(base))
    } else if !even.is_empty() && !uneven.is_empty() {
        format!(
            "Partly fixed: {} is even now, {} is not ({} still {} above the others)",
            words::join_words(&even),
            words::join_words(&uneven),
            who(head),
            head.gap
        )
    } else {
        format!("Partly fixed: {}, still {} ({})", before(base), head.gap, who(head))
    };
    let remains: Vec<String> = causes
        .iter()
        .filter(|cause| cause.fate == CauseFate::Remains)
        .map(|cause| words::lower_first(cause.label.title()))
        .collect();
    if !remains.is_empty() {
        rest.push(format!("what remains: {}", remains.join("; ")));
    }
    if ground.input.is_even_now == Some(false)
        && let Some(ratio) = ground.input.head_ratio
    {
        rest.push(format!("tokens of a step still differ {ratio:.2}\u{d7} over ranks"));
    }
    if rest.is_empty() { format!("{head_text}.") } else { format!("{head_text}; {}.", rest.join("; ")) }
}

fn not_fixed(base: Side, ground: &Ground, causes: &[ComparedCause], leaning: f64) -> String {
    let (Some(before_figures), Some(head)) = (&ground.base, &ground.head) else { return "Not fixed.".to_owned() };
    let is = if head.heaviest.len() == 1 { "is" } else { "are" };
    if base.diagnosis.verdict != Verdict::Imbalance || before_figures.is_even() {
        return format!("Worse: the run before was even; now {} {is} {} above the others.", who(head), head.gap);
    }
    // A rival that only comes forward because the run after says less is nothing new.
    let new = causes.iter().find(|cause| cause.fate == CauseFate::New && cause.head_confidence >= leaning);
    let new = new.map_or_else(String::new, |cause| format!(" New: {}.", words::lower_first(cause.label.title())));
    if head.heaviest.iter().any(|heavy| before_figures.heaviest.contains(heavy)) {
        return format!(
            "Not fixed: {} {is} still {} above the others, {} before.{new}",
            who(head),
            head.gap,
            before_figures.gap
        );
    }
    format!("Not fixed: {}; now {} {is} {} above them.{new}", before(before_figures), who(head), head.gap)
}

fn cannot_tell(base: Side, head: Side, ground: &Ground, doubts: &Doubts) -> String {
    let reason = doubts
        .gravest()
        .map_or_else(|| "the run after does not show whether the difference is gone.".to_owned(), words::lower_first);
    let hint = match (&ground.base, &ground.head) {
        (Some(before), Some(after))
            if base.diagnosis.verdict == Verdict::Imbalance
                && head.diagnosis.verdict != Verdict::Inconclusive
                && !before.is_even()
                && after.is_even() =>
        {
            " What was seen is even."
        }
        _ => "",
    };
    format!("Cannot tell: {reason}{hint}")
}
