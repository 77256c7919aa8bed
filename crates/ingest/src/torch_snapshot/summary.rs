//! Tables to figures: sums per device, call sites, the live curve.
//!
//! Segments' own fields are believed and checked against their blocks. Knows no pickle.

use super::heap::Heap;
use super::replay::{LiveBlock, Replay, replay};
use super::rows::{Block, Event, NO_STACK, Segment};
use hashbrown::HashMap;
use rankscope_model::{Bytes, CallSite, Frame, SnapshotDevice};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Call sites that are kept of one device.
pub(super) const MAX_SITES: usize = 50;
/// Frames that are kept of one call site.
pub(super) const MAX_FRAMES: usize = 64;
/// Of a deeper stack: innermost frames that are kept. They tell the operator; the user's own code stands at the other end.
const INNERMOST: usize = 16;
/// CUDA ordinals from here are damage: a host has some tens of devices.
const MAX_DEVICES: u32 = 1024;
/// Share of contradicting events that is noise: another thread may allocate while the snapshot is taken.
const NOISE: u64 = 100;
/// Buffers are sized in round numbers; a trace of such a length is probably a full one, from this length on.
const ROUND_LENGTH: usize = 1000;

/// All devices that hold segments or events, ascending, with what is to be said about them.
pub(super) fn summarize(
    heap: &Heap,
    segments: &[Segment],
    traces: &[&[Event]],
    max_ooms: usize,
) -> (Vec<SnapshotDevice>, Vec<String>) {
    let mut by_device: BTreeMap<u32, Tally> = BTreeMap::new();
    let mut warnings = Vec::new();
    let mut impossible = 0u64;
    for segment in segments {
        if segment.device < MAX_DEVICES {
            by_device.entry(segment.device).or_default().add(segment, &heap.blocks);
        } else {
            impossible += 1;
        }
    }
    let events_of = |device: u32| traces.get(device as usize).copied().unwrap_or_default();
    for (device, events) in (0..MAX_DEVICES).zip(traces) {
        if !events.is_empty() {
            by_device.entry(device).or_default();
        }
    }
    if impossible > 0 {
        warnings.push(format!("{impossible} segments name a device that cannot exist and were left out"));
    }
    let devices = by_device
        .into_iter()
        .map(|(id, tally)| tally.finish(heap, id, events_of(id), max_ooms, &mut warnings))
        .collect();
    (devices, warnings)
}

/// Sums of one device while its segments are read.
#[derive(Default)]
struct Tally {
    reserved: Bytes,
    allocated: Bytes,
    active: Bytes,
    requested: Option<Bytes>,
    private_inactive: Bytes,
    segments: u64,
    blocks: u64,
    mismatched: u64,
    misplaced_blocks: u64,
    live: Vec<LiveBlock>,
    sites: HashMap<u32, (Bytes, u64)>,
}

impl Tally {
    fn add(&mut self, segment: &Segment, table: &[Block]) {
        let blocks = segment.blocks.map_or(&[][..], |run| run.of(table));
        let (mut size, mut allocated, mut active) = (Bytes(0), Bytes(0), Bytes(0));
        // Before torch 2.1 blocks have no address: they follow each other from the segment's own.
        let mut next = segment.address.unwrap_or(0);
        let end = segment.address.zip(segment.total).and_then(|(start, total)| start.checked_add(total));
        for block in blocks {
            let addr = block.address.unwrap_or(next);
            let after = addr.saturating_add(block.size);
            if segment.address.is_some_and(|start| addr < start) || end.is_some_and(|end| after > end) {
                self.misplaced_blocks += 1;
            }
            next = after;
            size = size.saturating_add(Bytes(block.size));
            if !block.is_active() {
                continue;
            }
            active = active.saturating_add(Bytes(block.size));
            if block.is_allocated() {
                allocated = allocated.saturating_add(Bytes(block.size));
            }
            if let Some(requested) = block.requested {
                self.requested = Some(self.requested.unwrap_or_default().saturating_add(Bytes(requested)));
            }
            let recorded = block.stack != NO_STACK;
            self.live.push(LiveBlock { addr, requested: block.requested.unwrap_or(block.size), recorded });
            let site = self.sites.entry(block.stack).or_default();
            *site = (site.0.saturating_add(Bytes(block.size)), site.1 + 1);
        }
        let own = |field: Option<u64>, sum: Bytes| field.map_or(sum, Bytes);
        let total = own(segment.total, size);
        let own_allocated = own(segment.allocated, allocated);
        let own_active = own(segment.active, active);
        let agrees = (total, own_allocated, own_active) == (size, allocated, active);
        self.mismatched += u64::from(!agrees && segment.blocks.is_some());
        self.reserved = self.reserved.saturating_add(total);
        self.allocated = self.allocated.saturating_add(own_allocated);
        self.active = self.active.saturating_add(own_active);
        if segment.private {
            self.private_inactive = self.private_inactive.saturating_add(total.saturating_sub(own_active));
        }
        self.segments += 1;
        self.blocks += blocks.len() as u64;
    }

    fn finish(
        self,
        heap: &Heap,
        device: u32,
        events: &[Event],
        max_ooms: usize,
        warnings: &mut Vec<String>,
    ) -> SnapshotDevice {
        if self.mismatched > 0 {
            warnings.push(format!(
                "device {device}: {} of {} segments disagree with the sum of their blocks; the segments' own figures are used",
                self.mismatched, self.segments
            ));
        }
        if self.misplaced_blocks > 0 {
            warnings.push(format!("device {device}: {} blocks lie outside their segment", self.misplaced_blocks));
        }
        let replay = replay(events, &self.live, max_ooms);
        let count = events.len() as u64;
        if let Some(replay) = &replay
            && replay.contradictions > count / NOISE
        {
            warnings.push(format!(
                "device {device}: {} of {count} events contradict the blocks or each other, as if parts of the recording \
                 were missing; the curve of live bytes is a lower bound",
                replay.contradictions
            ));
        }
        SnapshotDevice {
            device,
            reserved: self.reserved,
            allocated: self.allocated,
            active: self.active,
            requested: self.requested,
            private_pool_inactive: self.private_inactive,
            segments: self.segments,
            blocks: self.blocks,
            events: count,
            mismatched_segments: self.mismatched,
            peak_requested_in_window: replay.as_ref().map(|r| r.peak),
            window_truncated: replay.as_ref().is_some_and(|r| is_truncated(events.len(), r)),
            top_sites: top_sites(heap, &self.sites),
            ooms: replay.as_ref().map_or_else(Vec::new, |r| r.ooms.clone()),
            live: replay.map(|r| r.live),
        }
    }
}

/// Whether events before the first one were overwritten.
///
/// Sure sign: a block has a stack, so it was allocated while recording was on, but its allocation is not in the trace.
/// Weaker sign: the length is that of a full buffer, and something was live before the first event.
fn is_truncated(length: usize, replay: &Replay) -> bool {
    let round = length >= ROUND_LENGTH && (length.is_multiple_of(ROUND_LENGTH) || length.is_power_of_two());
    replay.lost_allocations > 0 || (round && replay.before > Bytes(0))
}

/// The largest call sites, biggest first; equal ones by more blocks, then by their frames, so that the order is the
/// same for every rank.
fn top_sites(heap: &Heap, sites: &HashMap<u32, (Bytes, u64)>) -> Vec<CallSite> {
    let mut sites: Vec<_> = sites.iter().map(|(stack, (bytes, blocks))| (*stack, *bytes, *blocks)).collect();
    sites.sort_unstable_by(|a, b| {
        let size = |site: &(u32, Bytes, u64)| Reverse((site.1, site.2));
        size(a).cmp(&size(b)).then_with(|| heap.frames(a.0).cmp(heap.frames(b.0)))
    });
    sites.truncate(MAX_SITES);
    sites.into_iter().map(|(stack, bytes, blocks)| CallSite { frames: frames(heap, stack), bytes, blocks }).collect()
}

/// The frames of a stack. Of one deeper than [`MAX_FRAMES`] the middle is left out, and a frame says so.
fn frames(heap: &Heap, stack: u32) -> Vec<Frame> {
    let all = heap.frames(stack);
    let left_out = if all.len() > MAX_FRAMES { all.len() - (MAX_FRAMES - 1) } else { 0 };
    let mut frames = Vec::with_capacity(all.len() - left_out + usize::from(left_out > 0));
    for (at, (function, file, line)) in all.enumerate() {
        if at == INNERMOST && left_out > 0 {
            frames.push(Frame { function: format!("[{left_out} frames left out]"), file: String::new(), line: 0 });
        }
        if left_out == 0 || at < INNERMOST || at >= INNERMOST + left_out {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            frames.push(Frame { function: text(function), file: text(file), line });
        }
    }
    frames
}
