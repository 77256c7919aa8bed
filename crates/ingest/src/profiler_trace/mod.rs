//! torch.profiler traces in the Chrome format (`*.pt.trace.json`), torch 1.9 to the newest.
//!
//! Reads the `[memory]` and `[OutOfMemory]` events, the devices and the `distributedInfo`; every other event streams by.
//! Knows no rule about causes.

mod document;
mod memory;

use crate::lines::counted;
use crate::{ReadContext, ReadError, json, rank_from_name};
use document::Trace;
use memory::{Clock, DeviceRows};
use rankscope_model::{
    ArtifactKind, Bytes, Evidence, MemoryTrace, OomEvent, Provenance, Rank, TraceSource, UnixMicros,
};
use std::io::BufRead;

/// Whether a text that begins with `head` is a trace.
///
/// The key `traceEvents` decides, or the two that kineto writes first; a bare list of events counts as well.
pub fn looks_like(head: &str) -> bool {
    let text = head.trim_start_matches('\u{feff}').trim_start();
    let has = |key: &str| {
        text.match_indices(key).any(|(at, _)| {
            text.get(at.saturating_add(key.len())..).is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    match text.as_bytes().first() {
        Some(b'{') => has("\"traceEvents\"") || (has("\"schemaVersion\"") && has("\"deviceProperties\"")),
        Some(b'[') => {
            text.get(1..).is_some_and(|rest| rest.trim_start().starts_with('{')) && has("\"ph\"") && has("\"ts\"")
        }
        _ => false,
    }
}

/// Reads one trace. Gives a [`MemoryTrace`] for each GPU with memory events, or one without a curve.
///
/// A file that breaks off is used up to there.
///
/// Errors: [`ReadError::NotThisFormat`] if it is no JSON or holds no trace, [`ReadError::Io`].
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    let mut trace = Trace::default();
    let mut stream = json::stream(input);
    let ended = trace.read(&mut stream);
    let mut warnings = Vec::new();
    match ended {
        Err(error) if !trace.is_one() => return Err(json::not_readable(error, "a profiler trace")),
        Err(error) => warnings.push(json::what_is_missing(&error)),
        Ok(()) if !trace.is_one() => {
            return Err(ReadError::NotThisFormat {
                why: "JSON, but not a profiler trace: it has no `traceEvents`. Upload the file that torch.profiler's \
                      export_chrome_trace wrote"
                    .to_owned(),
            });
        }
        Ok(()) => {}
    }
    let from_name = rank_from_name(ctx.name);
    let rank = trace.distributed.rank.map(Rank).or(from_name);
    if let (Some(written), Some(named)) = (trace.distributed.rank, from_name)
        && written != named.0
    {
        warnings.push(format!(
            "its distributedInfo says rank {written}, its name rank {}; rank {written} is used",
            named.0
        ));
    }
    if rank.is_none() {
        warnings.push(
            "the trace does not say its rank (no distributedInfo); name the file after it, rank3.pt.trace.json"
                .to_owned(),
        );
    }
    let clock = Clock::new(trace.base_nanos, &trace.devices);
    let at = Provenance::offset(ctx.artifact, 0);
    let make = |device: Option<u32>| {
        let properties = device.and_then(|id| trace.properties.iter().find(|found| found.id == id));
        MemoryTrace {
            at: at.clone(),
            source: TraceSource::Profiler,
            rank,
            world_size: trace.distributed.world_size,
            backend: trace.distributed.backend.clone(),
            device,
            device_name: properties.and_then(|found| found.name.clone()),
            capacity: properties.and_then(|found| found.total.filter(|total| *total > 0)).map(Bytes),
            events: 0,
            curve: None,
            peak: None,
            peak_reserved: None,
            is_lower_bound: false,
        }
    };
    let mut devices: Vec<DeviceRows> = std::mem::take(&mut trace.devices);
    devices.sort_by_key(|rows| rows.device);
    let mut traces: Vec<MemoryTrace> = Vec::with_capacity(devices.len().max(1));
    for rows in devices {
        let mut found = make(Some(rows.device));
        rows.fill(&mut found, clock, &mut warnings);
        traces.push(found);
    }
    if traces.is_empty() {
        warnings.push(match trace.host_events {
            0 => "the trace has no memory events; record it with profile_memory=True".to_owned(),
            1 => "the only memory event is of the host, none is of a GPU".to_owned(),
            n => format!("all {n} memory events are of the host, none of a GPU"),
        });
        traces.push(make(None));
    }
    if trace.beyond > 0 {
        warnings.push(format!(
            "{} left out beyond the limit, so the curves end early; record fewer steps",
            counted(trace.beyond, "memory event was", "memory events were")
        ));
    }
    if trace.left_out > 0 {
        let events = counted(
            trace.left_out,
            "memory event could not be read and was",
            "memory events could not be read and were",
        );
        warnings.push(format!("{events} left out"));
    }
    let ooms = out_of_memory(&trace, rank, &at, clock, ctx.limits.max_oom_events);

    let mut info = ctx.info(ArtifactKind::ProfilerTrace);
    info.ranks.extend(rank.map(|rank| rank.0));
    info.devices.extend(traces.iter().filter_map(|found| found.device));
    warnings.truncate(ctx.limits.max_warnings);
    info.warnings = warnings;
    Ok(Evidence { artifacts: vec![info], traces, ooms, ..Evidence::default() })
}

/// The failed allocations, as messages of the profiler.
fn out_of_memory(trace: &Trace, rank: Option<Rank>, at: &Provenance, clock: Clock, most: usize) -> Vec<OomEvent> {
    let of = |failed: &document::Failed| {
        let reserved = failed.reserved.map(Bytes);
        OomEvent {
            at: Provenance {
                time: failed.nanos.and_then(|nanos| clock.unix_micros(nanos)).map(UnixMicros),
                ..at.clone()
            },
            family: "torch_profiler".to_owned(),
            rank,
            device: Some(failed.device),
            tried: Some(Bytes(failed.tried)),
            total: trace
                .properties
                .iter()
                .find(|found| found.id == failed.device)
                .and_then(|found| found.total)
                .map(Bytes),
            limit: None,
            free: None,
            this_process: None,
            allocated: failed.allocated.map(Bytes),
            reserved,
            reserved_unallocated: reserved.zip(failed.allocated.map(Bytes)).map(|(all, used)| all.saturating_sub(used)),
            others: Vec::new(),
            host_memory: false,
            frames: Vec::new(),
        }
    };
    trace.failed.iter().take(most).map(of).collect()
}
