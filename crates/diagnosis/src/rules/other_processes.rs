//! Processes that are not ranks of the job: another tenant, the leftover of a dead job, another engine of the same job,
//! or memory that no listed process owns. Shown under `device_visibility`.

use crate::case::Case;
use crate::collect;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::{ENGINE_NAMES, UNREADABLE_NAMES, weight};
use crate::stats::lower_median;
use crate::tables::{Process, TableView, is_one_process_job, sizes_of, sum_of};
use crate::words;
use rankscope_model::{Bytes, CauseLabel, Item, ItemStatus, OomEvent, ProcessRow, Severity, Subject};
use std::collections::BTreeSet;

const ITEM: Item = Item::DeviceVisibility;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let focus = case.focus();
    if let Some((index, view)) = focus.filter(|(_, view)| view.lists_processes()) {
        nameless(case, view, ledger);
        if !is_one_process_job(view, case.policy) {
            strangers(case, view, ledger);
        }
        unlisted(case, view, ledger);
        survivors(case, index, ledger);
        all_idle(case, view, ledger);
    }
    held_by_others(case, ledger);
}

fn is_nameless(row: &ProcessRow) -> bool {
    let name = row.name.as_deref().map_or("", str::trim).trim_matches(['[', ']']);
    UNREADABLE_NAMES.iter().any(|bad| name.eq_ignore_ascii_case(bad.trim_matches(['[', ']'])))
}

/// Rows whose process could not be looked up any more.
fn nameless(case: &Case, view: &TableView, ledger: &mut Ledger) {
    let rows: Vec<&ProcessRow> =
        view.gpus.iter().flat_map(|gpu| &gpu.compute).filter(|row| is_nameless(row)).copied().collect();
    if rows.is_empty() {
        return;
    }
    let refs = case.refs(rows.iter().map(|row| &row.at));
    let text = format!(
        "{} whose name cannot be read {} {}: the driver still counts {}, the system no longer shows {}.",
        words::capital(&words::counted(rows.len(), "process", "processes")),
        if rows.len() == 1 { "holds" } else { "hold" },
        sizes_of(&rows),
        if rows.len() == 1 { "it" } else { "them" },
        if rows.len() == 1 { "it" } else { "them" },
    );
    let label = CauseLabel::ZombieLeftover;
    ledger.signal(&[label], weight::STRONG, &text, &refs);
    ledger.signal(&[CauseLabel::OtherTenant], weight::FAIR, &text, &refs);
    ledger.caveat(label, "Processes of another user or container can be nameless too.");
    let places: BTreeSet<Subject> = rows.iter().map(|row| row.subject).collect();
    let sum = sum_of(&rows);
    let how_much = sum.map_or_else(|| "Memory of unknown size".to_owned(), |sum| Bytes(sum).to_string());
    let belong = if sum.is_some() { "belong" } else { "belongs" };
    ledger.mechanism(
        &[label],
        &Mechanism {
            because: "processes that the system no longer shows hold memory on it".to_owned(),
            alone: format!(
                "{how_much} on {} {belong} to processes that the system no longer shows.",
                words::subjects(&places.into_iter().collect::<Vec<_>>())
            ),
            explained: sum,
        },
    );
    suspect(ledger, &rows);
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Warning,
        confidence: 0.9,
        text,
        ranks: vec![],
        refs,
    });
}

/// On one card, names that no other working card shows.
fn strangers(case: &Case, view: &TableView, ledger: &mut Ledger) {
    let in_use: Vec<Subject> = view.in_use(case.policy).iter().map(|gpu| gpu.subject).collect();
    if in_use.len() < 2 {
        return;
    }
    for card in &in_use {
        let Some(gap) = case.gap_on(*card) else { continue };
        let known: BTreeSet<&str> = in_use
            .iter()
            .filter(|other| *other != card)
            .flat_map(|other| view.residents(*other, case.policy))
            .filter_map(|row| row.name.as_deref())
            .collect();
        let rows: Vec<&ProcessRow> = view
            .residents(*card, case.policy)
            .into_iter()
            .filter(|row| row.name.as_deref().is_some_and(|name| !known.contains(name)) && !is_nameless(row))
            .collect();
        if rows.is_empty() || known.is_empty() {
            continue;
        }
        let names: Vec<String> =
            rows.iter().filter_map(|row| row.name.clone()).collect::<BTreeSet<_>>().into_iter().collect();
        let sum = sum_of(&rows);
        let refs = case.refs(rows.iter().map(|row| &row.at));
        let text = format!(
            "{card} holds {} that no other GPU in use shows ({}): {}.",
            words::counted(rows.len(), "process", "processes"),
            words::join(&names),
            sizes_of(&rows)
        );
        let is_engine = names.iter().any(|name| ENGINE_NAMES.iter().any(|engine| name.contains(engine)));
        let label = if is_engine { CauseLabel::ColocatedEngineOrDeviceMap } else { CauseLabel::OtherTenant };
        if is_engine {
            ledger.signal(
                &[label],
                weight::STRONG,
                format!("{text} The names are those of an engine or actor."),
                &refs,
            );
        } else {
            ledger.signal(&[label], weight::GOOD, &text, &refs);
            ledger.signal(
                &[CauseLabel::ZombieLeftover, CauseLabel::ColocatedEngineOrDeviceMap],
                weight::FAINT,
                &text,
                &refs,
            );
            ledger.caveat(label, "The name alone does not show the owner; ps does.");
        }
        match sum {
            Some(sum) if sum as f64 >= gap as f64 * case.policy.explains_most => {
                let reason = format!("That is {} of the {} above the median card.", Bytes(sum.min(gap)), Bytes(gap));
                ledger.signal(&[label], weight::FAIR, reason, &refs);
            }
            Some(sum) if (sum as f64) < gap as f64 * case.policy.explains_little => {
                let reason = format!("That is only {} of the {} above the median card.", Bytes(sum), Bytes(gap));
                ledger.signal(&[label], -weight::GOOD, reason, &refs);
            }
            _ => {}
        }
        let how_much = sum.map_or_else(|| "size not printed".to_owned(), |sum| Bytes(sum).to_string());
        let who = if is_engine { "another engine of the job" } else { "a process that is not on the other cards" };
        ledger.mechanism(
            &[label],
            &Mechanism {
                because: format!("{who} also runs on it ({how_much})"),
                alone: format!("{} also runs on {card} ({how_much}).", words::capital(who)),
                explained: sum,
            },
        );
        suspect(ledger, &rows);
        ledger.claim(Claim {
            item: ITEM,
            label: Some(label),
            severity: Severity::Warning,
            confidence: 0.9,
            text,
            ranks: vec![],
            refs,
        });
    }
}

/// Used memory above the sum of the rows, more than on the other cards.
fn unlisted(case: &Case, view: &TableView, ledger: &mut Ledger) {
    let open: Vec<(Subject, u64)> =
        view.gpus.iter().filter_map(|gpu| Some((gpu.subject, view.unaccounted(gpu)?))).collect();
    for (card, bytes) in &open {
        let others: Vec<u64> = open.iter().filter(|(other, _)| other != card).map(|(_, b)| *b).collect();
        let usual = lower_median(&others).unwrap_or(0);
        let excess = bytes.saturating_sub(usual);
        if excess < case.policy.unaccounted_min.0 {
            continue;
        }
        let Some(gpu) = view.gpu(*card) else { continue };
        let refs = case.refs([&gpu.row.at]);
        let text = format!(
            "{card} uses {} more than its listed processes hold{}.",
            Bytes(*bytes),
            if others.is_empty() { String::new() } else { format!("; on the other cards it is {}", Bytes(usual)) }
        );
        // It may be there and yet not be what the reader asks about: little of a far wider gap is told, not accused.
        let small_part = case.gap_on(*card).filter(|gap| (excess as f64) < *gap as f64 * case.policy.explains_little);
        let text = match small_part {
            Some(gap) => format!("{text} That is only a small part of the {} above the median card.", Bytes(gap)),
            None => text,
        };
        if small_part.is_none() {
            ledger.signal(&[CauseLabel::ZombieLeftover], weight::GOOD, &text, &refs);
            ledger.signal(&[CauseLabel::OtherTenant], weight::FAIR, &text, &refs);
            let caveat = "A process in another container or namespace is not listed either.";
            ledger.caveat(CauseLabel::ZombieLeftover, caveat);
            ledger.mechanism(
                &[CauseLabel::ZombieLeftover],
                &Mechanism {
                    because: format!("{} on it belong to no listed process", Bytes(excess)),
                    alone: format!("{} on {card} belong to no listed process.", Bytes(excess)),
                    explained: Some(excess),
                },
            );
            ledger.fills(&[CauseLabel::ZombieLeftover], *card);
            suspect(ledger, &[]);
        }
        ledger.claim(Claim {
            item: ITEM,
            label: small_part.is_none().then_some(CauseLabel::ZombieLeftover),
            severity: Severity::Warning,
            confidence: 0.9,
            text,
            ranks: vec![],
            refs,
        });
    }
}

/// Of processes that were there together some are gone and the others still hold what they held.
fn survivors(case: &Case, index: usize, ledger: &mut Ledger) {
    let series = case.series_of(index);
    let mut latest = series.iter().rev().filter_map(|index| case.tables.get(*index));
    let Some(last) = latest.next() else { return };
    // A job that is watched is read again and again after some of it has ended.
    let is_watched = last.processes.values().flat_map(|process| &process.rows).any(|row| row.rank.is_some());
    let has_ended = |view: &&TableView| {
        let ended = view.processes.iter().filter(|(pid, _)| !last.processes.contains_key(pid));
        ended.flat_map(|(_, process)| &process.rows).any(|row| row.rank.is_some())
    };
    let Some(before) = (if is_watched { latest.find(has_ended) } else { latest.next() }) else { return };
    // Order is known only by time.
    let (Some(first_time), Some(last_time)) = (before.table.time, last.table.time) else { return };
    if last_time <= first_time || !last.lists_processes() {
        return;
    }
    let ended = before.processes.iter().filter(|(pid, _)| !last.processes.contains_key(pid));
    // Of a job that is watched ranks are known: a stranger that leaves is no partner of those who stay.
    let is_partner = |process: &Process| {
        let of_ranks = |rows: &[&ProcessRow]| rows.iter().any(|row| row.rank.is_some());
        let names: BTreeSet<Option<&str>> =
            last.processes.values().flat_map(|process| &process.rows).map(|row| row.name.as_deref()).collect();
        if is_watched {
            of_ranks(&process.rows)
        } else {
            process.rows.iter().any(|row| names.contains(&row.name.as_deref()))
        }
    };
    let gone: Vec<u32> = ended.filter(|(_, process)| is_partner(process)).map(|(pid, _)| *pid).collect();
    let stay: Vec<&ProcessRow> = last
        .processes
        .iter()
        .filter(|(pid, process)| {
            before.processes.get(pid).is_some_and(|old| match (old.home_bytes(), process.home_bytes()) {
                (Some(old), Some(new)) => old.abs_diff(new) as f64 <= old as f64 * case.policy.capacity_tolerance,
                _ => false,
            })
        })
        .flat_map(|(_, process)| process.rows.iter().copied())
        .collect();
    let new = last.processes.keys().filter(|pid| !before.processes.contains_key(pid)).count();
    if gone.is_empty() || stay.is_empty() || new > 0 {
        return;
    }
    // The ranks of a job that is being watched end one after the other. Who stays is left over only after a while, which
    // may be seen later.
    let left_since = series.iter().filter_map(|index| case.tables.get(*index)).find_map(|view| {
        let is_without = gone.iter().all(|pid| !view.processes.contains_key(pid)) && view.lists_processes();
        view.table.time.filter(|time| is_without && *time > first_time)
    });
    let lasts = left_since.is_some_and(|since| last_time.0.saturating_sub(since.0) >= case.policy.leftover_after);
    if is_watched && !lasts {
        return;
    }
    let refs = case.refs(stay.iter().map(|row| &row.at));
    let places: Vec<Subject> = stay.iter().map(|row| row.subject).collect::<BTreeSet<_>>().into_iter().collect();
    let sizes: Vec<u64> = stay.iter().filter_map(|row| row.used).map(|b| b.0).collect();
    let text = format!(
        "{} ended; {} on {} still {} {}.",
        words::capital(&words::counted(gone.len(), "process", "processes")),
        if stay.len() == 1 { "the one beside it" } else { "others that ran beside it" },
        words::subjects(&places),
        if stay.len() == 1 { "holds" } else { "hold" },
        words::sizes(&sizes)
    );
    // Where fewer have ended than stay, a rank has died and its job with it: nothing is left over of an earlier one.
    if is_watched && stay.len() > gone.len() {
        let text = format!("{text} A rank that dies leaves the others waiting for it: look why it ended.");
        ledger.claim(Claim {
            item: ITEM,
            label: None,
            severity: Severity::Warning,
            confidence: 0.9,
            text,
            ranks: vec![],
            refs,
        });
        return;
    }
    let label = CauseLabel::ZombieLeftover;
    ledger.signal(&[label], weight::STRONG, &text, &refs);
    if case.ran_out_of_memory() {
        ledger.signal(
            &[label],
            weight::FAIR,
            "A start of the job ran out of memory.",
            &case.refs(case.evidence.ooms.iter().map(|o| &o.at)),
        );
    }
    ledger.mechanism(
        &[label],
        &Mechanism {
            because: "a process whose partners have ended still holds memory on it".to_owned(),
            alone: format!(
                "{} whose partners have ended still {} {} on {}.",
                if stay.len() == 1 {
                    "A process".to_owned()
                } else {
                    words::capital(&words::counted(stay.len(), "process", "processes"))
                },
                if stay.len() == 1 { "holds" } else { "hold" },
                words::sizes(&sizes),
                words::subjects(&places)
            ),
            explained: None,
        },
    );
    suspect(ledger, &stay);
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Critical,
        confidence: 0.9,
        text,
        ranks: vec![],
        refs,
    });
}

/// Every working card holds much memory and computes nothing: a job that waits, or what is left of one.
fn all_idle(case: &Case, view: &TableView, ledger: &mut Ledger) {
    let in_use = view.in_use(case.policy);
    let is_idle_and_full = |gpu: &&crate::tables::Gpu| {
        gpu.row.utilization_percent == Some(0) && gpu.fullness().is_some_and(|share| share >= 0.5)
    };
    if in_use.len() < 2 || !in_use.iter().all(is_idle_and_full) {
        return;
    }
    let refs = case.refs(in_use.iter().map(|gpu| &gpu.row.at));
    let text = format!(
        "All {} GPUs in use hold more than half of their memory at 0 % utilisation.",
        words::count(in_use.len())
    );
    ledger.signal(&[CauseLabel::ZombieLeftover], weight::FAINT, &text, &refs);
    ledger.caveat(
        CauseLabel::ZombieLeftover,
        "A job that waits for data or has just started looks the same in one table.",
    );
    ledger.collect(
        ITEM,
        &[CauseLabel::ZombieLeftover],
        collect::owners(&view.processes.keys().copied().collect::<Vec<_>>()),
    );
    let finding =
        Claim { item: ITEM, label: None, severity: Severity::Info, confidence: 0.95, text, ranks: vec![], refs };
    ledger.claim(finding);
}

/// Device memory that is neither free nor of the process that ran out.
fn others_in(oom: &OomEvent) -> Option<u64> {
    let own = match (oom.this_process, oom.reserved) {
        (Some(all), _) => all.0,
        // Without the process's own figure its context is not counted; the threshold allows for it.
        (None, Some(reserved)) => reserved.0,
        (None, None) => return None,
    };
    Some(oom.total?.0.saturating_sub(oom.free?.0).saturating_sub(own))
}

fn held_by_others(case: &Case, ledger: &mut Ledger) {
    // Several messages of one job say the same; the largest is enough.
    let silent = case.evidence.ooms.iter().filter(|oom| !oom.host_memory && oom.others.is_empty());
    let Some((oom, bytes)) = silent.filter_map(|oom| Some((oom, others_in(oom)?))).max_by_key(|(_, bytes)| *bytes)
    else {
        return;
    };
    let least =
        if oom.this_process.is_some() { case.policy.outside_pytorch_min } else { case.policy.held_by_others_min };
    if bytes < least.0 {
        return;
    }
    let card = oom.device.map_or_else(|| "the card".to_owned(), |d| format!("GPU {d}"));
    let refs = case.refs([&oom.at]);
    let text = format!("When memory ran out on {card}, {} of it were neither free nor of that process.", Bytes(bytes));
    ledger.signal(
        &[CauseLabel::OtherTenant, CauseLabel::ZombieLeftover, CauseLabel::RankGpuMapping],
        weight::FAIR,
        &text,
        &refs,
    );
    ledger.caveat(CauseLabel::OtherTenant, "Other ranks on the same card look the same in this message.");
    let same_card: BTreeSet<u32> = case
        .evidence
        .ooms
        .iter()
        .filter(|other| other.device == oom.device && other.device.is_some())
        .filter_map(|other| other.rank)
        .map(|rank| rank.0)
        .collect();
    if same_card.len() >= 2 {
        let reason = format!(
            "{} ran out of memory on the same device index, with the rest of the card held by others.",
            words::capital(&words::subjects(
                &same_card.iter().map(|r| Subject::Rank(rankscope_model::Rank(*r))).collect::<Vec<_>>()
            ))
        );
        let all = case.refs(case.evidence.ooms.iter().map(|o| &o.at));
        ledger.signal(
            &[CauseLabel::RankGpuMapping, CauseLabel::CkptNoMapLocation, CauseLabel::HardcodedOrDefaultDevice],
            weight::GOOD,
            &reason,
            &all,
        );
        ledger.signal(&[CauseLabel::CtxNoSetDevice], weight::FAIR, &reason, &all);
        ledger.mechanism(
            &[
                CauseLabel::RankGpuMapping,
                CauseLabel::CkptNoMapLocation,
                CauseLabel::HardcodedOrDefaultDevice,
                CauseLabel::CtxNoSetDevice,
            ],
            &Mechanism {
                because: "several ranks put their memory on it".to_owned(),
                alone: reason.clone(),
                explained: None,
            },
        );
    }
    idle_owner(case, oom, bytes, ledger);
    let who = format!("{} of {card} are held by other processes", Bytes(bytes));
    for label in [CauseLabel::OtherTenant, CauseLabel::ZombieLeftover] {
        ledger.mechanism(
            &[label],
            &Mechanism {
                because: "another process holds memory on it".to_owned(),
                alone: format!("{who}, not by the process that ran out of memory."),
                explained: None,
            },
        );
    }
    suspect(ledger, &[]);
    ledger.claim(Claim {
        item: ITEM,
        label: None,
        severity: Severity::Warning,
        confidence: 0.85,
        text,
        ranks: oom.rank.map(|r| r.0).into_iter().collect(),
        refs,
    });
}

/// A table in which processes of just that size hold the cards at 0 % utilisation.
fn idle_owner(case: &Case, oom: &OomEvent, bytes: u64, ledger: &mut Ledger) {
    let Some((_, view)) = case.focus().filter(|(_, view)| view.lists_processes()) else { return };
    let Some(gpu) = oom.device.and_then(|d| view.gpu(Subject::Device(d))) else { return };
    let is_that_size =
        |row: &&&ProcessRow| row.used.is_some_and(|used| used.0.abs_diff(bytes) as f64 <= bytes as f64 * 0.15);
    let Some(row) = gpu.compute.iter().find(is_that_size) else { return };
    let refs = case.refs([&row.at, &oom.at]);
    let pid = row.pid.map_or_else(String::new, |pid| format!(" (PID {pid})"));
    let size = row.used.map(|b| b.to_string()).unwrap_or_default();
    if gpu.row.utilization_percent == Some(0) {
        let reason = format!(
            "A process of that size{pid}, {size}, is on {} while the GPU is at 0 % utilisation: it holds memory and does not work.",
            gpu.subject
        );
        ledger.signal(&[CauseLabel::ZombieLeftover], weight::STRONG, reason, &refs);
    } else {
        let reason = format!("A process of that size{pid}, {size}, works on {}.", gpu.subject);
        ledger.signal(&[CauseLabel::OtherTenant, CauseLabel::RankGpuMapping], weight::FAIR, reason, &refs);
    }
}

fn suspect(ledger: &mut Ledger, rows: &[&ProcessRow]) {
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.collect(
        ITEM,
        &[
            CauseLabel::OtherTenant,
            CauseLabel::ZombieLeftover,
            CauseLabel::RankGpuMapping,
            CauseLabel::ColocatedEngineOrDeviceMap,
        ],
        collect::owners(&rows.iter().filter_map(|row| row.pid).collect::<Vec<_>>()),
    );
}
