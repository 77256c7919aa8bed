//! Call sites of the snapshots of several ranks, side by side: what one rank holds and the others do not.
//!
//! Only the largest sites of each snapshot are known; a site that is not among them is bounded, never zero.

use crate::policy::Policy;
use rankscope_model::{CallSite, CauseLabel, Evidence, Frame, Provenance};
use std::collections::BTreeMap;

/// A site that is far larger on one rank than on every other.
pub(crate) struct LoneSite<'a> {
    /// Who holds it.
    pub rank: u32,
    /// Live bytes there.
    pub bytes: u64,
    /// Upper bound for every other rank.
    pub others: u64,
    /// `function (file:line)`.
    pub place: String,
    /// What the names in the stack say.
    pub label: CauseLabel,
    /// The snapshot.
    pub at: &'a Provenance,
}

/// What the call sites of at least two ranks say.
pub(crate) struct Sites<'a> {
    /// Ranks with call sites.
    pub ranks: Vec<u32>,
    /// Sites that live on one rank, largest first.
    pub lone: Vec<LoneSite<'a>>,
    /// No site could be on one rank only and be hidden by the others' lists being cut.
    pub is_settled: bool,
    /// Some site on every rank was made by an optimizer.
    pub has_optimizer: bool,
    /// The snapshots.
    pub places: Vec<&'a Provenance>,
}

/// Words in function or file names, and the cause that such a site speaks for, first match wins.
const SIGNS: &[(&[&str], CauseLabel)] = &[
    (&["optim", "adam", "_init_group", "sgd"], CauseLabel::OptimizerOrWrapOrder),
    (&["state_dict", "summon", "gather_16bit", "save_checkpoint", "torch_save"], CauseLabel::CkptStateGather),
    (&["add_graph", "jit/_trace", "log_images", "sample_log", "generate_samples"], CauseLabel::Rank0LoggingOrTrace),
    (&["all_gather", "metric", "accumulate_pred"], CauseLabel::MetricGatherOnGpu),
    (&["evaluate", "validate", "validation", "eval_step", "test_step"], CauseLabel::Rank0Eval),
    (&["ema", "memory_bank", "lookup", "register_buffer", "queue"], CauseLabel::Rank0AuxBuffers),
];

/// Holds the call sites side by side; `None` with fewer than two ranks that have any.
pub(crate) fn compare<'a>(evidence: &'a Evidence, policy: &Policy) -> Option<Sites<'a>> {
    type ByPlace<'a> = BTreeMap<String, (u64, &'a CallSite)>;
    let mut per_rank: BTreeMap<u32, (ByPlace, u64, &Provenance)> = BTreeMap::new();
    let mut totals: BTreeMap<u32, u64> = BTreeMap::new();
    for snapshot in &evidence.snapshots {
        let Some(rank) = snapshot.rank else { continue };
        let sites: Vec<&CallSite> =
            snapshot.devices.iter().flat_map(|d| &d.top_sites).filter(|site| !site.frames.is_empty()).collect();
        // Whatever is not listed is at most as large as the smallest that is, and as what the list leaves of all bytes.
        let Some(smallest) = sites.iter().map(|site| site.bytes.0).min() else { continue };
        let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0u64, u64::saturating_add);
        let all = sum(&mut snapshot.devices.iter().map(|device| device.allocated.0));
        let listed = sum(&mut sites.iter().map(|site| site.bytes.0));
        let bound = all.checked_sub(listed).map_or(smallest, |rest| smallest.min(rest));
        // Of several snapshots of one rank the fuller one counts, whichever came first.
        if totals.get(&rank.0).is_some_and(|known| *known >= all) {
            continue;
        }
        totals.insert(rank.0, all);
        let mut by_place = ByPlace::new();
        for site in sites {
            let entry = by_place.entry(place(site)).or_insert((0, site));
            entry.0 = entry.0.saturating_add(site.bytes.0);
        }
        per_rank.insert(rank.0, (by_place, bound, &snapshot.at));
    }
    if per_rank.len() < 2 {
        return None;
    }
    let mut lone = Vec::new();
    let mut is_settled = true;
    for (rank, (sites, _, at)) in &per_rank {
        for (place, (bytes, site)) in sites {
            let most = |unlisted: fn(u64) -> u64| {
                let others = per_rank.iter().filter(|(other, _)| *other != rank);
                let there =
                    others.map(|(_, (theirs, bound, _))| theirs.get(place).map_or(unlisted(*bound), |(b, _)| *b));
                there.max().unwrap_or(0)
            };
            let others = most(|bound| bound);
            is_settled &= policy.differs(*bytes, others) || !policy.differs(*bytes, most(|_| 0));
            // A stack of the interpreter and of compiled code alone names no line that somebody could change.
            if policy.differs(*bytes, others) && site.frames.iter().any(is_python) {
                lone.push(LoneSite {
                    rank: *rank,
                    bytes: *bytes,
                    others,
                    place: place.clone(),
                    label: label(site),
                    at,
                });
            }
        }
    }
    lone.sort_by_key(|site| std::cmp::Reverse(site.bytes.saturating_sub(site.others)));
    let is_optimizer =
        |sites: &ByPlace| sites.values().any(|(_, site)| label(site) == CauseLabel::OptimizerOrWrapOrder);
    Some(Sites {
        ranks: per_rank.keys().copied().collect(),
        has_optimizer: per_rank.values().all(|(sites, _, _)| is_optimizer(sites)),
        places: per_rank.values().map(|(_, _, at)| *at).collect(),
        lone,
        is_settled,
    })
}

/// Python's, or the user's own.
fn is_python(frame: &Frame) -> bool {
    let ending = frame.file.rsplit_once('.').map(|(_, ending)| ending);
    ending == Some("py") || !frame.is_library()
}

/// The innermost frame of the user's own code, else the innermost of Python, else the innermost.
fn place(site: &CallSite) -> String {
    let frame = site.own_frame().or_else(|| site.frames.iter().find(|frame| is_python(frame)));
    let frame = frame.or_else(|| site.frames.first());
    frame.map_or_else(String::new, |frame| format!("{} ({}:{})", frame.function, frame.file, frame.line))
}

fn label(site: &CallSite) -> CauseLabel {
    let says = |word: &str| {
        // `evaluate_function` of the autograd engine evaluates nothing that anybody means.
        site.frames
            .iter()
            .filter(|frame| is_python(frame))
            .any(|f| f.function.to_ascii_lowercase().contains(word) || f.file.to_ascii_lowercase().contains(word))
    };
    SIGNS
        .iter()
        .find(|(words, _)| words.iter().any(|word| says(word)))
        .map_or(CauseLabel::Rank0AuxBuffers, |(_, label)| *label)
}
