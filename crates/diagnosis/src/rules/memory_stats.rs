//! Item `memory_stats`: is the memory active, cached, or outside the allocator? Decided by out-of-memory messages,
//! snapshots, and reserved against allocated in the log.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::remedies::expands_segments;
use crate::words;
use rankscope_model::{
    Bytes, CauseLabel, EvidenceRef, Item, ItemStatus, OomEvent, ProcessRow, Rank, Severity, SnapshotDevice,
    SnapshotEvidence, StepRecord, Subject,
};
use std::collections::BTreeMap;

const ITEM: Item = Item::MemoryStats;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let mut splits: Vec<Split> = Vec::new();
    let mut refs: Vec<EvidenceRef> = Vec::new();
    let mut note = |split: Option<Split>, at: Vec<EvidenceRef>| {
        if let Some(split) = split {
            splits.push(split);
            refs.extend(at);
        }
    };
    let events: Vec<&OomEvent> = distinct(case);
    for oom in &events {
        note(message(case, oom, ledger), case.refs([&oom.at]));
    }
    for snapshot in &case.evidence.snapshots {
        for device in &snapshot.devices {
            note(Some(snapshot_device(case, snapshot, device, ledger)), case.refs([&snapshot.at]));
        }
    }
    if splits.iter().all(|split| !split.is_large)
        && let Some(text) = nothing_large(&splits)
    {
        refs.truncate(case.policy.max_refs);
        // A snapshot knows the allocator's memory only: what lies outside it stays open.
        if splits.iter().all(|split| split.outside.is_some()) {
            ledger.status(ITEM, ItemStatus::Pass);
        }
        ledger.claim(Claim {
            item: ITEM,
            label: None,
            severity: Severity::Info,
            confidence: 0.85,
            text,
            ranks: vec![],
            refs,
        });
    }
    beyond_the_allocator(case, ledger);
    segments_may_grow(case, ledger);
    if let Some(row) = most_waiting(case, |_| true) {
        let who = words::capital(&row.subject.to_string());
        let waiting = row.waiting().unwrap_or_default();
        let at = StreamHeld { bytes: waiting, who, rank: row.subject.rank(), refs: case.step_refs([row]) };
        blocks_wait(&at, ledger);
    }
    if let Some(cache) =
        log_cache(case).filter(|_| events.iter().all(|oom| is_nccl(oom)) && case.evidence.snapshots.is_empty())
    {
        told_by_log(case, &cache, !events.is_empty(), ledger);
    }
}

/// The remedy against fixed segments is in place already.
fn segments_may_grow(case: &Case, ledger: &mut Ledger) {
    let places = case.allocator_settings().filter(|(value, _)| expands_segments(value)).map(|(_, at)| at);
    let refs = case.refs(places);
    if !refs.is_empty() {
        let text = "Segments are already expandable, so fixed segments cannot fragment.";
        ledger.signal(&[CauseLabel::AllocatorFragmentation], -weight::FAIR, text, &refs);
    }
}

/// The printed statistics in which most waits for another stream, where that is much.
fn most_waiting<'a>(case: &Case<'a>, whose: impl Fn(&StepRecord) -> bool) -> Option<&'a StepRecord> {
    let rows = case.steps.records().map(|(_, row)| row).filter(|row| whose(row));
    let much = rows.filter(|row| {
        let (Some(waiting), Some(allocated)) = (row.waiting(), row.allocated) else { return false };
        waits(case, waiting, allocated)
    });
    much.max_by_key(|row| row.waiting())
}

/// Whether so much waits for another stream that it counts beside what is allocated.
fn waits(case: &Case, waiting: Bytes, allocated: Bytes) -> bool {
    waiting >= case.policy.stream_held_min && waiting.0 as f64 >= allocated.0 as f64 * case.policy.notice_share
}

/// Freed blocks that wait for another stream, and where that is said.
struct StreamHeld {
    bytes: Bytes,
    /// Begins a sentence: `Rank 5`, `Device 0`.
    who: String,
    rank: Option<u32>,
    refs: Vec<EvidenceRef>,
}

fn blocks_wait(held: &StreamHeld, ledger: &mut Ledger) {
    let label = CauseLabel::StreamHeldBlocks;
    let StreamHeld { bytes, who, rank, refs } = held;
    let text = format!("{who} has {bytes} active but not allocated: freed, and waiting for another stream.");
    ledger.signal(&[label], weight::STRONG, &text, refs);
    ledger.status(ITEM, ItemStatus::Fail);
    tell(label, "freed blocks wait there for another stream", text, *rank, refs, ledger);
}

/// What memory that is held and not used does to a card, as mechanism and as claim.
fn tell(label: CauseLabel, because: &str, text: String, rank: Option<u32>, refs: &[EvidenceRef], ledger: &mut Ledger) {
    ledger.ranks(&[label], rank.as_slice());
    let mechanism = Mechanism { because: because.to_owned(), alone: text.clone(), explained: None };
    ledger.mechanism(&[label], &mechanism);
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Warning,
        confidence: 0.9,
        text,
        ranks: rank.into_iter().collect(),
        refs: refs.to_vec(),
    });
}

/// How one message or one device of a snapshot splits memory.
#[derive(Clone, Copy, Default)]
struct Split {
    /// A part other than allocated is large.
    is_large: bool,
    allocated: Bytes,
    cached: Bytes,
    /// Of the process but outside the allocator, where that is told.
    outside: Option<Bytes>,
}

/// From this share of reserved on nearly all of it is allocated: half of what counts as a large cache is not even free.
const NEARLY_ALL: f64 = 0.9;

/// The figures of splits in which nothing but allocated is large.
fn nothing_large(splits: &[Split]) -> Option<String> {
    let share = |split: &Split| {
        let reserved = split.allocated.saturating_add(split.cached).0;
        if reserved == 0 { 1.0 } else { split.allocated.0 as f64 / reserved as f64 }
    };
    let least = splits.iter().map(share).min_by(f64::total_cmp)?;
    let cached = splits.iter().map(|split| split.cached).max()?;
    let outside: Option<Vec<Bytes>> = splits.iter().map(|split| split.outside).collect();
    let head =
        if least >= NEARLY_ALL { "Nearly all that PyTorch holds is allocated" } else { "PyTorch's cache is small" };
    let at_least = if splits.len() > 1 { " at least" } else { "" };
    let tail = match outside.and_then(|all| all.into_iter().max()) {
        Some(outside) => format!("; {outside} of the process are outside its allocator"),
        None => "; what lies outside its allocator is not told".to_owned(),
    };
    Some(format!("{head}: {}{at_least}, {cached} are cached{tail}.", words::percent(least)))
}

fn is_nccl(oom: &OomEvent) -> bool {
    oom.family.to_ascii_lowercase().contains("nccl")
}

/// Messages that say the same thing count once.
fn distinct<'a>(case: &Case<'a>) -> Vec<&'a OomEvent> {
    let mut kept: Vec<&OomEvent> = Vec::new();
    for oom in case.evidence.ooms.iter().filter(|oom| !oom.host_memory) {
        let is_same = |k: &&&OomEvent| k.device == oom.device && k.rank == oom.rank && k.family == oom.family;
        if kept.len() < 16 && !kept.iter().any(|k| is_same(&k)) {
            kept.push(oom);
        }
    }
    kept
}

/// Whether figures of `subject` are of what failed.
/// Whether a record speaks of the rank or card that a message is of.
pub(crate) fn is_of(subject: Subject, oom: &OomEvent) -> bool {
    match subject {
        Subject::Rank(rank) => oom.rank == Some(rank),
        Subject::Device(device) => oom.rank.is_none() && oom.device == Some(device),
        Subject::MigSlice { .. } => false,
    }
}

fn of_rank(oom: &OomEvent) -> String {
    match (oom.rank, oom.device) {
        (Some(rank), _) => format!("On rank {}", rank.0),
        (None, Some(device)) => format!("On GPU {device}"),
        (None, None) => "In the message".to_owned(),
    }
}

/// `None` when the message has no split.
fn message(case: &Case, oom: &OomEvent, ledger: &mut Ledger) -> Option<Split> {
    let policy = case.policy;
    let refs = case.refs([&oom.at]);
    if is_nccl(oom) {
        let text = format!("{} NCCL itself could not allocate.", of_rank(oom));
        // Beside a large cache NCCL is the victim: the memory is there, and PyTorch keeps it.
        let gain = if log_cache(case).is_some() { weight::FAIR } else { weight::STRONG };
        outside(oom.rank, gain, text, None, &refs, ledger);
        return Some(Split { is_large: true, ..Split::default() });
    }
    let allocated = oom.allocated?;
    let cached = oom.reserved_unallocated.or_else(|| Some(oom.reserved?.saturating_sub(allocated)))?;
    let reserved = allocated.saturating_add(cached);
    let mut is_large = false;
    let is_cache =
        |bytes: Bytes| bytes >= policy.cached_min && bytes.0 as f64 >= reserved.0 as f64 * policy.cached_share;
    // The statistics of the same rank tell what the message does not: what of that is no cache but waits.
    let waiting = most_waiting(case, |row| is_of(row.subject, oom));
    if let Some(row) = waiting.filter(|row| !is_cache(cached.saturating_sub(row.waiting().unwrap_or_default()))) {
        is_large = true;
        let text = format!(
            "{} {cached} of {reserved} reserved are not allocated; its statistics say that {} of them are still active, so they are no cache.",
            of_rank(oom),
            row.waiting().unwrap_or_default()
        );
        let refs = case.refs([&oom.at, &row.at]);
        ledger.signal(&[CauseLabel::StreamHeldBlocks], weight::GOOD, text, &refs);
    } else if is_cache(cached) {
        is_large = true;
        let fits = oom.tried.is_some_and(|tried| tried <= cached);
        let tail = if fits { ", more than was asked for" } else { "" };
        let text = format!("{} {} of {reserved} reserved are cached but not allocated{tail}.", of_rank(oom), cached);
        cache_is_large(if fits { weight::STRONG } else { weight::GOOD }, text, &refs, oom.rank.map(|r| r.0), ledger);
        let rival = "Blocks that wait for another stream are reserved and not allocated too; the message does not tell them apart.";
        ledger.signal(&[CauseLabel::StreamHeldBlocks], weight::FAIR, rival, &refs);
    }
    if let Some(all) = oom.this_process {
        let beyond = all.saturating_sub(reserved);
        if beyond >= policy.outside_pytorch_min {
            is_large = true;
            let text = format!("{} {beyond} of this process's {all} are outside PyTorch's allocator.", of_rank(oom));
            // Just above the line, or little beside the rest, a context and a library or two would do.
            let gain = if is_clearly_outside(case, beyond, all) { weight::STRONG } else { weight::FAIR };
            outside(oom.rank, gain, text, Some(beyond), &refs, ledger);
        }
    }
    let beyond = oom.this_process.map(|all| all.saturating_sub(reserved));
    Some(Split { is_large, allocated, cached, outside: beyond })
}

/// From where on memory outside the allocator is more than a context and a library or two.
fn is_clearly_outside(case: &Case, beyond: Bytes, all: Bytes) -> bool {
    let policy = case.policy;
    beyond.0 >= 2 * policy.outside_pytorch_min.0 && beyond.0 as f64 >= all.0 as f64 * policy.notice_share
}

/// What the driver counts for a rank's process, less what its own log says PyTorch ever reserved.
fn beyond_the_allocator(case: &Case, ledger: &mut Ledger) {
    let Some((_, view)) = case.focus().filter(|(_, view)| view.lists_processes()) else { return };
    let mut reserved: BTreeMap<Rank, (Bytes, &StepRecord)> = BTreeMap::new();
    for (_, row) in case.steps.records() {
        let (Some(rank), Some(most)) = (row.subject.rank().map(Rank), row.peak_reserved.max(row.reserved)) else {
            continue;
        };
        let known = reserved.entry(rank).or_insert((most, row));
        if most > known.0 {
            *known = (most, row);
        }
    }
    let homes: Vec<&ProcessRow> =
        view.in_use(case.policy).iter().flat_map(|gpu| view.residents(gpu.subject, case.policy)).collect();
    let sizes: Vec<u64> = homes.iter().filter_map(|row| row.used).map(|used| used.0).collect();
    let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) else { return };
    // Which process is which rank need not be known where all are equal.
    let are_alike = sizes.len() == homes.len() && homes.len() >= 2 && !case.policy.differs(*most, *least);
    let own = |rank: Rank| {
        let named = homes.iter().find(|row| row.rank == Some(rank)).copied();
        named.or_else(|| homes.iter().min_by_key(|row| row.used).filter(|_| are_alike).copied())
    };
    let found = reserved.iter().filter_map(|(rank, (kept, record))| {
        let row = own(*rank)?;
        let all = row.used?;
        let beyond = all.saturating_sub(*kept);
        (beyond >= case.policy.outside_pytorch_min).then_some((*rank, beyond, all, *kept, row, *record))
    });
    let Some((rank, beyond, all, kept, row, record)) = found.max_by_key(|found| found.1) else { return };
    let refs = case.refs([&row.at, &record.at]);
    let text = format!(
        "The driver counts {all} for the process of rank {}, PyTorch there never reserved more than {kept}: {beyond} are outside its allocator.",
        rank.0
    );
    let gain = if is_clearly_outside(case, beyond, all) { weight::STRONG } else { weight::FAIR };
    outside(Some(rank), gain, text, Some(beyond), &refs, ledger);
    let caveat = "The log may end before the table was taken; both must be of the same time.";
    ledger.caveat(CauseLabel::NcclNontorchBuffers, caveat);
}

fn outside(
    rank: Option<Rank>,
    gain: f64,
    text: String,
    bytes: Option<Bytes>,
    refs: &[EvidenceRef],
    ledger: &mut Ledger,
) {
    let label = CauseLabel::NcclNontorchBuffers;
    let is_clear = gain >= weight::STRONG;
    let gain = if ledger.speaks_for(label) { weight::FAINT } else { gain };
    ledger.signal(&[label], gain, &text, refs);
    ledger.caveat(label, "A context takes 0.25 to 0.6 GiB of it; other libraries count here too.");
    let ranks: Vec<u32> = rank.map(|r| r.0).into_iter().collect();
    ledger.ranks(&[label], &ranks);
    let alone = match bytes {
        Some(bytes) => format!("{bytes} outside PyTorch's allocator is large: NCCL buffers or another library."),
        None => text.clone(),
    };
    ledger.mechanism(
        &[label],
        &Mechanism {
            because: "NCCL or another library holds memory outside PyTorch".to_owned(),
            alone,
            explained: None,
        },
    );
    ledger.status(ITEM, if is_clear { ItemStatus::Fail } else { ItemStatus::Suspect });
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: if is_clear { Severity::Critical } else { Severity::Warning },
        confidence: 0.9,
        text,
        ranks,
        refs: refs.to_vec(),
    });
}

fn cache_is_large(gain: f64, text: String, refs: &[EvidenceRef], rank: Option<u32>, ledger: &mut Ledger) {
    let label = CauseLabel::AllocatorFragmentation;
    // A cache that is merely large may be what a step has just freed; one that could not be used is a fault.
    let status = if gain >= weight::STRONG { ItemStatus::Fail } else { ItemStatus::Suspect };
    let gain = if ledger.speaks_for(label) { weight::FAINT } else { gain };
    ledger.signal(&[label], gain, &text, refs);
    ledger.status(ITEM, status);
    tell(label, "PyTorch's cache there holds memory that it cannot use", text, rank, refs, ledger);
}

fn snapshot_device(case: &Case, snapshot: &SnapshotEvidence, device: &SnapshotDevice, ledger: &mut Ledger) -> Split {
    let policy = case.policy;
    let refs = case.refs([&snapshot.at]);
    let rank = snapshot.rank.map(|r| r.0);
    let who = rank.map_or_else(|| format!("On device {}", device.device), |r| format!("On rank {r}"));
    let mut is_large = false;
    let held = device.active.saturating_sub(device.allocated);
    if waits(case, held, device.allocated) {
        is_large = true;
        let who = rank.map_or_else(|| format!("Device {}", device.device), |r| format!("Rank {r}"));
        blocks_wait(&StreamHeld { bytes: held, who, rank, refs: refs.clone() }, ledger);
    }
    let cached = device
        .reserved
        .saturating_sub(device.active.max(device.allocated))
        .saturating_sub(device.private_pool_inactive);
    if cached >= policy.cached_min && cached.0 as f64 >= device.reserved.0 as f64 * policy.cached_share {
        is_large = true;
        let failed = !device.ooms.is_empty();
        let text = format!(
            "{who} {cached} of {} reserved are cached but not in use{}.",
            device.reserved,
            if failed { ", and an allocation failed" } else { "" }
        );
        // Between steps a full cache is normal: activations were just freed.
        cache_is_large(if failed { weight::STRONG } else { weight::FAIR }, text, &refs, rank, ledger);
        if !failed {
            let label = CauseLabel::AllocatorFragmentation;
            ledger.caveat(
                label,
                "A snapshot taken between two steps shows the activations' memory as cached; that is normal.",
            );
        }
    }
    Split { is_large, allocated: device.active.max(device.allocated), cached, outside: None }
}

/// A log line in which reserved is far above allocated.
#[derive(Clone, Copy)]
struct LogCache<'a> {
    row: &'a StepRecord,
    used: Bytes,
    reserved: Bytes,
    cached: Bytes,
    /// Ranks that cache about as much, if all do and there are several.
    alike: Option<usize>,
}

fn log_cache<'a>(case: &Case<'a>) -> Option<LogCache<'a>> {
    let mut by_subject: BTreeMap<Subject, LogCache<'a>> = BTreeMap::new();
    for (_, row) in case.steps.records() {
        let (Some(used), Some(reserved)) = (row.peak_allocated.or(row.allocated), row.peak_reserved.or(row.reserved))
        else {
            continue;
        };
        // What waits for another stream is no cache.
        let in_use = row.active.map_or(used, |active| active.max(used));
        let cache = LogCache { row, used, reserved, cached: reserved.saturating_sub(in_use), alike: None };
        let widest = by_subject.entry(row.subject).or_insert(cache);
        if cache.cached >= widest.cached {
            *widest = cache;
        }
    }
    let ranks = by_subject.len();
    let least = by_subject.values().map(|cache| cache.cached).min()?;
    let mut widest = by_subject.into_values().max_by_key(|cache| cache.cached)?;
    widest.alike = Some(ranks).filter(|ranks| *ranks > 1 && !case.policy.differs(widest.cached.0, least.0));
    let is_large = widest.cached >= case.policy.cached_min
        && widest.cached.0 as f64 >= widest.reserved.0 as f64 * case.policy.cached_share;
    is_large.then_some(widest)
}

/// Weak by itself: allocated falls between steps, reserved does not. Strong where NCCL failed beside it.
fn told_by_log(case: &Case, cache: &LogCache, nccl_failed: bool, ledger: &mut Ledger) {
    let LogCache { row, used, reserved, cached, alike } = cache;
    let refs = case.step_refs([*row]);
    let label = CauseLabel::AllocatorFragmentation;
    let at_peak = row.peak_allocated.is_some();
    let text = format!(
        "{} has {reserved} reserved and {used} allocated {}: {cached} are cached.",
        words::capital(&row.subject.to_string()),
        if at_peak { "at its peak" } else { "at that moment" }
    );
    // A cache as large on every rank is how this job works, not what one card has above the others.
    if let Some(ranks) = alike.filter(|_| !nccl_failed) {
        let all = words::capital(&words::all_of(ranks, "ranks"));
        let text = format!("{text} {all} cache about as much, so this explains no difference between them.");
        let severity = Severity::Info;
        ledger.claim(Claim { item: ITEM, label: None, severity, confidence: 0.8, text, ranks: vec![], refs });
        return;
    }
    let gain = match (nccl_failed, at_peak) {
        (true, _) => weight::STRONG,
        (false, true) => weight::GOOD,
        (false, false) => weight::FAIR,
    };
    ledger.signal(&[label], gain, &text, &refs);
    if nccl_failed {
        let reason = "NCCL could not allocate while PyTorch's cache held that much.";
        ledger.signal(&[label], weight::FAIR, reason, &refs);
    }
    if !at_peak {
        ledger.caveat(label, "Between two steps allocated is low and reserved stays; only the peak of both tells.");
    }
    ledger.ranks(&[label], row.subject.rank().as_slice());
    ledger.mechanism(
        &[label],
        &Mechanism {
            because: "PyTorch's cache there holds memory that it does not use".to_owned(),
            alone: text.clone(),
            explained: None,
        },
    );
    ledger.status(ITEM, ItemStatus::Suspect);
    ledger.claim(Claim {
        item: ITEM,
        label: Some(label),
        severity: Severity::Warning,
        confidence: 0.8,
        text,
        ranks: row.subject.rank().into_iter().collect(),
        refs,
    });
}
