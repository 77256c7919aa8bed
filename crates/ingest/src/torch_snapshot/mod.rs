//! PyTorch CUDA memory snapshots (`torch.cuda.memory._dump_snapshot`), torch 1.13 to 2.15, as pickles of protocol 2
//! to 5.
//!
//! A pickle is a program. This reader carries out only the instructions that make dicts, lists, texts and numbers,
//! and folds them into small tables as they stream by: nothing of the file is run, and the tree is never built.
//! Knows no rule about causes.
//!
//! | module | does |
//! |---|---|
//! | `pickle`, `opcodes`, `value`, `runs` | the machine: opcodes, its stack and memo, and runs of references that came before |
//! | `heap`, `fields`, `rows`, `words`, `intern`, `growth` | what a dict or list is, as rows of tables |
//! | `salvage` | what is left of a file that breaks off |
//! | `summary`, `sites`, `replay`, `changes`, `bands`, `segments`, `version` | figures: sums, call sites, memory over time, by line, by segment, versions of torch |

mod bands;
mod changes;
mod fields;
mod growth;
mod heap;
mod intern;
mod opcodes;
mod pickle;
mod replay;
mod rows;
mod runs;
mod salvage;
mod segments;
mod sites;
mod summary;
mod value;
mod version;
mod words;

use crate::lines::counted;
use crate::{ReadContext, ReadError, rank_from_name};
use heap::Heap;
use pickle::{Decoded, End};
use rankscope_model::{ArtifactKind, Evidence, MOST_BYTES, Provenance, SnapshotEvidence};
use rows::{Top, Trace};
use std::collections::HashSet;
use std::io::BufRead;
use value::{ObjectId, Value};

/// Whether a file that begins with `head` is a pickle of a protocol that can hold a snapshot. Compression is taken
/// off before.
pub fn looks_like(head: &[u8]) -> bool {
    matches!(head, [0x80, 2..=5, ..])
}

/// Reads one snapshot. Gives one [`SnapshotEvidence`], and its doubts as warnings of the artifact.
///
/// A file that breaks off is used up to there if its segments are complete.
///
/// Errors: [`ReadError::Refused`] if the pickle wants to import or call something (nothing is executed),
/// [`ReadError::NotThisFormat`] if it holds something else, [`ReadError::Malformed`] if it is damaged,
/// [`ReadError::OverLimit`] if it needs far more memory than any snapshot of its size.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    let Decoded { mut heap, end } = pickle::decode(input)?;
    let mut warnings = Vec::new();
    let top = match end {
        End::Whole { root, more_from } => {
            warnings.extend(more_from.map(|offset| {
                format!(
                    "the snapshot ends at byte {offset}, and what follows was not read; if several were written into \
                     one file, upload each by itself"
                )
            }));
            whole(&heap, root)?
        }
        End::Cut { offset, stack } => {
            let top = salvage::salvage(&mut heap, &stack).map_err(|heap::TableFull| pickle::too_large())?;
            warnings.push(format!(
                "the file ends at byte {offset}, in the middle of the snapshot; the segments are complete, the events \
                 are used up to there"
            ));
            top.ok_or_else(|| cut_short(offset, &stack))?
        }
    };
    let segments = match top.segments {
        Some(list) => heap
            .segments_of(list)
            .ok_or_else(|| not_a_snapshot("a dict whose `segments` is something else than a list of segments"))?,
        None => &[],
    };
    if segments.is_empty() && top.device_traces.is_none() {
        return Err(not_a_snapshot("a dict without segments and without a list of `device_traces`"));
    }
    let traces = traces(&heap, top, &mut warnings);
    let events: usize = traces.iter().map(|trace| trace.events.len()).sum();
    let (mut devices, doubts) = summary::summarize(&heap, segments, &traces, ctx.limits.max_oom_events);
    warnings.extend(doubts);
    let holds_nothing = devices.is_empty();
    devices.retain(|device| {
        let most = device.reserved.max(device.allocated).max(device.active);
        if most > MOST_BYTES {
            warnings.push(format!(
                "{most} on device {} is more than any machine has, which is not possible: the snapshot is damaged, and \
                 the figures of that device were left out",
                device.device
            ));
        }
        most <= MOST_BYTES
    });
    if holds_nothing {
        warnings.push(
            "the snapshot holds no CUDA memory and no events: it was taken before anything was allocated, or \
                       in a process without a GPU"
                .to_owned(),
        );
    }
    if heap.left_out.sizes > 0 {
        warnings.push(format!(
            "{} not possible (negative, or no whole number): the snapshot is damaged. A segment without its total counts \
             as the sum of its blocks, a block without its size as nothing",
            counted(heap.left_out.sizes, "size of a segment or block is", "sizes of segments and blocks are")
        ));
    }
    if heap.left_out.strangers > 0 {
        warnings.push(format!(
            "{} left out",
            counted(
                heap.left_out.strangers,
                "entry is not what its list holds, and was",
                "entries are not what their list holds, and were"
            )
        ));
    }
    if heap.left_out.frames > 0 {
        warnings.push(format!("{} left out", counted(heap.left_out.frames, "stack frame was", "stack frames were")));
    }
    warnings.truncate(ctx.limits.max_warnings);

    let rank = rank_from_name(ctx.name);
    let mut info = ctx.info(ArtifactKind::TorchSnapshot);
    info.ranks.extend(rank.map(|rank| rank.0));
    info.devices.extend(devices.iter().map(|device| device.device));
    info.warnings = warnings;
    let torch_versions = version::torch_versions(&heap.seen, events > 0).to_owned();
    let at = Provenance::offset(ctx.artifact, 0);
    Ok(Evidence {
        artifacts: vec![info],
        snapshots: vec![SnapshotEvidence { at, rank, torch_versions, devices }],
        ..Evidence::default()
    })
}

/// The top level of a complete pickle: the dict, or the bare list of segments of torch 1.13 and of
/// `torch.cuda.memory_snapshot()`.
fn whole(heap: &Heap, root: Value) -> Result<Top, ReadError> {
    let Some(object) = root.as_object() else {
        return Err(not_a_snapshot("a single value"));
    };
    if let Some(top) = heap.top(object) {
        return Ok(top);
    }
    if heap.is_dict(object) {
        return Err(not_a_snapshot("a dict without `segments` and `device_traces`"));
    }
    match heap.segments_of(object) {
        Some([]) => Err(not_a_snapshot("an empty list")),
        Some(_) => Ok(Top { segments: Some(object), device_traces: None }),
        None => Err(not_a_snapshot("a list of something else than segments")),
    }
}

/// The events by device ordinal.
fn traces<'a>(heap: &'a Heap, top: Top, warnings: &mut Vec<String>) -> Vec<Trace<'a>> {
    let Some(list) = top.device_traces else { return Vec::new() };
    let Some(lists) = heap.lists_of(list) else {
        warnings.push("`device_traces` is not a list of lists; events were not read".to_owned());
        return Vec::new();
    };
    let mut unknown = 0u64;
    // A list that many devices refer to would be walked through for each of them.
    let mut taken: HashSet<ObjectId> = HashSet::new();
    let mut repeated = 0u64;
    let known = summary::MAX_DEVICES as usize;
    let traces = lists
        .iter()
        .take(known)
        .map(|events| {
            if !heap.is_empty_list(*events) && !taken.insert(*events) {
                repeated = repeated.saturating_add(1);
                return Trace::default();
            }
            heap.events_of(*events).unwrap_or_else(|| {
                unknown = unknown.saturating_add(1);
                Trace::default()
            })
        })
        .collect();
    if repeated > 0 {
        warnings.push(format!(
            "{} to a list of events that another one has; no torch writes that, and those events were counted once",
            counted(repeated, "device refers", "devices refer")
        ));
    }
    if lists.len() > known {
        warnings.push(format!("traces of {} devices; those of the first {known} were read", lists.len()));
    }
    if unknown > 0 {
        warnings.push(format!(
            "{unknown} of {} {} something else than events, which was not read",
            counted(lists.len() as u64, "trace", "traces"),
            if unknown == 1 { "holds" } else { "hold" }
        ));
    }
    traces
}

fn not_a_snapshot(what: &str) -> ReadError {
    ReadError::NotThisFormat {
        why: format!(
            "a pickle, but not a memory snapshot: it holds {what}. Upload the file that \
             torch.cuda.memory._dump_snapshot wrote"
        ),
    }
}

fn cut_short(offset: u64, stack: &[Value]) -> ReadError {
    let nothing = stack.is_empty();
    ReadError::Malformed {
        offset,
        why: if nothing {
            "the file ends before anything was said".to_owned()
        } else {
            "the file ends before its list of segments is complete, so no total can be told".to_owned()
        },
        advice: "copy it again, and let the job finish writing first".to_owned(),
    }
}
