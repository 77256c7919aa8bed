//! Tables to figures: sums per device, call sites, the live curve.
//!
//! Segments' own fields are believed and checked against their blocks. Knows no pickle.

use super::bands::site_bands;
use super::heap::Heap;
use super::replay::{AtEnd, BySite, LiveBlock, Replay, replay};
use super::rows::{Block, BlockState, Event, Run, Segment, Trace};
use super::segments::Segments;
use super::sites::{Room, top_sites};
use crate::lines::counted;
use rankscope_model::{Bytes, MOST_BYTES, NeverFreed, SeriesAxis, SnapshotDevice, SnapshotPeak};
use std::collections::{BTreeMap, HashSet};

/// Call sites that are kept of what is live at the end of one device.
const MAX_SITES: usize = 50;
/// Call sites that are kept of what was live at the peak, and of what was never freed.
const MAX_OTHER_SITES: usize = 20;
/// CUDA ordinals from here are damage: a host has some tens of devices.
pub(super) const MAX_DEVICES: u32 = 128;
/// Share of contradicting events that is noise: another thread may allocate while the snapshot is taken.
const NOISE: u64 = 100;
/// Buffers are sized in round numbers; a trace of such a length is probably a full one, from this length on.
const ROUND_LENGTH: usize = 1000;

/// All devices that hold segments or events, ascending, with what is to be said about them.
pub(super) fn summarize(
    heap: &Heap,
    segments: &[Segment],
    traces: &[Trace<'_>],
    max_ooms: usize,
) -> (Vec<SnapshotDevice>, Vec<String>) {
    let mut by_device: BTreeMap<u32, Tally> = BTreeMap::new();
    let mut warnings = Vec::new();
    let mut impossible = 0u64;
    // A list that many segments refer to would be as many times as large as in the file.
    let mut taken: HashSet<Run> = HashSet::new();
    let mut repeated = 0u64;
    for segment in segments {
        if segment.device < MAX_DEVICES {
            let is_repeated = segment.blocks.is_some_and(|run| !run.is_empty() && !taken.insert(run));
            repeated = repeated.saturating_add(u64::from(is_repeated));
            let blocks = segment.blocks.filter(|_| !is_repeated);
            by_device.entry(segment.device).or_default().add(&Segment { blocks, ..*segment }, &heap.blocks);
        } else {
            impossible = impossible.saturating_add(1);
        }
    }
    let trace_of = |device: u32| traces.get(device as usize).copied().unwrap_or_default();
    for (device, trace) in (0..MAX_DEVICES).zip(traces) {
        if !trace.events.is_empty() {
            by_device.entry(device).or_default();
        }
    }
    if impossible > 0 {
        warnings.push(format!(
            "{} left out",
            counted(
                impossible,
                "segment names a device that cannot exist and was",
                "segments name a device that cannot exist and were"
            )
        ));
    }
    if repeated > 0 {
        warnings.push(format!(
            "{} to a list of blocks that another one has; no torch writes that, and those blocks were counted once",
            counted(repeated, "segment refers", "segments refer")
        ));
    }
    let mut room = Room::new();
    let devices = by_device
        .into_iter()
        .map(|(id, tally)| tally.finish(heap, id, trace_of(id), (max_ooms, &mut room), &mut warnings))
        .collect();
    if room.left_out > 0 {
        // In front: the doubts about each device may fill the list.
        warnings
            .insert(0, format!("the call sites name too much text; {} of their frames were left out", room.left_out));
    }
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
    sites: BySite,
    /// Where the segments lie: address and length.
    places: Vec<(u64, u64)>,
    fill: Segments,
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
                self.misplaced_blocks = self.misplaced_blocks.saturating_add(1);
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
            self.live.push(LiveBlock {
                addr,
                requested: block.requested.unwrap_or(block.size),
                size: block.size,
                pending: block.state == BlockState::PendingFree,
                stack: block.stack,
            });
            let site = self.sites.entry(block.stack).or_default();
            *site = (site.0.saturating_add(Bytes(block.size)), site.1.saturating_add(1));
        }
        let own = |field: Option<u64>, sum: Bytes| field.map_or(sum, Bytes);
        let total = own(segment.total, size);
        let own_allocated = own(segment.allocated, allocated);
        let own_active = own(segment.active, active);
        let agrees = (total, own_allocated, own_active) == (size, allocated, active);
        self.mismatched = self.mismatched.saturating_add(u64::from(!agrees && segment.blocks.is_some()));
        self.reserved = self.reserved.saturating_add(total);
        self.allocated = self.allocated.saturating_add(own_allocated);
        self.active = self.active.saturating_add(own_active);
        if segment.private {
            self.private_inactive = self.private_inactive.saturating_add(total.saturating_sub(own_active));
        }
        self.places.extend(segment.address.map(|start| (start, total.0)));
        self.fill.add(segment, blocks);
        self.segments = self.segments.saturating_add(1);
        self.blocks = self.blocks.saturating_add(blocks.len() as u64);
    }

    fn finish(
        mut self,
        heap: &Heap,
        device: u32,
        trace: Trace<'_>,
        (max_ooms, room): (usize, &mut Room),
        warnings: &mut Vec<String>,
    ) -> SnapshotDevice {
        if self.mismatched > 0 {
            warnings.push(format!(
                "device {device}: {} of {} {} with the sum of the blocks inside; the segments' own figures are used",
                self.mismatched,
                counted(self.segments, "segment", "segments"),
                if self.mismatched == 1 { "disagrees" } else { "disagree" }
            ));
        }
        if self.misplaced_blocks > 0 {
            let blocks = counted(self.misplaced_blocks, "block lies", "blocks lie");
            warnings.push(format!("device {device}: {blocks} outside the segment"));
        }
        let overlaps = overlaps(&mut self.places);
        if overlaps > 0 {
            warnings.push(format!(
                "device {device}: {} over others, so memory is counted twice; its reserved total of {} is not possible",
                counted(overlaps, "segment lies", "segments lie"),
                self.reserved
            ));
        }
        let at_end = AtEnd { blocks: &self.live, reserved: self.reserved.0 };
        let replay = replay(trace, at_end, max_ooms);
        let count = trace.events.len() as u64;
        if let Some(replay) = &replay
            && replay.reserved_contradictions > 0
        {
            warnings.push(format!(
                "device {device}: the events take more segments from the driver than there are ({} times), as if parts \
                 of the recording were missing; the curve of reserved bytes is a lower bound",
                replay.reserved_contradictions
            ));
        }
        if let Some(replay) = &replay
            && replay.contradictions > count / NOISE
        {
            warnings.push(format!(
                "device {device}: {} of {} {} the blocks or another event, as if parts of the recording were missing; \
                 the curve of live bytes is a lower bound",
                replay.contradictions,
                counted(count, "event", "events"),
                if replay.contradictions == 1 { "contradicts" } else { "contradict" }
            ));
        }
        let sizeless = replay.as_ref().map_or(0, |replay| {
            let is_none = |tried: Bytes, free: Bytes| tried == Bytes(0) || tried > MOST_BYTES || free > MOST_BYTES;
            replay.ooms.iter().filter(|(_, tried, free)| is_none(*tried, *free)).count() as u64
        });
        if sizeless > 0 {
            warnings.push(format!(
                "device {device}: {} no size that can be, so what was asked for, or was free, is not told",
                counted(sizeless, "out-of-memory event records", "out-of-memory events record")
            ));
        }
        let window_truncated = replay.as_ref().is_some_and(|replay| is_truncated(trace.events.len(), replay));
        if window_truncated {
            warnings.push(format!(
                "device {device}: events before the first of the {} were overwritten, so a peak before it is not seen; \
                 record with a larger max_entries",
                counted(count, "recorded event", "recorded events")
            ));
        }
        let (bands, at_peak) = replay.as_ref().map_or_else(Default::default, |replay| {
            let axis = replay.live.axis;
            let x_of = |index: usize, event: Event| {
                if axis == SeriesAxis::UnixMicros { event.time_us } else { i64::try_from(index).unwrap_or(i64::MAX) }
            };
            let (bands, at_peak) = site_bands(heap, trace, replay, x_of, room);
            (Some(bands), at_peak)
        });
        let peak = replay.as_ref().map(|replay| SnapshotPeak {
            event: replay.peak.event.map(|event| event as u64),
            x: replay.peak.x,
            requested: Bytes(replay.peak.totals.requested),
            active: Bytes(replay.peak.totals.active),
            reserved: Bytes(replay.peak.totals.reserved),
            sites: top_sites(heap, &at_peak, MAX_OTHER_SITES, room),
        });
        let never_freed = replay.as_ref().map(|replay| {
            let all = replay.never_freed.values();
            let (bytes, blocks) =
                all.fold((Bytes(0), 0u64), |sum, site| (sum.0.saturating_add(site.0), sum.1.saturating_add(site.1)));
            let sites = top_sites(heap, &replay.never_freed, MAX_OTHER_SITES, room);
            NeverFreed { bytes, blocks, late_bytes: replay.late, sites }
        });
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
            peak_requested_in_window: peak.as_ref().map(|peak| peak.requested),
            window_truncated,
            top_sites: top_sites(heap, &self.sites, MAX_SITES, room),
            ooms: replay.as_ref().map_or_else(Vec::new, |r| r.ooms.clone()),
            live: replay.as_ref().map(|r| r.live.clone()),
            curve: replay.map(|r| r.curve),
            peak,
            never_freed,
            bands,
            map: std::mem::take(&mut self.fill).finish(&heap.blocks),
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

/// How many places begin inside another one. Segments are pieces of one address space, so in a true file none does.
fn overlaps(places: &mut [(u64, u64)]) -> u64 {
    places.sort_unstable();
    let (mut end, mut count) = (0u64, 0u64);
    for (start, length) in places.iter().filter(|(_, length)| *length > 0) {
        count = count.saturating_add(u64::from(*start < end));
        end = end.max(start.saturating_add(*length));
    }
    count
}
