//! The size of each batch against the memory of its step, for the chart: whether the input decides is seen at once.
//!
//! Knows step records; names no cause.

use crate::case::Case;
use crate::figures::common_capacity;
use crate::stats::pearson;
use crate::steps::{cross_section, is_training};
use rankscope_model::{Quantity, Scatter, ScatterCloud, ScatterFit, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Points kept over all subjects.
const MAX_POINTS: usize = 8000;
/// Fewer points than this show nothing that a table does not.
const LEAST_POINTS: usize = 4;

/// What is counted of a batch, the most telling first.
const INPUTS: [Quantity; 2] = [Quantity::BatchTokens, Quantity::BatchSamples];
/// What is measured; what is reset for each step tells most.
const MEASURED: [Quantity; 5] =
    [Quantity::PeakAllocated, Quantity::Allocated, Quantity::PeakReserved, Quantity::Reserved, Quantity::DeviceUsed];

type Clouds = BTreeMap<Subject, Vec<(u64, u64)>>;

/// The chart; `None` where fewer than two ranks say both figures, or all batches are equal.
pub(crate) fn scatter(case: &Case, accused: &BTreeSet<Subject>) -> Option<Scatter> {
    let (input, quantity, clouds) = INPUTS.into_iter().find_map(|input| {
        let found = MEASURED.into_iter().map(|quantity| (quantity, clouds(case, input, quantity)));
        // The first of those with most points.
        let (quantity, clouds) = found.rev().max_by_key(|(_, clouds)| points(clouds))?;
        is_telling(&clouds).then_some((input, quantity, clouds))
    })?;
    let pairs: Vec<(f64, f64)> = clouds.values().flatten().map(|(x, y)| (*x as f64, *y as f64)).collect();
    let capacity = case.main.as_ref().and_then(|(comparison, _)| common_capacity(comparison));
    let each = points(&clouds).div_ceil(MAX_POINTS);
    let clouds = clouds.into_iter().map(|(subject, points)| {
        let (x, y) = thinned(points, each).into_iter().unzip();
        ScatterCloud { subject, x, y, accused: accused.contains(&subject) }
    });
    Some(Scatter { input, quantity, clouds: clouds.collect(), capacity, fit: fit(&pairs) })
}

fn points(clouds: &Clouds) -> usize {
    clouds.values().map(Vec::len).sum()
}

fn is_telling(clouds: &Clouds) -> bool {
    let inputs: BTreeSet<u64> = clouds.values().flatten().map(|(x, _)| *x).take(MAX_POINTS).collect();
    clouds.len() >= 2 && points(clouds) >= LEAST_POINTS && inputs.len() >= 2
}

/// Both figures of each subject and training step; they may stand on different lines.
fn clouds(case: &Case, input: Quantity, quantity: Quantity) -> Clouds {
    let mut clouds = Clouds::new();
    for rows in case.steps.rows.iter().filter(|(key, _)| is_training(key)).map(|(_, rows)| rows) {
        let measured = cross_section(rows, |row| row.bytes(quantity).map(|bytes| bytes.0));
        if measured.is_empty() {
            continue;
        }
        let inputs = cross_section(rows, |row| match input {
            Quantity::BatchSamples => row.samples(),
            _ => row.routed_tokens.or_else(|| row.elements()),
        });
        for (subject, y) in measured {
            if let Ok(at) = inputs.binary_search_by_key(&subject, |(subject, _)| *subject)
                && let Some((_, x)) = inputs.get(at)
            {
                clouds.entry(subject).or_default().push((*x, y));
            }
        }
    }
    clouds
}

/// Every `each`th point, and of each such group the one with most memory: no spike is lost.
fn thinned(points: Vec<(u64, u64)>, each: usize) -> Vec<(u64, u64)> {
    if each <= 1 {
        return points;
    }
    points.chunks(each).filter_map(|group| group.iter().copied().max_by_key(|(_, y)| *y)).collect()
}

/// The line of least squares.
fn fit(pairs: &[(f64, f64)]) -> Option<ScatterFit> {
    let r = pearson(pairs)?;
    let n = pairs.len() as f64;
    let (mean_x, mean_y) = (pairs.iter().map(|p| p.0).sum::<f64>() / n, pairs.iter().map(|p| p.1).sum::<f64>() / n);
    let centred: Vec<(f64, f64)> = pairs.iter().map(|(x, y)| (x - mean_x, y - mean_y)).collect();
    let slope = crate::stats::slope(&centred)?;
    let intercept = mean_y - slope * mean_x;
    // To what is drawn and no finer, so that the figures survive JSON exactly.
    let thousandths = |value: f64| (value * 1000.0).round() / 1000.0;
    let fit = ScatterFit { r: thousandths(r), intercept: intercept.round(), slope: thousandths(slope) };
    // Beyond whole numbers that a double holds exactly no figure is one of memory.
    let is_exact = |value: f64| value.abs() * 1000.0 < 9e15;
    (is_exact(fit.intercept) && is_exact(fit.slope)).then_some(fit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use rankscope_model::{ArtifactId, Bytes, Evidence, MIB, Provenance, Rank, Step, StepRecord};

    fn record(rank: u32, step: u64, tokens: Option<u64>, mib: Option<u64>) -> StepRecord {
        StepRecord {
            step: Some(Step(step)),
            batch_tokens: tokens,
            peak_allocated: mib.map(|mib| Bytes(mib * MIB)),
            ..StepRecord::new(Provenance::line(ArtifactId(0), 1, ""), Subject::Rank(Rank(rank)))
        }
    }

    fn of(steps: Vec<StepRecord>) -> Option<Scatter> {
        let evidence = Evidence { steps, ..Evidence::default() };
        let policy = Policy::default();
        scatter(&Case::new(&evidence, &policy), &BTreeSet::from([Subject::Rank(Rank(1))]))
    }

    #[test]
    fn tokens_and_memory_meet_by_rank_and_step_even_from_two_lines() {
        let mut steps = Vec::new();
        for step in 0..5 {
            for rank in 0..2 {
                let tokens = 1000 + 100 * step + 50 * u64::from(rank);
                steps.push(record(rank, step, Some(tokens), None));
                steps.push(record(rank, step, None, Some(2 * tokens)));
            }
        }
        let figure = of(steps).unwrap();
        assert_eq!((figure.input, figure.quantity), (Quantity::BatchTokens, Quantity::PeakAllocated));
        assert_eq!(figure.clouds.iter().map(|cloud| cloud.x.len()).collect::<Vec<_>>(), [5, 5]);
        assert!(figure.clouds[1].accused && !figure.clouds[0].accused);
        let fit = figure.fit.unwrap();
        assert!(fit.r > 0.999 && (fit.slope - 2.0 * MIB as f64).abs() < 1.0, "{fit:?}");
    }

    #[test]
    fn equal_batches_and_a_single_rank_show_nothing() {
        let equal = (0..5).flat_map(|step| (0..2).map(move |rank| record(rank, step, Some(512), Some(7 + step))));
        assert_eq!(of(equal.collect()), None);
        let alone = (0..9).map(|step| record(0, step, Some(512 + step), Some(7 + step)));
        assert_eq!(of(alone.collect()), None);
    }

    #[test]
    fn thinning_keeps_the_highest_of_each_group() {
        let points: Vec<(u64, u64)> = (0..100).map(|n| (n, if n == 57 { 999 } else { n })).collect();
        let kept = thinned(points, 10);
        assert_eq!(kept.len(), 10);
        assert!(kept.contains(&(57, 999)));
    }
}
