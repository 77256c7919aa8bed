//! Cards that differ, or that also draw a desktop. Shown under `device_visibility`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::stats::lower_median;
use crate::tables::{TableView, all_same_capacity};
use crate::words;
use rankscope_model::{Bytes, CauseLabel, Item, Severity, Subject};

const ITEM: Item = Item::DeviceVisibility;
const LABEL: CauseLabel = CauseLabel::HeterogeneousOrDisplayGpu;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some((_, view)) = case.focus() else { return };
    capacities(case, view, ledger);
    desktop(case, view, ledger);
}

fn capacities(case: &Case, view: &TableView, ledger: &mut Ledger) {
    let in_use = view.in_use(case.policy);
    let known: Vec<(Subject, u64)> = in_use.iter().filter_map(|gpu| Some((gpu.subject, gpu.total?))).collect();
    let totals: Vec<u64> = known.iter().map(|(_, total)| *total).collect();
    // Slices of one card differ by design.
    let are_cards = known.iter().all(|(subject, _)| matches!(subject, Subject::Device(_)));
    if known.len() < 2 || !are_cards || all_same_capacity(&totals, case.policy) {
        return;
    }
    let (Some(small), Some(large)) = (known.iter().min_by_key(|(_, t)| *t), known.iter().max_by_key(|(_, t)| *t))
    else {
        return;
    };
    let refs = case.refs(in_use.iter().map(|gpu| &gpu.row.at));
    let text =
        format!("The cards in use differ: {} has {}, {} has {}.", small.0, Bytes(small.1), large.0, Bytes(large.1));
    ledger.signal(&[LABEL], weight::STRONG, &text, &refs);
    let fuller = view.gpu(small.0).and_then(crate::tables::Gpu::fullness);
    let roomier = view.gpu(large.0).and_then(crate::tables::Gpu::fullness);
    if let (Some(fuller), Some(roomier)) = (fuller, roomier)
        && fuller > roomier
    {
        let reason =
            format!("The smaller card is {} full, the larger {}.", words::percent(fuller), words::percent(roomier));
        ledger.signal(&[LABEL], weight::FAIR, reason, &refs);
    }
    let on_small = case.evidence.ooms.iter().find(|oom| {
        oom.total.is_some_and(|total| crate::tables::same_capacity(Some(total.0), Some(small.1), case.policy))
    });
    if let Some(oom) = on_small {
        ledger.signal(
            &[LABEL],
            weight::FAIR,
            "The smaller card is the one that ran out of memory.",
            &case.refs([&oom.at]),
        );
    }
    ledger.mechanism(
        &[LABEL],
        &Mechanism {
            because: "the cards have different capacities".to_owned(),
            alone: format!(
                "The cards differ: {} has {}, {} has {}; equal work fills the smaller one first.",
                small.0,
                Bytes(small.1),
                large.0,
                Bytes(large.1)
            ),
            explained: None,
        },
    );
    ledger.claim(Claim {
        item: ITEM,
        label: Some(LABEL),
        severity: Severity::Warning,
        confidence: 0.97,
        text,
        ranks: vec![],
        refs,
    });
}

/// Graphics processes on the heavy card, above what the other cards have.
fn desktop(case: &Case, view: &TableView, ledger: &mut Ledger) {
    let graphics = |gpu: &crate::tables::Gpu| -> u64 {
        gpu.graphics.iter().filter_map(|row| row.used).fold(0, |sum, b| sum.saturating_add(b.0))
    };
    for gpu in &view.gpus {
        let own = graphics(gpu);
        let others: Vec<u64> = view.gpus.iter().filter(|g| g.subject != gpu.subject).map(&graphics).collect();
        let extra = own.saturating_sub(lower_median(&others).unwrap_or(0));
        let Some(gap) = case.gap_on(gpu.subject).filter(|gap| *gap > 0 && extra > 0) else { continue };
        let refs = case.refs(gpu.graphics.iter().map(|row| &row.at));
        let share = extra as f64 / gap as f64;
        let text = format!(
            "{} of graphics processes on {} against {} above the median card.",
            Bytes(own),
            gpu.subject,
            Bytes(gap)
        );
        let gain = if share >= case.policy.explains_most {
            weight::DECISIVE
        } else if share >= case.policy.explains_little {
            weight::FAINT
        } else {
            continue;
        };
        ledger.signal(&[LABEL], gain, &text, &refs);
        if share < case.policy.explains_most {
            ledger.caveat(LABEL, format!("They explain {} of the gap.", words::percent(share)));
        }
        ledger.mechanism(
            &[LABEL],
            &Mechanism {
                because: format!("it also draws the desktop ({})", Bytes(own)),
                alone: format!("{} also draws the desktop ({}).", gpu.subject, Bytes(own)),
                explained: Some(extra),
            },
        );
        ledger.claim(Claim {
            item: ITEM,
            label: Some(LABEL),
            severity: Severity::Warning,
            confidence: 0.95,
            text,
            ranks: vec![],
            refs,
        });
    }
}
