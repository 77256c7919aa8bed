//! Who ran out of memory, what was asked for, and what the card held then: the failure itself, whatever its cause.
//!
//! Reads the messages, and what the allocators of snapshots recorded of failures; what these say of causes is told by the
//! rules.

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::words;
use rankscope_model::{Bytes, Item, OomEvent, Rank, Severity, SnapshotEvidence, Subject};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The family of a failure that a snapshot's allocator recorded.
const RECORDED: &str = "snapshot";

/// The failures of GPUs: by their messages, and of ranks without one by their snapshots. A message without a rank may be of
/// any of them.
fn failures<'a>(case: &Case<'a>) -> Vec<Cow<'a, OomEvent>> {
    let messages: Vec<&OomEvent> = case.evidence.ooms.iter().filter(|oom| !oom.host_memory).collect();
    let is_told = |rank: Option<Rank>| {
        messages.iter().any(|oom| oom.rank.is_none() || rank.is_none_or(|rank| oom.rank == Some(rank)))
    };
    let untold = case.evidence.snapshots.iter().filter(|snapshot| !is_told(snapshot.rank));
    let recorded: Vec<Cow<OomEvent>> = untold.flat_map(recorded).map(Cow::Owned).collect();
    messages.into_iter().map(Cow::Borrowed).chain(recorded).collect()
}

/// What the allocator of a snapshot recorded: of each device the last failure, because earlier ones were caught.
fn recorded(snapshot: &SnapshotEvidence) -> impl Iterator<Item = OomEvent> + '_ {
    snapshot.devices.iter().filter_map(|device| {
        let failure = device.last_failure()?;
        Some(OomEvent {
            rank: snapshot.rank,
            device: Some(device.device),
            tried: failure.tried,
            free: failure.free,
            ..OomEvent::new(snapshot.at.clone(), RECORDED)
        })
    })
}

/// One sentence for the headline; `None` where no GPU ran out of memory.
pub(crate) fn sentence(case: &Case) -> Option<String> {
    let failures = failures(case);
    let events: Vec<&OomEvent> = failures.iter().map(AsRef::as_ref).collect();
    // The message that says most speaks for all; one that names its rank goes first, and of equal ones the first.
    let told = events.iter().copied().rev().max_by_key(|oom| (oom.rank.is_some() && known(oom) > 0, known(oom)))?;
    let ranks: BTreeSet<Subject> = events.iter().filter_map(|oom| oom.rank.map(Subject::Rank)).collect();
    let devices = || events.iter().filter_map(|oom| oom.device.map(Subject::Device)).collect();
    // A failure is often printed twice, once without the rank.
    let failed: Vec<Subject> = if ranks.is_empty() { devices() } else { ranks }.into_iter().collect();
    let who = if failed.is_empty() { "A process".to_owned() } else { words::capital(&words::subjects(&failed)) };
    let mut parts: Vec<String> = asked(told).into_iter().collect();
    parts.extend(held(told));
    if parts.is_empty() {
        let place = case.refs([&told.at]).first().map(|at| match at.line {
            Some(line) => format!(" ({}, line {line})", at.artifact),
            None => format!(" ({})", at.artifact),
        });
        return Some(format!("{who} ran out of memory{}.", place.unwrap_or_default()));
    }
    let of_one = if failed.len() > 1 { subject(told).map(|one| format!(" of {one}")) } else { None };
    Some(format!(
        "{who} ran out of memory{}: {}.",
        of_one.map_or_else(String::new, |one| format!(
            "; the {}{one}",
            if told.family == RECORDED { "snapshot" } else { "message" }
        )),
        parts.join("; ")
    ))
}

/// The same under its item, with the messages to click on.
pub(crate) fn note(case: &Case, ledger: &mut Ledger) {
    let Some(text) = sentence(case) else { return };
    let failures = failures(case);
    let refs = case.refs(failures.iter().map(|oom| &oom.at));
    let ranks = failures.iter().filter_map(|oom| oom.rank).map(|rank| rank.0).collect();
    let severity = Severity::Warning;
    ledger.claim(Claim { item: Item::MemoryStats, label: None, severity, confidence: 1.0, text, ranks, refs });
}

/// The rank where it is known, else the device as that process counts it.
fn subject(oom: &OomEvent) -> Option<Subject> {
    oom.rank.map(Subject::Rank).or(oom.device.map(Subject::Device))
}

/// How many figures a message has.
fn known(oom: &OomEvent) -> usize {
    [oom.tried, oom.free, oom.total, oom.this_process, oom.allocated, oom.reserved].iter().flatten().count()
}

/// `648 MiB were asked for, 574 MiB of 39.6 GiB were free`.
fn asked(oom: &OomEvent) -> Option<String> {
    let tried = oom.tried.map(|tried| format!("{tried} were asked for"));
    let free = match (oom.free, oom.total) {
        // On a GPU that shares the host's memory the driver counts that too.
        (Some(free), Some(total)) if free > total => {
            Some(format!("the driver called {free} free on a card of {total}"))
        }
        (Some(free), Some(total)) => Some(format!("{free} of {total} were free")),
        (Some(free), None) => Some(format!("{free} were free")),
        (None, Some(total)) => Some(format!("the card has {total}")),
        (None, None) => None,
    };
    let limit = oom.limit.map(|limit| format!("{}'s allocator may take {limit}", allocator(&oom.family)));
    let parts: Vec<String> = tried.into_iter().chain(free).chain(limit).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `its process held 14.5 GiB, other processes 1.2 GiB`.
fn held(oom: &OomEvent) -> Option<String> {
    let reserved = oom.reserved.or_else(|| Some(oom.allocated?.saturating_add(oom.reserved_unallocated?)));
    let own = match (oom.this_process, reserved.or(oom.allocated)) {
        (Some(all), _) => Some(format!("its process held {all}")),
        (None, Some(kept)) => Some(format!("{} held {kept} there", allocator(&oom.family))),
        (None, None) => None,
    };
    let others: Bytes = oom.others.iter().map(|other| other.used).sum();
    let others =
        (others > Bytes(0)).then(|| format!("other processes {}{others}", if own.is_some() { "" } else { "held " }));
    let parts: Vec<String> = own.into_iter().chain(others).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Whose allocator the figures of a message are of, as the reader's families tell.
fn allocator(family: &str) -> &'static str {
    match family {
        "tensorflow_bfc" | "tensorflow_oom" => "TensorFlow",
        "xla" | "xla_tpu" | "xla_tpu_scratch" => "XLA",
        "paddle" => "Paddle",
        _ => "PyTorch",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use rankscope_model::{ArtifactId, ArtifactInfo, ArtifactKind, Evidence, OtherProcess, Provenance};

    fn said(ooms: Vec<OomEvent>) -> Option<String> {
        let info = ArtifactInfo {
            name: "train.log".into(),
            kind: ArtifactKind::OomMessage,
            ranks: vec![],
            devices: vec![],
            bytes: 1,
            warnings: vec![],
        };
        let evidence = Evidence { artifacts: vec![info], ooms, ..Evidence::default() };
        sentence(&Case::new(&evidence, &Policy::default()))
    }

    fn oom(rank: Option<u32>, device: Option<u32>) -> OomEvent {
        let at = Provenance::line(ArtifactId(0), 8, "CUDA out of memory");
        OomEvent { rank: rank.map(Rank), device, ..OomEvent::new(at, "F4") }
    }

    #[test]
    fn the_failure_is_told_with_what_the_message_knows() {
        let mib = |n| Some(Bytes::from_mib(n));
        let full = OomEvent {
            tried: mib(648),
            free: mib(574),
            total: mib(40_540),
            this_process: mib(39_000),
            others: vec![OtherProcess { pid: 7, used: Bytes::from_mib(966) }],
            ..oom(Some(5), Some(5))
        };
        assert_eq!(
            said(vec![full.clone()]).unwrap(),
            "Rank 5 ran out of memory: 648 MiB were asked for, 574 MiB of 39.6 GiB were free; its process held 38.1 GiB, other processes 966 MiB."
        );
        assert_eq!(
            said(vec![oom(Some(1), None), full]).unwrap(),
            "Ranks 1 and 5 ran out of memory; the message of rank 5: 648 MiB were asked for, 574 MiB of 39.6 GiB were free; its process held 38.1 GiB, other processes 966 MiB."
        );
        let old = OomEvent { allocated: mib(100), reserved_unallocated: mib(20), ..oom(None, Some(2)) };
        assert_eq!(said(vec![old]).unwrap(), "GPU 2 ran out of memory: PyTorch held 120 MiB there.");
        let shared = OomEvent { free: mib(90_112), total: mib(15_872), ..oom(None, Some(0)) };
        assert_eq!(
            said(vec![shared]).unwrap(),
            "GPU 0 ran out of memory: the driver called 88.0 GiB free on a card of 15.5 GiB."
        );
        assert_eq!(said(vec![oom(None, None)]).unwrap(), "A process ran out of memory (train.log, line 8).");
        assert_eq!(said(vec![OomEvent { host_memory: true, ..oom(None, None) }]), None);
    }
}
