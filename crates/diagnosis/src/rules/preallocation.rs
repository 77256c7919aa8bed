//! A framework that takes whole cards at start (TensorFlow, JAX). Shown under `memory_stats`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::words;
use rankscope_model::{CauseLabel, Item, ItemStatus, ProcessRow, Severity, Subject};

const LABEL: CauseLabel = CauseLabel::FrameworkPrealloc;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some((_, view)) = case.focus() else { return };
    let taken: Vec<_> = view
        .gpus
        .iter()
        .filter(|gpu| gpu.fullness().is_some_and(|share| share >= case.policy.prealloc_share))
        .filter(|gpu| gpu.row.utilization_percent == Some(0))
        .collect();
    if taken.is_empty() {
        return;
    }
    let cards: Vec<Subject> = taken.iter().map(|gpu| gpu.subject).collect();
    let refs = case.refs(taken.iter().map(|gpu| &gpu.row.at));
    let text = format!(
        "{} {} at least {} full at 0 % utilisation.",
        words::capital(&words::subjects(&cards)),
        if cards.len() == 1 { "is" } else { "are" },
        words::percent(case.policy.prealloc_share)
    );
    // A framework that takes cards at start takes every card that it may: one full card among many that are not is as
    // likely a job of its own between two steps.
    if taken.len() * 2 < view.in_use(case.policy).len() {
        ledger.signal(&[LABEL], weight::FAINT, &text, &refs);
        return;
    }
    ledger.signal(&[LABEL], weight::STRONG, &text, &refs);
    ledger.caveat(LABEL, "A paused job or the leftover of a dead one looks the same in one table.");
    ledger.signal(&[CauseLabel::ZombieLeftover], weight::FAINT, &text, &refs);

    // One process that took most of several cards.
    let takes_most = |row: &&&ProcessRow| {
        let total = view.gpu(row.subject).and_then(|gpu| gpu.total);
        matches!((row.used, total), (Some(used), Some(total)) if used.0 >= total / 2)
    };
    for (pid, process) in &view.processes {
        let rows: Vec<&&ProcessRow> = process.rows.iter().filter(takes_most).collect();
        if rows.len() >= 2 {
            let reason = format!("PID {pid} alone holds most of {} cards from the start.", words::count(rows.len()));
            ledger.signal(&[LABEL], weight::GOOD, reason, &case.refs(rows.iter().map(|row| &row.at)));
            break;
        }
    }
    ledger.mechanism(
        &[LABEL],
        &Mechanism {
            because: "a framework took the whole card at start".to_owned(),
            alone: format!(
                "{} full while nothing computes: a framework took them at start, whatever it needs.",
                if cards.len() == 1 { "The card is" } else { "The cards are" }
            ),
            explained: None,
        },
    );
    ledger.status(Item::MemoryStats, ItemStatus::Suspect);
    ledger.claim(Claim {
        item: Item::MemoryStats,
        label: Some(LABEL),
        severity: Severity::Warning,
        confidence: 0.95,
        text,
        ranks: vec![],
        refs,
    });
}
