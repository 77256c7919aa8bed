//! Several runs that differ in the number of loader workers, as their file names tell: a surplus of one card that grows
//! with that number by a context each is of the workers. Shown under `device_visibility`.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::words;
use rankscope_model::{ArtifactId, Bytes, CauseLabel, Item, ItemStatus, Provenance, Severity, Subject};
use std::collections::{BTreeMap, BTreeSet};

const LABEL: CauseLabel = CauseLabel::CtxInWorkerProcesses;

/// One run: how many workers, and by how much the card is above the others.
struct Run<'a> {
    workers: u32,
    surplus: u64,
    at: &'a Provenance,
}

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some((comparison, spread)) = &case.main else { return };
    let [card] = spread.heaviest.as_slice() else { return };
    let runs = runs(case, *card, &comparison.values.iter().map(|(subject, _)| *subject).collect());
    let Some(each) = per_worker(&runs, case.policy) else { return };
    let refs = case.refs(runs.iter().map(|run| run.at));
    let counts: BTreeSet<u32> = runs.iter().map(|run| run.workers).collect();
    let text = format!(
        "{card} is above the others by {} for each loader worker, over runs with {} workers as their file names say.",
        Bytes(each),
        words::join(&counts.iter().map(u32::to_string).collect::<Vec<_>>())
    );
    ledger.signal(&[LABEL], weight::STRONG, &text, &refs);
    let has_none = runs.iter().any(|run| run.workers == 0);
    if has_none {
        ledger.signal(&[LABEL], weight::FAIR, "Without workers the cards are equal.", &refs);
    }
    let against = "The surplus follows the number of workers, not the number of ranks.";
    ledger.signal(&[CauseLabel::CtxNoSetDevice, CauseLabel::CkptNoMapLocation], -weight::FAIR, against, &refs);
    let because = format!("each loader worker holds a context of {} on it", Bytes(each));
    let most = runs.iter().map(|run| run.surplus).max();
    ledger.mechanism(&[LABEL], &Mechanism { because, alone: text.clone(), explained: most });
    ledger.status(Item::DeviceVisibility, ItemStatus::Fail);
    ledger.claim(Claim {
        item: Item::DeviceVisibility,
        label: Some(LABEL),
        severity: Severity::Critical,
        confidence: 0.9,
        text,
        ranks: vec![],
        refs,
    });
}

/// Tables by file, with the number of workers in the file's name.
fn runs<'a>(case: &Case<'a>, card: Subject, compared: &BTreeSet<Subject>) -> Vec<Run<'a>> {
    let mut files: BTreeMap<ArtifactId, (u64, u64, &'a Provenance)> = BTreeMap::new();
    for view in &case.tables {
        let others = view.gpus.iter().filter(|gpu| gpu.subject != card && compared.contains(&gpu.subject));
        let base = others.filter_map(|gpu| gpu.used).max();
        let (Some(own), Some(base)) = (view.gpu(card).and_then(|gpu| gpu.used), base) else { continue };
        let known = files.entry(view.table.at.artifact).or_insert((own, base, &view.table.at));
        *known = (known.0.max(own), known.1.max(base), known.2);
    }
    let run = |(file, (own, base, at)): (ArtifactId, (u64, u64, &'a Provenance))| {
        let workers = workers_in(case.evidence.artifact_name(file))?;
        Some(Run { workers, surplus: own.saturating_sub(base), at })
    };
    files.into_iter().filter_map(run).collect()
}

/// Three counts at least, each with the same bytes a worker, of the size of a context; none without workers. `(w - 1)`
/// contexts of ranks do not fit: their share grows with the count.
fn per_worker(runs: &[Run], policy: &crate::Policy) -> Option<u64> {
    let (none, some): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.workers == 0);
    let counts: BTreeSet<u32> = some.iter().map(|run| run.workers).collect();
    let shares: Vec<u64> = some.iter().filter_map(|run| run.surplus.checked_div(u64::from(run.workers))).collect();
    let (least, most) = (*shares.iter().min()?, *shares.iter().max()?);
    let is_context = least >= policy.context_least.0 && most <= policy.context_max.0;
    let is_constant = (most - least) as f64 <= least as f64 * policy.notice_share;
    let is_none_without = none.iter().all(|run| run.surplus < policy.context_least.0);
    (counts.len() >= 3 && is_context && is_constant && is_none_without).then_some(least)
}

/// `gpu_w4_b32.csv`, `smi-workers=8.txt`, `nw2.csv`.
fn workers_in(name: &str) -> Option<u32> {
    let own = name.rsplit(['/', '\\']).next()?.to_ascii_lowercase();
    let mut words = own.split(|c: char| !c.is_ascii_alphanumeric()).peekable();
    let is_key = |key: &str| matches!(key, "w" | "nw" | "worker" | "workers" | "numworkers");
    while let Some(word) = words.next() {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let key = word.get(..word.len() - digits.len())?;
        if !is_key(key) {
            continue;
        }
        let number = if digits.is_empty() { words.peek()?.parse().ok() } else { digits.parse().ok() };
        return number.filter(|count: &u32| *count <= 256);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use rankscope_model::MIB;

    #[test]
    fn counts_are_read_from_names() {
        for (name, count) in [
            ("runs/gpu_w4_b32.csv", Some(4)),
            ("smi-workers=8.txt", Some(8)),
            ("num_workers_0.csv", Some(0)),
            ("nw2.csv", Some(2)),
            ("gpu_b32.csv", None),
            ("wandb.csv", None),
            ("w.csv", None),
        ] {
            assert_eq!(workers_in(name), count, "{name}");
        }
    }

    #[test]
    fn the_same_bytes_for_each_worker_and_none_without() {
        let at = Provenance::line(ArtifactId(0), 1, "x");
        let told = |list: &[(u32, u64)]| {
            let run = |(workers, mib): &(u32, u64)| Run { workers: *workers, surplus: mib * MIB, at: &at };
            per_worker(&list.iter().map(run).collect::<Vec<_>>(), &Policy::default())
        };
        assert_eq!(told(&[(0, 2), (2, 1229), (4, 2458), (8, 4915)]), Some(4915 * MIB / 8));
        assert_eq!(told(&[(2, 600), (4, 1800), (8, 4200)]), None, "w - 1 contexts are of ranks");
        assert_eq!(told(&[(0, 1200), (2, 1229), (4, 2458), (8, 4915)]), None, "a surplus without workers");
        assert_eq!(told(&[(2, 1229), (4, 2458)]), None, "two counts");
        assert_eq!(told(&[(2, 100), (4, 200), (8, 400)]), None, "too small for contexts");
    }
}
