//! The headline: which card, how much fuller, because of what; and when nothing is sure, what would settle it.

use crate::case::Case;
use crate::combine::{Ledger, Mechanism};
use crate::imbalance::{Comparison, Spread};
use crate::words;
use rankscope_model::{Bytes, Cause, CauseLabel, Collect, Item, Quantity, Severity, Subject, Verdict};
use std::collections::BTreeSet;
use std::fmt::Write;

/// What to do next, see [`crate::next_step`].
type Next<'n> = Option<&'n (Item, Collect)>;

/// One or two sentences that can be pasted into a chat.
pub(crate) fn summary(case: &Case, verdict: Verdict, causes: &[Cause], ledger: &Ledger, next: Next) -> String {
    let failed = crate::ran_out::sentence(case);
    let text = match (verdict, failed) {
        (Verdict::Imbalance, failed) => imbalance(case, causes, ledger, next, failed),
        (Verdict::UniformPressure, failed) => with(uniform(case, causes, ledger), failed),
        (Verdict::Balanced, failed) => with(balanced(case, causes, ledger), failed),
        // The failure itself is the first thing to say where nothing can be compared.
        (Verdict::Inconclusive, Some(failed)) if case.main.is_none() => {
            format!("{failed} {}", inconclusive(case, causes, ledger, next, None))
        }
        (Verdict::Inconclusive, failed) => inconclusive(case, causes, ledger, next, failed),
    };
    let later = case.after.as_ref().and_then(|after| after.sentence(case));
    let lost = crate::events::lost(case);
    let parts = [lost, Some(text.trim().to_owned()), last_seen(case, verdict), later, crate::gone::sentence(case)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// When the gap was there last, of a job that is watched and in which it has not been seen for a while: a duty of one rank
/// comes and goes.
fn last_seen(case: &Case, verdict: Verdict) -> Option<String> {
    let (comparison, spread) = case.main.as_ref().filter(|_| verdict == Verdict::Imbalance)?;
    let (last, after, end) = crate::imbalance::last_apart(case, comparison, spread)?;
    // What was so while nothing was read is not known.
    let is_over = end.0.saturating_sub(after.0) >= case.policy.over_after;
    let was_silent = after.0.saturating_sub(last.0) >= case.policy.over_after;
    let from = if was_silent { after.clock() } else { "then".to_owned() };
    is_over.then(|| format!("It was so last at {}, and not from {from} to {}.", last.clock(), end.clock()))
}

/// With the failure behind it.
fn with(text: String, failed: Option<String>) -> String {
    match failed {
        Some(failed) => format!("{text} {failed}"),
        None => text,
    }
}

/// How sure the mechanism of the first cause is: labels with the same mechanism count together.
fn mechanism_confidence(causes: &[Cause], ledger: &Ledger) -> f64 {
    let Some(cause) = causes.first() else { return 0.0 };
    let Some(first) = ledger.mechanism_of(cause.label) else { return named(cause).map_or(0.0, |_| cause.confidence) };
    causes
        .iter()
        .filter(|c| ledger.mechanism_of(c.label).is_some_and(|m| m.because == first.because))
        .map(|c| c.confidence)
        .sum()
}

/// The title of a settled cause stands in where no rule said what the cause does to the card.
fn named(cause: &Cause) -> Option<Mechanism> {
    crate::is_settled(cause).then(|| Mechanism {
        because: words::lower_first(cause.label.title()),
        alone: format!("{}.", cause.label.title()),
        explained: None,
    })
}

/// What the first cause does, if a rule or its own title says so.
fn mechanism(causes: &[Cause], ledger: &Ledger) -> Option<Mechanism> {
    let first = causes.first()?;
    ledger.mechanism_of(first.label).cloned().or_else(|| named(first))
}

/// Cards that take turns: none of them is the heavy one, and the highest reading is no more than that.
fn in_turns(case: &Case, causes: &[Cause], ledger: &Ledger) -> Option<String> {
    let (_, spread) = case.main.as_ref().filter(|(_, spread)| spread.stands_out())?;
    let first = causes.first().filter(|cause| cause.label == CauseLabel::VariableShapeBatches)?;
    let told = ledger.mechanism_of(first.label).filter(|_| crate::rules::takes_turns(case))?;
    let highest = spread.heaviest.first()?;
    let (max, median) = (Bytes(spread.max), Bytes(spread.median));
    Some(format!("{} The highest reading is {max}, on {highest}; the median card's highest is {median}.", told.alone))
}

fn imbalance(case: &Case, causes: &[Cause], ledger: &Ledger, next: Next, failed: Option<String>) -> String {
    let Some((comparison, spread)) = &case.main else { return String::new() };
    if let Some(turns) = in_turns(case, causes, ledger) {
        return with(turns, failed);
    }
    let (head, figures) = headline(case, comparison, spread);
    let first = causes.first();
    let confidence = mechanism_confidence(causes, ledger);
    let mechanism = mechanism(causes, ledger);
    let unsettled = || {
        let figures = figures.as_ref().map_or_else(String::new, |figures| format!(" ({figures})"));
        format!("{}{figures}; why is not settled.", head.trim_end_matches(','))
    };
    let is_elsewhere = |card| !spread.heaviest.iter().any(|heavy| case.is_on(*heavy, card));
    let fills_another = |cause: &Cause| ledger.filled_by(cause.label).is_some_and(is_elsewhere);
    if let Some((_, mechanism)) = first.zip(mechanism.as_ref()).filter(|(cause, _)| fills_another(cause)) {
        return with(format!("{} Beside it: {}", unsettled(), mechanism.alone), failed) + &settle(next);
    }
    let Some((cause, mechanism)) = first.zip(mechanism).filter(|_| confidence >= case.policy.leaning) else {
        let candidate = first.map_or_else(String::new, |cause| {
            format!(" One thing that would look like this: {}.", words::lower_first(cause.label.title()))
        });
        let beside = ledger.beside().map_or_else(String::new, |mechanism| format!(" Beside it: {}", mechanism.alone));
        return with(format!("{}{candidate}{beside}", unsettled()), failed) + &settle(next);
    };
    let link = match confidence {
        sure if sure >= case.policy.sure => "because",
        likely if likely >= case.policy.likely => "probably because",
        _ => "possibly because",
    };
    let figures = figures.map_or_else(String::new, |figures| format!(": {figures}"));
    let mut text = format!("{head} {link} {}{figures}.", mechanism.because);
    let explained = mechanism.explained.map(|bytes| {
        let (bytes, gap) = (Bytes(bytes.min(spread.gap())), Bytes(spread.gap()));
        format!("{bytes} of the {gap} between them are explained")
    });
    let rival = causes
        .get(1)
        .filter(|rival| ledger.mechanism_of(rival.label).is_some_and(|m| m.because == mechanism.because))
        .filter(|_| cause.confidence < case.policy.sure);
    let open = rival.map(|rival| {
        let candidate =
            |cause: &Cause| format!("{} ({:.2})", words::lower_first(cause.label.title()), cause.confidence);
        format!("which code does it is open: {} or {}", candidate(cause), candidate(rival))
    });
    let rest: Vec<String> = explained.into_iter().chain(open).collect();
    if !rest.is_empty() {
        let _ = write!(text, " {}.", words::capital(&rest.join("; ")));
    }
    with(text, failed)
}

/// From ten times the median on, two figures say more than their ratio.
const TOO_FAR_FOR_PERCENT: f64 = 9.0;

/// The same, with the step in front where the figures are of one step.
fn headline(case: &Case, comparison: &Comparison, spread: &Spread) -> (String, Option<String>) {
    let (text, figures) = headline_of_all(case, comparison, spread);
    match crate::imbalance::single_moment(case, comparison) {
        Some(key) if !text.is_empty() => {
            let at = words::capital(&crate::imbalance::at_step(case, &key).text);
            (format!("{at} {}", words::lower_first(&text)), figures)
        }
        _ => (text, figures),
    }
}

/// `GPU 0 is 24 % fuller than the median card`, and the figures unless they are in it.
fn headline_of_all(case: &Case, comparison: &Comparison, spread: &Spread) -> (String, Option<String>) {
    let Some(first) = spread.heaviest.first() else { return (String::new(), None) };
    let group = if first.rank().is_some() { "rank" } else { "card" };
    let low = if spread.is_low_outlier { spread.min } else { spread.median };
    let figures = match comparison.quantity {
        Quantity::DeviceUsed => format!("{} against {}", Bytes(spread.max), Bytes(low)),
        other => format!("{} against {} {}", Bytes(spread.max), Bytes(low), other.title()),
    };
    if spread.is_low_outlier {
        let rest = comparison.values.len().saturating_sub(spread.heaviest.len());
        let mut heavy = spread.heaviest.clone();
        heavy.sort_unstable();
        let base = match rest {
            1 => format!("the one other {group}"),
            _ => format!("the {} other {group}s", words::count(rest)),
        };
        let verb = if heavy.len() == 1 { "holds" } else { "hold" };
        let who = who(case, &heavy);
        return (format!("{who} {verb} up to {} more than {base}", Bytes(spread.gap())), Some(figures));
    }
    let mut heavy = spread.heaviest.clone();
    heavy.sort_unstable();
    let many = heavy.len() > 1;
    let who = who(case, &heavy);
    let hold = if many { "hold" } else { "holds" };
    if nobody_works_on(case, *first) {
        return (format!("{who} {hold} {} although no process works there,", Bytes(spread.max)), None);
    }
    let base = match comparison.values.len() {
        2 => format!("the other {group}"),
        _ => format!("the median {group}"),
    };
    let above = spread.above_median();
    if above >= TOO_FAR_FOR_PERCENT {
        return (format!("{who} {hold} {} and {base} {},", Bytes(spread.max), Bytes(spread.median)), None);
    }
    let up_to = if many { "up to " } else { "" };
    let are = if many { "are" } else { "is" };
    let text = if above >= 2.0 {
        format!("{who} {hold} {up_to}{:.1} times as much as {base}", above + 1.0)
    } else if comparison.quantity == Quantity::DeviceUsed {
        format!("{who} {are} {up_to}{} fuller than {base}", words::percent(above))
    } else {
        let at_peak = matches!(comparison.quantity, Quantity::PeakAllocated | Quantity::PeakReserved)
            && crate::imbalance::single_moment(case, comparison).is_none();
        let tail = if at_peak { " at the peak" } else { "" };
        format!("{who} {are} {up_to}{} above {base}{tail}", words::percent(above))
    };
    (text, Some(figures))
}

/// `GPU 0`, `Ranks 2 and 5`, `Rank 11 (GPU 3 of node-b)`.
fn who(case: &Case, heavy: &[Subject]) -> String {
    let place = match heavy {
        [only] => case.place_of(*only),
        _ => None,
    };
    let place = place.map_or_else(String::new, |place| format!(" ({place})"));
    format!("{}{place}", words::capital(&words::subjects(heavy)))
}

/// All processes on that card are at home elsewhere.
fn nobody_works_on(case: &Case, card: Subject) -> bool {
    case.focus().is_some_and(|(_, view)| {
        let has_rows = view.gpu(card).is_some_and(|gpu| !gpu.compute.is_empty());
        view.lists_processes() && has_rows && view.residents(card, case.policy).is_empty()
    })
}

/// `All eight cards`, `Both ranks`.
fn everyone(comparison: &Comparison) -> String {
    let is_rank = comparison.values.first().is_some_and(|(subject, _)| subject.rank().is_some());
    let kind = if is_rank { "ranks" } else { "cards" };
    let with_figures = comparison.values.len();
    // Of whom nothing is known is not among those that are alike.
    if !comparison.left_out.is_empty() {
        let all = with_figures.saturating_add(comparison.left_out.len());
        return format!("{} of {} {kind}", words::capital(&words::count(with_figures)), words::count(all));
    }
    words::capital(&words::all_of(with_figures, kind))
}

fn uniform(case: &Case, causes: &[Cause], ledger: &Ledger) -> String {
    let Some((comparison, spread)) = &case.main else { return String::new() };
    let capacity = comparison.capacities.values().min().map_or_else(String::new, |c| format!(" of {}", Bytes(*c)));
    let head = format!(
        "{} are equally full, {}{capacity}: no imbalance.",
        everyone(comparison),
        words::span(spread.min, spread.max)
    );
    let told = with_side_note(case, head.clone(), causes, ledger);
    if told == head { format!("{head} The job needs more than the cards have.") } else { told }
}

fn balanced(case: &Case, causes: &[Cause], ledger: &Ledger) -> String {
    let Some((comparison, spread)) = &case.main else { return String::new() };
    let apart = match spread.above_median() {
        above if above > 0.0 && above.is_finite() => {
            format!(", the highest {} above the median", words::percent(above))
        }
        _ => String::new(),
    };
    let head = format!(
        "Balanced in what was read: {} are {} {}{apart}.",
        everyone(comparison).to_lowercase(),
        words::span(spread.min, spread.max),
        comparison.quantity.title()
    );
    with_side_note(case, head, causes, ledger)
}

fn inconclusive(case: &Case, causes: &[Cause], ledger: &Ledger, next: Next, failed: Option<String>) -> String {
    if let Some(turns) = in_turns(case, causes, ledger) {
        let open = "The table lists no process, so it is open whether the cards do the same work.";
        return with(format!("{turns} {open}"), failed) + &settle(next);
    }
    let head = if let Some((comparison, spread)) = case.main.as_ref().filter(|(_, spread)| spread.stands_out()) {
        let (head, figures) = headline(case, comparison, spread);
        let figures = figures.map_or_else(String::new, |figures| format!(" ({figures})"));
        let head = head.trim_end_matches(',');
        format!("{head}{figures}; the table lists no process, so it is open whether the cards do the same work.")
    } else if let Some((comparison, spread)) = &case.main {
        let unseen = if comparison.all_full(case.policy).is_none() {
            "how full the cards are"
        } else {
            "the moment at which memory ran out"
        };
        format!(
            "{} are equal in the evidence ({} {}), which does not show {unseen}.",
            everyone(comparison),
            words::span(spread.min, spread.max),
            comparison.quantity.title()
        )
    } else if case.evidence.artifacts.is_empty() {
        return "Nothing was read yet. Add an nvidia-smi table, a step log, an out-of-memory message or a memory snapshot."
            .to_owned();
    } else {
        match mechanism(causes, ledger) {
            Some(m) if mechanism_confidence(causes, ledger) >= case.policy.leaning => {
                return with(m.alone, failed) + &settle(next);
            }
            _ => nothing_to_compare(case, ledger),
        }
    };
    with(with_side_note(case, head, causes, ledger), failed) + &settle(next)
}

fn nothing_to_compare(case: &Case, ledger: &Ledger) -> String {
    let has_figures = !(case.tables.iter().all(|view| view.max_used().is_none() && view.processes.is_empty())
        && !case.evidence.steps.iter().any(rankscope_model::StepRecord::has_memory)
        && !case.evidence.ooms.iter().any(has_figure)
        && case.evidence.snapshots.is_empty()
        && case.evidence.traces.iter().all(|trace| trace.peak.is_none()));
    if !has_figures {
        let none = match without_figures(case).as_slice() {
            [] => "No memory figures were found in the files.".to_owned(),
            read => format!("No memory figures were found: what was read is {}.", words::join(read)),
        };
        let failed = crate::ran_out::sentence(case);
        let of_script = |claim: &&crate::combine::Claim| {
            claim.severity >= Severity::Warning && Some(&claim.text) != failed.as_ref()
        };
        let said = ledger.claims.iter().find(of_script);
        return match said.filter(|_| !case.scripts.is_empty()) {
            Some(claim) => format!("{none} The script alone says: {}", claim.text),
            None => none,
        };
    }
    if let Some(text) = crate::imbalance::unnamed_snapshots(case) {
        return text;
    }
    if let Some((_, view)) = case.focus() {
        let in_use = view.in_use(case.policy);
        if in_use.is_empty() {
            return "No GPU in the table is in use: it was taken while nothing ran.".to_owned();
        }
        if let [only] = in_use.as_slice() {
            return format!(
                "Only {} is in use in the table: there is no second card to hold it against.",
                only.subject
            );
        }
    }
    match with_figures(case).into_iter().collect::<Vec<_>>().as_slice() {
        [] if case.tables.iter().any(|view| !view.processes.is_empty()) => {
            "The files tell what processes hold, and not how full the cards are: nothing can be held side by side."
                .to_owned()
        }
        [] => "No rank or card has a figure of memory in these files: nothing can be held side by side.".to_owned(),
        [only] => format!("Only {only} has figures in the files: there is nothing to hold them against."),
        several => format!(
            "{} have figures in the files, but none of the same kind that could be held side by side.",
            words::capital(&words::subjects(several))
        ),
    }
}

/// An out-of-memory message with a figure of what is held on the device.
fn has_figure(oom: &rankscope_model::OomEvent) -> bool {
    let figures = [oom.total, oom.limit, oom.free, oom.this_process, oom.allocated, oom.reserved];
    figures.iter().any(Option::is_some) || !oom.others.is_empty()
}

/// What was read and understood although it tells no memory.
fn without_figures(case: &Case) -> Vec<String> {
    let evidence = case.evidence;
    let asks = evidence.ooms.iter().any(|oom| oom.tried.is_some());
    let names_cards = evidence.device_tables.iter().any(|table| !table.devices.is_empty());
    let is_empty_list = |table: &rankscope_model::DeviceTable| table.devices.is_empty() && table.processes.is_empty();
    let names_nobody = evidence.device_tables.iter().any(is_empty_list);
    let kinds = [
        (!evidence.ooms.is_empty() && !asks, "an out-of-memory message without figures"),
        (asks, "an out-of-memory message that tells only what was asked for"),
        (names_cards, "a table of GPUs without their memory"),
        (names_nobody, "an empty list of processes (no process was on a GPU when it was taken)"),
        (!evidence.steps.is_empty(), "step lines with batches but no memory"),
        (!evidence.traces.is_empty(), "a profiler trace without memory events of a GPU"),
        (!evidence.topologies.is_empty(), "a matrix of links between GPUs"),
        (!evidence.scripts.is_empty(), "a training script"),
        (!evidence.launches.is_empty(), "launch settings"),
        (!evidence.phases.is_empty(), "a log that names phases of the job"),
    ];
    kinds.into_iter().filter(|(is_there, _)| *is_there).map(|(_, what)| what.to_owned()).collect()
}

/// Ranks and cards of which some figure is known.
fn with_figures(case: &Case) -> BTreeSet<Subject> {
    let mut found: BTreeSet<Subject> =
        case.evidence.steps.iter().filter(|row| row.has_memory()).map(|row| row.subject).collect();
    for oom in case.evidence.ooms.iter().filter(|oom| !oom.host_memory && has_figure(oom)) {
        found.extend(oom.rank.map(Subject::Rank).or(oom.device.map(Subject::Device)));
    }
    for snapshot in &case.evidence.snapshots {
        match snapshot.rank {
            Some(rank) => found.extend([Subject::Rank(rank)]),
            None => found.extend(snapshot.devices.iter().map(|device| Subject::Device(device.device))),
        }
    }
    found.extend(case.evidence.traces.iter().filter(|trace| trace.peak.is_some()).filter_map(crate::traces::subject));
    found
}

/// Adds what is known of the first cause when it is at least likely.
fn with_side_note(case: &Case, head: String, causes: &[Cause], ledger: &Ledger) -> String {
    let note = mechanism(causes, ledger).filter(|_| mechanism_confidence(causes, ledger) >= case.policy.leaning);
    match note {
        Some(mechanism) => format!("{head} {}", mechanism.alone),
        None => head,
    }
}

/// What would settle it, or prove the fix: the next step as a sentence behind the others.
fn settle(next: Next) -> String {
    let Some((item, collect)) = next else { return String::new() };
    let what = collect.what.split([';', ':', '.']).next().unwrap_or_default().trim();
    match (what, item) {
        ("", _) => String::new(),
        (_, Item::Verified) => format!(" What would prove the fix: {}.", words::lower_first(what)),
        (_, _) => format!(" What would settle it: {}.", words::lower_first(what)),
    }
}
