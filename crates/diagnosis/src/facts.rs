//! The facts by which two runs are held against each other, reduced from the evidence of one.
//!
//! Knows evidence; compares nothing with another run.

use crate::case::Case;
use crate::imbalance::{Comparison, Source};
use crate::stats::lower_median;
use crate::steps::{CrossSection, cross_section, is_training};
use rankscope_model::{
    Bytes, CardFacts, Framework, InputFacts, Moment, Phase, PhasePeaks, Quantity, RankInput, RunFacts, StepRecord,
    Subject,
};
use std::collections::{BTreeMap, BTreeSet};

/// Quantities of step records, the ones that are closest to a cause first.
const STEP_QUANTITIES: [Quantity; 5] =
    [Quantity::PeakAllocated, Quantity::Allocated, Quantity::PeakReserved, Quantity::Reserved, Quantity::DeviceUsed];

/// All facts.
pub(crate) fn facts(case: &Case) -> RunFacts {
    let mut peaks = of_steps(case);
    // Tables, snapshots and messages have one entry each; what is reported comes first.
    let compared = case.main.iter().map(|(comparison, _)| comparison).chain(&case.comparisons);
    for comparison in compared {
        let known = peaks.iter().any(|entry| entry.quantity == comparison.quantity && entry.phase.is_none());
        if !known && !comparison.source.is_steps() {
            peaks.push(of_comparison(case, comparison));
        }
    }
    RunFacts { peaks, input: input(case), cards: cards(case), frameworks: frameworks(case) }
}

fn of_comparison(case: &Case, comparison: &Comparison) -> PhasePeaks {
    let moments = match &comparison.source {
        Source::Tables(tables) => tables.len() as u64,
        Source::Nodes => case.tables.len() as u64,
        _ => 1,
    };
    PhasePeaks {
        quantity: comparison.quantity,
        phase: None,
        moments,
        peaks: in_bytes(&comparison.values),
        widest: None,
    }
}

fn in_bytes(values: &[(Subject, u64)]) -> Vec<(Subject, Bytes)> {
    values.iter().map(|(subject, value)| (*subject, Bytes(*value))).collect()
}

fn of_steps(case: &Case) -> Vec<PhasePeaks> {
    let view = &case.steps;
    let phases: BTreeSet<Option<Phase>> = view.rows.keys().map(|key| key.phase).collect();
    let mut found = Vec::new();
    for quantity in STEP_QUANTITIES {
        for phase in &phases {
            let peaks = view.peaks(quantity, |key| key.phase == *phase);
            if peaks.is_empty() {
                continue;
            }
            let mut moments = 0;
            let mut widest: Option<(u64, Moment)> = None;
            for key in view.rows.keys().filter(|key| key.phase == *phase) {
                let values = view.at(key, quantity);
                moments += u64::from(!values.is_empty());
                if values.len() < 2 || values.len() != peaks.len() {
                    continue;
                }
                let gap = gap(&values);
                if widest.as_ref().is_none_or(|(wide, _)| gap > *wide) {
                    let step = view.has_steps.then_some(key.step);
                    widest = Some((gap, Moment { step, values: in_bytes(&values) }));
                }
            }
            found.push(PhasePeaks {
                quantity,
                phase: *phase,
                moments,
                peaks: in_bytes(&peaks),
                widest: widest.map(|(_, moment)| moment),
            });
        }
    }
    found
}

fn gap(values: &CrossSection) -> u64 {
    let numbers: Vec<u64> = values.iter().map(|(_, value)| *value).collect();
    let max = numbers.iter().max().copied().unwrap_or_default();
    max.saturating_sub(lower_median(&numbers).unwrap_or_default())
}

fn input(case: &Case) -> Option<InputFacts> {
    let view = &case.input;
    if view.ranks < 2 {
        return None;
    }
    let prints_tokens = case.steps.records().any(|(_, row)| row.batch_tokens.is_some());
    let elements = |row: &StepRecord| if prints_tokens { row.batch_tokens } else { row.elements() };
    let mut ranks: BTreeMap<Subject, RankInput> = BTreeMap::new();
    for (_, row) in case.steps.records().filter(|(key, _)| is_training(key)) {
        let Some(tokens) = elements(row) else { continue };
        let rank = ranks.entry(row.subject).or_insert(RankInput {
            subject: row.subject,
            batches: 0,
            tokens: 0,
            largest: 0,
            shape: None,
        });
        rank.batches += 1;
        rank.tokens = rank.tokens.saturating_add(tokens);
        if tokens > rank.largest {
            rank.largest = tokens;
            rank.shape.clone_from(&row.batch_shape);
        }
    }
    let worst = view.worst.as_ref();
    // Where all steps are even there is no worst one: the largest even batch stands for both ends.
    let even = || {
        let firsts = case.steps.rows.iter().filter(|(key, _)| is_training(key));
        firsts.filter_map(|(_, rows)| cross_section(rows, elements).first().map(|(_, n)| *n)).max().unwrap_or_default()
    };
    Some(InputFacts {
        steps: view.steps as u64,
        uneven_samples: view.uneven_samples as u64,
        uneven_tokens: view.uneven_elements as u64,
        worst_most: worst.map_or_else(even, |worst| worst.most.1),
        worst_fewest: worst.map_or_else(even, |worst| worst.fewest.1),
        ranks: ranks.into_values().collect(),
    })
}

fn cards(case: &Case) -> Vec<CardFacts> {
    let mut cards: BTreeSet<CardFacts> = case
        .focus()
        .into_iter()
        .flat_map(|(_, view)| &view.gpus)
        .map(|gpu| CardFacts { name: gpu.row.name.clone(), capacity: gpu.total.map(Bytes) })
        .collect();
    if cards.is_empty() {
        let of_oom = |total: Option<Bytes>| total.filter(|total| total.0 > 0);
        let ooms = case.evidence.ooms.iter().filter(|oom| !oom.host_memory);
        cards = ooms.filter_map(|oom| of_oom(oom.total)).map(|t| CardFacts { name: None, capacity: Some(t) }).collect();
    }
    cards.into_iter().filter(|card| card.name.is_some() || card.capacity.is_some()).collect()
}

fn frameworks(case: &Case) -> Vec<Framework> {
    let found: BTreeSet<Framework> =
        case.evidence.scripts.iter().flat_map(|script| script.frameworks.iter().copied()).collect();
    found.into_iter().collect()
}
