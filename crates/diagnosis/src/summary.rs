//! The headline: which card, how much fuller, because of what; and when nothing is sure, what would settle it.

use crate::case::Case;
use crate::combine::Ledger;
use crate::imbalance::Spread;
use crate::words;
use rankscope_model::{Bytes, Cause, Quantity, Verdict};
use std::fmt::Write;

/// One or two sentences that can be pasted into a chat.
pub(crate) fn summary(case: &Case, verdict: Verdict, causes: &[Cause], ledger: &Ledger) -> String {
    let text = match verdict {
        Verdict::Imbalance => imbalance(case, causes, ledger),
        Verdict::UniformPressure => uniform(case, causes, ledger),
        Verdict::Balanced => balanced(case, causes, ledger),
        Verdict::Inconclusive => inconclusive(case, causes, ledger),
    };
    text.trim().to_owned()
}

/// How sure the mechanism of the first cause is: labels with the same mechanism count together.
fn mechanism_confidence(causes: &[Cause], ledger: &Ledger) -> f64 {
    let Some(first) = causes.first().and_then(|c| ledger.mechanism_of(c.label)) else { return 0.0 };
    causes
        .iter()
        .filter(|c| ledger.mechanism_of(c.label).is_some_and(|m| m.because == first.because))
        .map(|c| c.confidence)
        .sum()
}

fn imbalance(case: &Case, causes: &[Cause], ledger: &Ledger) -> String {
    let Some((comparison, spread)) = &case.main else { return String::new() };
    let head = headline(comparison.quantity, spread, comparison.values.len());
    let figures = figures(comparison.quantity, spread);
    let confidence = mechanism_confidence(causes, ledger);
    let first = causes.first();
    let mechanism = first.and_then(|cause| ledger.mechanism_of(cause.label));
    let Some((cause, mechanism)) = first.zip(mechanism).filter(|_| confidence >= case.policy.likely) else {
        let candidates = match first {
            Some(cause) => format!(" One thing that would look like this: {}.", lower_first(cause.label.title())),
            None => String::new(),
        };
        return format!("{head} ({figures}); why is not settled.{candidates} {}", settle(first, ledger));
    };
    let link = if confidence >= case.policy.sure { "because" } else { "probably because" };
    let mut text = format!("{head} {link} {} ({figures}).", mechanism.because);
    let explained = mechanism.explained.map(|bytes| {
        let (bytes, gap) = (Bytes(bytes.min(spread.gap())), Bytes(spread.gap()));
        format!("{bytes} of the {gap} between them are explained")
    });
    let rival = causes
        .get(1)
        .filter(|rival| ledger.mechanism_of(rival.label).is_some_and(|m| m.because == mechanism.because))
        .filter(|_| cause.confidence < case.policy.sure);
    let open = rival.map(|rival| {
        let candidate = |cause: &Cause| format!("{} ({:.2})", lower_first(cause.label.title()), cause.confidence);
        format!("which code does it is open: {} or {}", candidate(cause), candidate(rival))
    });
    let rest: Vec<String> = explained.into_iter().chain(open).collect();
    if !rest.is_empty() {
        let _ = write!(text, " {}.", words::capital(&rest.join("; ")));
    }
    text
}

/// `GPU 0 is 24 % fuller than the median card`.
fn headline(quantity: Quantity, spread: &Spread, compared: usize) -> String {
    let Some(first) = spread.heaviest.first() else { return String::new() };
    let group = if first.rank().is_some() { "rank" } else { "card" };
    if spread.is_low_outlier {
        let rest = compared.saturating_sub(spread.heaviest.len());
        return format!(
            "{} hold up to {} more than {}",
            words::capital(&words::subjects(&sorted(&spread.heaviest))),
            Bytes(spread.gap()),
            if rest == 1 {
                format!("the one other {group}")
            } else {
                format!("the {} other {group}s", words::count(rest))
            }
        );
    }
    let above = spread.above_median();
    let base = if compared == 2 { format!("the other {group}") } else { format!("the median {group}") };
    let verb = if quantity == Quantity::DeviceUsed { "fuller than" } else { "above" };
    let peak = match quantity {
        Quantity::PeakAllocated | Quantity::PeakReserved => " at its peak",
        _ => "",
    };
    let who = words::capital(&first.to_string());
    if above >= 2.0 {
        let times = spread.max as f64 / spread.median.max(1) as f64;
        let times = if spread.median == 0 { "far more".to_owned() } else { format!("{times:.1} times as much") };
        return format!("{who} holds {times} as {base}").replace("far more as", "far more than");
    }
    format!("{who} is {} {verb} {base}{peak}", words::percent(above))
}

fn sorted(list: &[rankscope_model::Subject]) -> Vec<rankscope_model::Subject> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list
}

/// `31.5 GiB against 25.4 GiB`.
fn figures(quantity: Quantity, spread: &Spread) -> String {
    let low = if spread.is_low_outlier { spread.min } else { spread.median };
    format!("{} against {} {}", Bytes(spread.max), Bytes(low), quantity.title())
}

fn uniform(case: &Case, causes: &[Cause], ledger: &Ledger) -> String {
    let Some((comparison, spread)) = &case.main else { return String::new() };
    let kind = if comparison.values.first().is_some_and(|(s, _)| s.rank().is_some()) { "ranks" } else { "cards" };
    let capacity = comparison.capacities.values().min().map_or_else(String::new, |c| format!(" of {}", Bytes(*c)));
    let n = words::count(comparison.values.len());
    let head = format!(
        "All {n} {kind} are equally full ({} to {}{capacity}): no imbalance, the job needs more than the cards have.",
        Bytes(spread.min),
        Bytes(spread.max)
    );
    with_side_note(case, head, causes, ledger)
}

fn balanced(case: &Case, causes: &[Cause], ledger: &Ledger) -> String {
    let Some((comparison, spread)) = &case.main else { return String::new() };
    let kind = if comparison.values.first().is_some_and(|(s, _)| s.rank().is_some()) { "ranks" } else { "cards" };
    let head = format!(
        "No imbalance in what was read: {} {kind} between {} and {} {}.",
        words::count(comparison.values.len()),
        Bytes(spread.min),
        Bytes(spread.max),
        comparison.quantity.title()
    );
    with_side_note(case, head, causes, ledger)
}

fn inconclusive(case: &Case, causes: &[Cause], ledger: &Ledger) -> String {
    let first = causes.first();
    let head = if case.main.is_some() {
        "The ranks in the evidence are equal, but it does not show how full the cards are.".to_owned()
    } else if case.evidence.artifacts.is_empty() {
        return "Nothing was read yet. Add an nvidia-smi table, a step log, an out-of-memory message or a memory snapshot."
            .to_owned();
    } else {
        match first.and_then(|cause| Some((cause, ledger.mechanism_of(cause.label)?))) {
            Some((_, m)) if mechanism_confidence(causes, ledger) >= case.policy.likely => {
                return format!("{} {}", m.alone, settle(first, ledger));
            }
            _ => nothing_to_compare(case),
        }
    };
    format!("{} {}", with_side_note(case, head, causes, ledger), settle(first, ledger))
}

fn nothing_to_compare(case: &Case) -> String {
    let has_figures = !(case.evidence.device_tables.is_empty()
        && case.evidence.steps.is_empty()
        && case.evidence.ooms.is_empty()
        && case.evidence.snapshots.is_empty());
    if !has_figures {
        return "No memory figures were found in the files.".to_owned();
    }
    if let Some((_, view)) = case.focus() {
        let in_use = view.in_use(case.policy);
        if let [only] = in_use.as_slice() {
            return format!(
                "Only {} is in use in the table: there is no second card to hold it against.",
                only.subject
            );
        }
    }
    "The evidence has figures of one rank or card only: nothing to hold them against.".to_owned()
}

/// Adds what is known of the first cause when it is at least likely.
fn with_side_note(case: &Case, head: String, causes: &[Cause], ledger: &Ledger) -> String {
    let note = causes
        .first()
        .and_then(|cause| ledger.mechanism_of(cause.label))
        .filter(|_| mechanism_confidence(causes, ledger) >= case.policy.likely);
    match note {
        Some(mechanism) => format!("{head} {}", mechanism.alone),
        None => head,
    }
}

/// What would settle it, from the first thing that the leading item wants collected.
fn settle(first: Option<&Cause>, ledger: &Ledger) -> String {
    let item = first.map_or(rankscope_model::Item::DeviceVisibility, |cause| cause.label.item());
    let wanted = ledger.collects_of(item).first().cloned();
    let command = wanted
        .or_else(|| crate::collect::for_item(item, Verdict::Inconclusive).into_iter().next())
        .map(|collect| collect.what)
        .unwrap_or_default();
    let what = command.split([';', ':', '.']).next().unwrap_or_default().trim();
    if what.is_empty() { String::new() } else { format!("To settle it: {}.", lower_first(what)) }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), text.chars().nth(1)) {
        // Keep acronyms: `NCCL`.
        (Some(_), Some(second)) if second.is_uppercase() => text.to_owned(),
        (Some(first), _) => first.to_lowercase().chain(chars).collect(),
        (None, _) => String::new(),
    }
}
