//! Item `device_visibility`: every rank is bound to a GPU of its own. Decided by who holds memory where.
//!
//! Foreign rows, crowds on one card, and every process on every card. One process on all cards is not a matter of
//! binding and is left to `data_parallel`.

use crate::case::Case;
use crate::collect;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::imbalance::{Source, Spread};
use crate::policy::{UNREADABLE_NAMES, weight};
use crate::readings::Readings;
use crate::stats::lower_median;
use crate::tables::{Gpu, TableView, same_capacity, sizes_of, sum_of};
use crate::words;
use rankscope_model::{
    Bytes, CauseLabel, EvidenceRef, Item, ItemStatus, OomEvent, ProcessListing, ProcessRow, Severity, Subject,
};
use std::collections::{BTreeMap, BTreeSet};

const ITEM: Item = Item::DeviceVisibility;

/// Causes that leave the same foreign rows.
const FAMILY: [CauseLabel; 4] = [
    CauseLabel::CtxNoSetDevice,
    CauseLabel::CkptNoMapLocation,
    CauseLabel::HelperThreadOrLibCtx,
    CauseLabel::HardcodedOrDefaultDevice,
];

/// Causes that the owners of the processes decide on.
const OTHERS: [CauseLabel; 4] = [
    CauseLabel::OtherTenant,
    CauseLabel::ZombieLeftover,
    CauseLabel::RankGpuMapping,
    CauseLabel::ColocatedEngineOrDeviceMap,
];

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some((index, view)) = case.focus().filter(|(_, view)| view.lists_processes()) else {
        without_process_rows(case, ledger);
        return;
    };
    if view.in_use(case.policy).len() == 1 {
        ledger.collect(ITEM, &[], collect::launch());
    }
    if crate::tables::is_one_process_job(view, case.policy) {
        return;
    }
    let everywhere = every_process_everywhere(case, index, view, ledger);
    if !everywhere {
        foreign_rows(case, index, view, ledger);
    }
    crowds(case, view, ledger);
    empty_rows(case, view, ledger);
    one_each(case, view, ledger);
}

/// Containers print no processes; out-of-memory messages may still list them.
fn without_process_rows(case: &Case, ledger: &mut Ledger) {
    if case.focus().is_some() {
        ledger.collect(ITEM, &[], collect::table_now());
    }
    for oom in case.evidence.ooms.iter().filter(|oom| !oom.others.is_empty()) {
        listed_by_oom(case, oom, ledger);
    }
    first_card(case, ledger);
}

/// Used memory alone, and the first card is the only one above the others. Much leaves that behind; what the catalogue
/// shows most often is named, each with little, so that the reader knows what to look for.
fn first_card(case: &Case, ledger: &mut Ledger) {
    let Some((comparison, spread)) = &case.on_cards else { return };
    let (Source::Tables(_), [card]) = (&comparison.source, spread.heaviest.as_slice()) else { return };
    let first = comparison.values.iter().map(|(subject, _)| *subject).min();
    let others = u64::try_from(comparison.values.len().saturating_sub(1)).unwrap_or(u64::MAX);
    let Some(each) = spread.gap().checked_div(others) else { return };
    if spread.is_low_outlier || first != Some(*card) || *card != Subject::Device(0) {
        return;
    }
    // What strays onto a card or is gathered there is there from the start; what came later has another reason.
    let from_the_start = Readings::new(case, case.policy.growth_points).is_none_or(|readings| {
        let spread = Spread::of(&readings.at(0), case.policy);
        spread.is_some_and(|spread| !spread.is_low_outlier && spread.heaviest == [*card])
    });
    if !from_the_start {
        return;
    }
    let places: Vec<_> = case.focus().iter().flat_map(|(_, view)| view.gpus.iter().map(|gpu| &gpu.row.at)).collect();
    let refs = case.refs(places);
    let text = format!("{card}, the first one, is the only card above the others, by {}.", Bytes(spread.gap()));
    if (case.policy.context_least.0..=case.policy.context_max.0).contains(&each) {
        let text =
            format!("{text} That is {} for each other card, what a stray context of its process takes.", Bytes(each));
        ledger.signal(&FAMILY, weight::FAINT, text, &refs);
    } else {
        ledger.signal(
            &[CauseLabel::CkptNoMapLocation, CauseLabel::HardcodedOrDefaultDevice],
            weight::FAINT,
            &text,
            &refs,
        );
    }
    let duties = [
        CauseLabel::DataparallelMaster,
        CauseLabel::Rank0Eval,
        CauseLabel::CkptStateGather,
        CauseLabel::Rank0LoggingOrTrace,
        CauseLabel::Rank0AuxBuffers,
    ];
    ledger.signal(&duties, weight::FAINT, &text, &refs);
}

fn listed_by_oom(case: &Case, oom: &OomEvent, ledger: &mut Ledger) {
    let sizes: Vec<u64> = oom.others.iter().map(|o| o.used.0).collect();
    let card = oom.device.map_or_else(|| "the card".to_owned(), |d| format!("GPU {d}"));
    let refs = case.refs([&oom.at]);
    let count = sizes.len();
    let text = format!(
        "The out-of-memory message lists {} on {card}: {}.",
        words::counted(count, "other process", "other processes"),
        words::sizes(&sizes)
    );
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let big = oom.others.iter().filter(|other| other.used > case.policy.context_max).map(|other| other.pid);
    let together = siblings(big, case.policy.sibling_pids);
    if largest <= case.policy.context_max.0 {
        ledger.signal(&FAMILY, weight::GOOD, &text, &refs);
        ledger.signal(&[CauseLabel::CtxInWorkerProcesses], weight::FAIR, &text, &refs);
        let hold = if count == 1 { "holds" } else { "hold" };
        let because = format!(
            "{} also {hold} what a CUDA context takes on it",
            words::counted(count, "other process", "other processes")
        );
        let alone = format!("{text} That is the size of a CUDA context, not of a rank's share of the model.");
        ledger.mechanism(&FAMILY, &Mechanism { because, alone, explained: None });
    } else if together >= 2 {
        ledger.signal(&[CauseLabel::RankGpuMapping], weight::STRONG, &text, &refs);
        let how_many =
            if together == count { "Their PIDs".to_owned() } else { format!("PIDs of {}", words::count(together)) };
        ledger.signal(
            &[CauseLabel::RankGpuMapping],
            weight::FAIR,
            format!("{how_many} follow each other, as those of ranks started by one launcher do."),
            &refs,
        );
        ledger.signal(&[CauseLabel::ColocatedEngineOrDeviceMap, CauseLabel::OtherTenant], weight::GOOD, &text, &refs);
        let n = words::counted(count + 1, "process", "processes");
        let mechanism = Mechanism {
            because: format!("{n} of several GiB share it"),
            alone: format!("{card} holds {n} of several GiB; PIDs that follow each other speak for ranks of one job."),
            explained: None,
        };
        ledger.mechanism(&[CauseLabel::RankGpuMapping], &mechanism);
    } else {
        ledger.signal(&[CauseLabel::OtherTenant], weight::GOOD, &text, &refs);
        ledger.signal(
            &[CauseLabel::RankGpuMapping, CauseLabel::ColocatedEngineOrDeviceMap, CauseLabel::ZombieLeftover],
            weight::FAIR,
            &text,
            &refs,
        );
        let alone = format!(
            "{} besides the failing one {} memory on {card}.",
            words::capital(&words::counted(count, "process", "processes")),
            if count == 1 { "holds" } else { "hold" }
        );
        ledger.mechanism(
            &[CauseLabel::OtherTenant],
            &Mechanism { because: "another process holds memory on it".to_owned(), alone, explained: None },
        );
    }
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.collect(ITEM, &[], collect::table_now());
    ledger.collect(ITEM, &OTHERS, collect::owners(&oom.others.iter().map(|o| o.pid).collect::<Vec<_>>()));
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Warning,
        confidence: 0.95,
        text,
        ranks: oom.rank.map(|r| r.0).into_iter().collect(),
        refs,
    });
}

/// How many PIDs have another one close enough to have been started together.
fn siblings(pids: impl Iterator<Item = u32>, span: u32) -> usize {
    let pids: Vec<u32> = pids.collect::<BTreeSet<_>>().into_iter().collect();
    let is_near = |a: Option<&u32>, b: u32| a.is_some_and(|a| a.abs_diff(b) <= span);
    let before = |at: usize| at.checked_sub(1).and_then(|at| pids.get(at));
    pids.iter().enumerate().filter(|(at, pid)| is_near(before(*at), **pid) || is_near(pids.get(at + 1), **pid)).count()
}

/// N processes on N cards, each holding something on nearly every card.
fn every_process_everywhere(case: &Case, index: usize, view: &TableView, ledger: &mut Ledger) -> bool {
    let cards = view.gpus.len();
    let processes = view.processes.len();
    let foreign: Vec<&ProcessRow> = view.processes.values().flat_map(|p| p.visits(case.policy)).collect();
    let beyond_home: usize = view.processes.values().map(|p| p.rows.len().saturating_sub(1)).sum();
    let possible = processes * cards.saturating_sub(1);
    if processes < 2 || cards < 2 || (beyond_home as f64) < possible as f64 * case.policy.everyone_everywhere {
        return false;
    }
    // On two cards one foreign row each way is needed; otherwise it is one card that is visited.
    let visited: BTreeSet<Subject> = foreign.iter().map(|row| row.subject).collect();
    if visited.len() < 2 {
        return false;
    }
    let sum = sum_of(&foreign);
    let refs = case.refs(foreign.iter().map(|row| &row.at));
    let text = format!(
        "{} of {processes} processes on {cards} GPUs hold memory beyond their own GPU: {}{}.",
        words::capital(&words::count(view.processes.values().filter(|p| p.rows.len() > 1).count())),
        words::numbered(foreign.len(), "row", "rows"),
        if sum.is_some() { format!(" of {}", sizes_of(&foreign)) } else { ", sizes not printed".to_owned() }
    );
    let per_card = sum
        .map(|sum| sum / u64::try_from(cards).unwrap_or(1).max(1))
        .map_or_else(String::new, |bytes| format!(": {} per card that no own process uses", Bytes(bytes)));
    ledger.signal(&[CauseLabel::ObjectCollectiveDevice], weight::DECISIVE, &text, &refs);
    let label = CauseLabel::ObjectCollectiveDevice;
    ledger.caveat(label, "A loop over all GPUs in every process (mem_get_info, get_device_properties with a tensor) leaves the same rows.");
    if let Some((before, when)) = appeared(case, index, &foreign) {
        ledger.signal(
            &[label],
            weight::FAIR,
            format!("{before} the same processes were on their own GPU only; the rows appear {when}."),
            &refs,
        );
    }
    ledger.mechanism(
        &[label],
        &Mechanism {
            because: "every process also holds a context on every other card".to_owned(),
            alone: format!("Every process also holds memory on every other card{per_card}."),
            explained: None,
        },
    );
    ledger.status(ITEM, ItemStatus::Fail);
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Warning,
        confidence: 0.95,
        text,
        ranks: vec![],
        refs,
    });
    true
}

/// Processes that are at home elsewhere and also hold memory on one card.
fn foreign_rows(case: &Case, index: usize, view: &TableView, ledger: &mut Ledger) {
    let mut by_card: Vec<(Subject, Vec<&ProcessRow>)> = view
        .gpus
        .iter()
        .map(|gpu| (gpu.subject, view.visitors(gpu.subject, case.policy)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    by_card.sort_by_key(|(subject, rows)| (std::cmp::Reverse(rows.len()), *subject));
    let Some((card, rows)) = by_card.first() else { return };
    let card = *card;
    let homes: Vec<Subject> = homes_of(view, rows);
    let sizes: Vec<u64> = rows.iter().filter_map(|row| row.used).map(|b| b.0).collect();
    // A missing size is not zero: without all of them nothing is said of how much they are.
    let sum = sum_of(rows);
    let typical = sum.and_then(|_| lower_median(&sizes));
    // The same processes on more cards are told in one breath.
    let pids = |rows: &[&ProcessRow]| rows.iter().map(|row| row.pid).collect::<BTreeSet<_>>();
    let visited: Vec<&(Subject, Vec<&ProcessRow>)> =
        by_card.iter().filter(|(_, others)| pids(others) == pids(rows)).collect();
    let places = words::subjects(&visited.iter().map(|(subject, _)| *subject).collect::<Vec<_>>());
    let everywhere: Vec<&ProcessRow> = visited.iter().flat_map(|(_, rows)| rows).copied().collect();
    let refs = case.refs(everywhere.iter().map(|row| &row.at));
    let size_text = sizes_of(&everywhere);
    let text = format!(
        "{} at home on {} also {} {size_text} on {places}.",
        words::capital(&words::counted(rows.len(), "process", "processes")),
        words::subjects(&homes),
        if rows.len() == 1 { "holds" } else { "hold" },
    );

    let is_context = typical.is_none_or(|bytes| bytes <= case.policy.context_max.0);
    let family: &[CauseLabel] =
        if is_context { &FAMILY } else { &[CauseLabel::HardcodedOrDefaultDevice, CauseLabel::CkptNoMapLocation] };
    match typical {
        None => {
            let unknown = if sizes.is_empty() { "Sizes are not printed." } else { "Not all sizes are printed." };
            ledger.signal(&FAMILY, weight::GOOD, format!("{text} {unknown}"), &refs);
        }
        Some(bytes) if bytes <= case.policy.context_max.0 => {
            ledger.signal(&FAMILY, weight::STRONG, &text, &refs);
            if says_resume(case) {
                let why = "The log shows that a checkpoint was loaded.";
                ledger.signal(&[CauseLabel::CkptNoMapLocation], weight::FAINT, why, &[]);
            }
            if bytes > case.policy.context_bare.0 {
                ledger.signal(
                    &[CauseLabel::CkptNoMapLocation, CauseLabel::HardcodedOrDefaultDevice],
                    weight::FAINT,
                    format!("{} is more than a bare context: some tensors lie there too.", Bytes(bytes)),
                    &refs,
                );
            }
        }
        Some(bytes) => {
            let reason = format!("{text} {} is model or optimizer state, not a context.", Bytes(bytes));
            ledger.signal(&[CauseLabel::HardcodedOrDefaultDevice], weight::GOOD, &reason, &refs);
            ledger.signal(&[CauseLabel::CkptNoMapLocation], weight::GOOD, &reason, &refs);
            // Without a sign of a resumed run the cause that needs none comes first.
            let resumed = says_resume(case);
            if resumed {
                let why = "The log shows that a checkpoint was loaded.";
                ledger.signal(&[CauseLabel::CkptNoMapLocation], weight::GOOD, why, &[]);
            } else {
                let against = "Nothing in the evidence says that a checkpoint was loaded.";
                ledger.signal(&[CauseLabel::CkptNoMapLocation], -weight::FAINT - weight::FAINT, against, &[]);
            }
        }
    }
    share_of_gap(case, card, sum, family, &refs, ledger);
    if homes.iter().any(|home| *home < card) {
        ledger.signal(
            &[CauseLabel::CtxNoSetDevice, CauseLabel::CkptNoMapLocation, CauseLabel::HelperThreadOrLibCtx],
            -weight::FAIR,
            format!("{card} is not the first GPU of these processes; a default device would be."),
            &refs,
        );
    }
    when_rows_appear(case, index, rows, &refs, ledger);
    caveats(is_context, ledger);

    let owners = format!(
        "the {} of {}",
        if homes.len() == 1 { "process" } else { "processes" },
        others_text(view, card, &homes)
    );
    let doing = if is_context { "also opened a CUDA context on it" } else { "also put tensors on it" };
    let holds = if rows.len() == 1 { "holds" } else { "hold" };
    let nobody = match (view.residents(card, case.policy).is_empty(), rows.len()) {
        _ if visited.len() > 1 => "",
        (false, _) => "",
        (true, 1) => ", where it does not work",
        (true, _) => ", where none of them works",
    };
    ledger.mechanism(
        family,
        &Mechanism {
            because: format!("{owners} {doing}"),
            alone: format!("{} also {holds} {size_text} on {places}{nobody}.", words::capital(&owners)),
            explained: crate::apart::explained_by_visitors(case, sum),
        },
    );
    ledger.fills(family, card);
    ledger.ranks(family, &ranks_of(rows));
    ledger.status(ITEM, ItemStatus::Fail);
    for ask in [collect::tables_from_the_start(), collect::fresh_start(), collect::one_visible_gpu()] {
        ledger.collect(ITEM, &FAMILY, ask);
    }
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: if case.gap_on(card).is_some() { Severity::Critical } else { Severity::Warning },
        confidence: 0.97,
        text,
        ranks: ranks_of(rows),
        refs,
    });
}

/// The log says that a checkpoint was loaded.
fn says_resume(case: &Case) -> bool {
    let resume = rankscope_model::Phase::Resume;
    case.steps.rows.keys().any(|key| key.phase == Some(resume))
        || case.evidence.phases.iter().any(|mark| mark.phase == resume)
}

/// Global ranks of rows, where something tells them.
fn ranks_of(rows: &[&ProcessRow]) -> Vec<u32> {
    rows.iter().filter_map(|row| row.rank).map(|rank| rank.0).collect()
}

fn homes_of(view: &TableView, rows: &[&ProcessRow]) -> Vec<Subject> {
    let homes: BTreeSet<Subject> =
        rows.iter().filter_map(|row| view.processes.get(&row.pid?)).filter_map(|process| process.home).collect();
    homes.into_iter().collect()
}

/// `GPU 3`, `the two other GPUs`, `the seven other GPUs`.
fn others_text(view: &TableView, card: Subject, homes: &[Subject]) -> String {
    let is_all = view.gpus.iter().all(|gpu| gpu.subject == card || homes.contains(&gpu.subject));
    match homes {
        [only] => only.to_string(),
        _ if is_all && matches!(card, Subject::Device(_)) => format!("the {} other GPUs", words::count(homes.len())),
        _ => words::subjects(homes),
    }
}

/// How much of the card's gap some bytes account for, as a signal; nothing where the bytes are not known.
fn share_of_gap(
    case: &Case,
    card: Subject,
    bytes: Option<u64>,
    labels: &[CauseLabel],
    refs: &[EvidenceRef],
    ledger: &mut Ledger,
) {
    let (Some(gap), Some(bytes)) = (case.gap_on(card).filter(|gap| *gap > 0), bytes) else { return };
    let share = bytes as f64 / gap as f64;
    if share >= case.policy.explains_most {
        let reason = format!(
            "These rows account for {} of the {} between {card} and the median card.",
            Bytes(bytes.min(gap)),
            Bytes(gap)
        );
        ledger.signal(labels, weight::FAIR, reason, refs);
    } else if share < case.policy.explains_little {
        let reason =
            format!("These rows are {} of the {} above the median; they cannot be the gap.", Bytes(bytes), Bytes(gap));
        ledger.signal(labels, -weight::GOOD - weight::FAINT, reason, refs);
    }
}

/// An earlier table of the same cards in which the same processes hold nothing outside their own card. A context is
/// given up only when its process ends, so the table without rows is the earlier one whatever its time.
fn without_visits<'v, 'a>(case: &'v Case<'a>, index: usize, rows: &[&ProcessRow]) -> Option<&'v TableView<'a>> {
    let pids: BTreeSet<u32> = rows.iter().filter_map(|row| row.pid).collect();
    case.series_of(index).iter().filter(|other| **other != index).filter_map(|other| case.tables.get(*other)).find(
        |view| {
            view.lists_processes()
                && pids.iter().all(|pid| view.processes.get(pid).is_some_and(|p| p.visits(case.policy).is_empty()))
        },
    )
}

/// `At` the time of the earlier table, and `between it and ...`.
fn appeared(case: &Case, index: usize, rows: &[&ProcessRow]) -> Option<(String, String)> {
    let earlier = without_visits(case, index, rows)?;
    let later = case.tables.get(index)?;
    let name = |view: &TableView| crate::imbalance::table_name(case, &view.table.at, view.table.time_text.as_deref());
    let (earlier, later) = (name(earlier), name(later));
    let when = crate::imbalance::between(&earlier, &later);
    let before = if earlier == later { "Just before that".to_owned() } else { format!("At {earlier}") };
    Some((before, when))
}

/// Rows that appear before any work point to start-up code, rows that come with the work to what starts there.
fn when_rows_appear(case: &Case, index: usize, rows: &[&ProcessRow], refs: &[EvidenceRef], ledger: &mut Ledger) {
    let (Some(earlier), Some(later), Some((_, when))) =
        (without_visits(case, index, rows), case.tables.get(index), appeared(case, index, rows))
    else {
        return;
    };
    let works = |view: &TableView| {
        let known: Vec<u8> = view.in_use(case.policy).iter().filter_map(|gpu| gpu.row.utilization_percent).collect();
        (!known.is_empty()).then(|| known.iter().any(|percent| *percent > 0))
    };
    match (works(earlier), works(later)) {
        (_, Some(false)) => {
            let reason =
                format!("The rows appear {when}, while every GPU is at 0 % utilisation: at start-up, not in the loop.");
            ledger.signal(&[CauseLabel::CtxNoSetDevice], weight::FAIR, &reason, refs);
            ledger.signal(&[CauseLabel::HelperThreadOrLibCtx], -weight::FAINT, &reason, refs);
            ledger.status(Item::DistributedInit, ItemStatus::Suspect);
        }
        (Some(false), Some(true)) => {
            let reason = format!(
                "The rows appear {when}: the processes already held memory on their own GPU, and training has begun since."
            );
            ledger.signal(&[CauseLabel::HelperThreadOrLibCtx], weight::FAIR, &reason, refs);
            ledger.signal(&[CauseLabel::CtxNoSetDevice, CauseLabel::CkptNoMapLocation], -weight::FAINT, &reason, refs);
        }
        _ => {}
    }
}

/// What would look the same.
fn caveats(is_context: bool, ledger: &mut Ledger) {
    let context: &[(CauseLabel, &str)] = &[
        (
            CauseLabel::CtxNoSetDevice,
            "A checkpoint loaded without map_location leaves the same rows, but only on a resumed run.",
        ),
        (CauseLabel::CkptNoMapLocation, "Ranks that never call set_device leave the same rows, also on a fresh start."),
        (
            CauseLabel::HelperThreadOrLibCtx,
            "A missing set_device leaves the same rows; a helper opens them only when the loader or a library starts.",
        ),
        (
            CauseLabel::HardcodedOrDefaultDevice,
            "A missing set_device leaves the same rows; only the script tells a hard-coded device from it.",
        ),
    ];
    let state: &[(CauseLabel, &str)] = &[
        (
            CauseLabel::HardcodedOrDefaultDevice,
            "A checkpoint loaded without map_location leaves rows of this size too, but only on a resumed run.",
        ),
        (
            CauseLabel::CkptNoMapLocation,
            "Code that names one device leaves rows of this size too, also on a fresh start.",
        ),
    ];
    for (label, text) in if is_context { context } else { state } {
        ledger.caveat(*label, *text);
    }
}

/// Several processes at home on one card. Only the card with the largest crowd is told: one mistake makes all.
fn crowds(case: &Case, view: &TableView, ledger: &mut Ledger) {
    // A card without an equal one beside it leaves its processes no choice.
    let has_twin = |gpu: &&Gpu| {
        let equal = view.gpus.iter().filter(|other| same_capacity(other.total, gpu.total, case.policy));
        matches!(gpu.subject, Subject::Device(_)) && equal.count() >= 2
    };
    let largest = view
        .gpus
        .iter()
        .filter(has_twin)
        .filter_map(|gpu| Some((gpu.subject, crowd_on(case, view, gpu.subject)?)))
        .max_by_key(|(subject, group)| {
            let bytes = group.iter().filter_map(|row| row.used).fold(0u64, |sum, b| sum.saturating_add(b.0));
            (group.len(), bytes, std::cmp::Reverse(*subject))
        });
    if let Some((card, group)) = largest {
        crowd(case, view, card, &group, ledger);
    }
}

/// The largest group of processes of one name that have this card and no other as their home.
fn crowd_on<'a>(case: &Case, view: &TableView<'a>, card: Subject) -> Option<Vec<&'a ProcessRow>> {
    let mut by_name: BTreeMap<&str, Vec<&ProcessRow>> = BTreeMap::new();
    for row in view.residents(card, case.policy) {
        let name = row.name.as_deref().unwrap_or("");
        let process = row.pid.and_then(|pid| view.processes.get(&pid));
        let has_one_home = process.is_some_and(|p| p.rows.len() == p.visits(case.policy).len() + 1);
        if has_one_home && !UNREADABLE_NAMES.iter().any(|bad| name.eq_ignore_ascii_case(bad)) {
            by_name.entry(name).or_default().push(row);
        }
    }
    by_name.into_values().max_by_key(Vec::len).filter(|group| group.len() >= 2)
}

fn crowd(case: &Case, view: &TableView, card: Subject, group: &[&ProcessRow], ledger: &mut Ledger) {
    let sizes: Vec<u64> = group.iter().filter_map(|row| row.used).map(|b| b.0).collect();
    let Some(typical) = lower_median(&sizes) else { return };
    let elsewhere: Vec<u64> = view
        .processes
        .values()
        .filter(|p| p.home.is_some_and(|home| home != card))
        .filter_map(crate::tables::Process::home_bytes)
        .collect();
    let refs = case.refs(group.iter().map(|row| &row.at));
    let text = format!(
        "{} of the same name are at home on {card}: {}.",
        words::capital(&words::counted(group.len(), "process", "processes")),
        sizes_of(group)
    );
    // One of them belongs there, unless another process is at home on the card that is no less.
    let has_owner = view
        .residents(card, case.policy)
        .iter()
        .any(|row| row.used.is_some_and(|used| used.0 >= typical) && !group.iter().any(|one| std::ptr::eq(*one, *row)));
    let largest = if has_owner { 0 } else { sizes.iter().max().copied().unwrap_or(0) };
    let extra = sum_of(group).map(|sum| sum.saturating_sub(largest));
    let full_size = lower_median(&elsewhere).map_or(case.policy.context_max.0, |other| {
        Bytes::from_float(other as f64 * case.policy.visit_share, 1)
            .unwrap_or_default()
            .0
            .max(case.policy.context_max.0)
    });
    let small: Vec<&&ProcessRow> =
        group.iter().filter(|row| row.used.is_some_and(|b| b.0 <= case.policy.context_max.0)).collect();
    let (label, gain) = if typical >= full_size {
        // Two may be two jobs; from three on it is one that was told the same card.
        let gain = match (group.len(), elsewhere.is_empty()) {
            (2, _) => weight::GOOD,
            (_, true) => weight::DECISIVE,
            (_, false) => weight::STRONG,
        };
        (CauseLabel::RankGpuMapping, gain)
    } else if small.len() + 1 >= group.len() {
        ledger.signal(&[CauseLabel::HelperThreadOrLibCtx], weight::FAIR, &text, &refs);
        (CauseLabel::CtxInWorkerProcesses, if group.len() == 2 { weight::FAIR } else { weight::STRONG })
    } else {
        // One process too many, smaller than a rank: most likely the parent that touched a GPU before the ranks began.
        let first_pid = view.processes.keys().next().copied();
        let smallest = group.iter().min_by_key(|row| row.used).and_then(|row| row.pid);
        if first_pid.is_some() && first_pid == smallest {
            ledger.signal(
                &[CauseLabel::HardcodedOrDefaultDevice],
                weight::FAIR,
                format!("The smaller of them has the lowest PID of all: a parent that used {card} before it started the ranks."),
                &refs,
            );
        }
        ledger.signal(&[CauseLabel::CtxInWorkerProcesses], weight::FAINT, &text, &refs);
        (CauseLabel::HardcodedOrDefaultDevice, weight::FAIR)
    };
    ledger.signal(&[label], gain, &text, &refs);
    if elsewhere.is_empty() && label == CauseLabel::RankGpuMapping {
        ledger.signal(&[label], weight::FAINT, "No process is at home on any other GPU.", &refs);
    }
    share_of_gap(case, card, extra, &[label], &refs, ledger);
    let n = words::counted(group.len(), "process", "processes");
    let what = match label {
        CauseLabel::RankGpuMapping => "of the size of a rank",
        CauseLabel::CtxInWorkerProcesses => "of the size of a context",
        _ => "of one name",
    };
    ledger.mechanism(
        &[label],
        &Mechanism {
            because: format!("{n} {what} are at home on it"),
            alone: format!("{} {what} are at home on {card}.", words::capital(&n)),
            explained: extra,
        },
    );
    ledger.fills(&[label], card);
    ledger.ranks(&[label], &ranks_of(group));
    ledger.status(ITEM, ItemStatus::Fail);
    ledger.collect(ITEM, &[label], collect::which_gpu());
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Critical,
        confidence: 0.95,
        text,
        ranks: ranks_of(group),
        refs,
    });
}

/// Rows with 0 MiB hold nothing and accuse nobody.
fn empty_rows(case: &Case, view: &TableView, ledger: &mut Ledger) {
    if view.empty_rows.is_empty() {
        return;
    }
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Info,
        confidence: 0.95,
        text: format!(
            "{} hold 0 MiB: the processes are listed there but take no memory.",
            words::capital(&words::counted(view.empty_rows.len(), "row", "rows"))
        ),
        ranks: vec![],
        refs: case.refs(view.empty_rows.iter().map(|row| &row.at)),
    });
}

/// Evidence for the item: one process per working card, and none on a card of another.
fn one_each(case: &Case, view: &TableView, ledger: &mut Ledger) {
    let in_use = view.in_use(case.policy);
    let is_alone = |subject: Subject| view.gpu(subject).is_some_and(|gpu| gpu.compute.len() == 1);
    let stays_home = view.processes.values().all(|p| p.rows.len() == 1);
    if view.table.listing != ProcessListing::Listed
        || in_use.len() < 2
        || !stays_home
        || !in_use.iter().all(|gpu| is_alone(gpu.subject))
    {
        return;
    }
    ledger.status(ITEM, ItemStatus::Pass);
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Info,
        confidence: 0.9,
        text: format!(
            "Each of the {} GPUs in use holds one process, and no process holds memory on a second GPU.",
            words::count(in_use.len())
        ),
        ranks: vec![],
        refs: case.refs(in_use.iter().flat_map(|gpu| gpu.compute.iter().map(|row| &row.at))),
    });
}
