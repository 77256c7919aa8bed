//! Live bytes by the line of code that asked for them, at the telling moments of a recording, and by stack at its peak.
//!
//! A second walk, forwards from what was live before the first event. Many stacks share a line; so that a deep network
//! is not hundreds of slivers, bytes over time are summed by the innermost line of the user's own code.

use super::heap::Heap;
use super::replay::{BySite, Replay};
use super::rows::{Action, Event, NO_STACK, Trace};
use super::sites::Room;
use hashbrown::HashMap;
use rankscope_model::{Bytes, SeriesAxis, SiteBand, SiteBands, is_library_frame};
use std::cmp::Reverse;

/// Lines that are kept.
const MAX_BANDS: usize = 12;
/// Lines that are told apart while walking; more than a program has where memory is allocated.
const MAX_LINES: usize = 2048;
/// The line of everything beyond [`MAX_LINES`].
const OTHERS: u32 = 0;
/// No line was looked up yet.
const UNKNOWN: u32 = u32::MAX;

/// The lines of code over time, and what was live at the peak by stack. `x_of` places an event on the axis.
///
/// The stack of a block is that of its allocation if that was recorded, else what the walk back knew.
pub(super) fn site_bands(
    heap: &Heap,
    trace: Trace<'_>,
    replay: &Replay,
    x_of: impl Fn(usize, Event) -> i64,
    room: &mut Room,
) -> (SiteBands, BySite) {
    let mut walk = Walk::new(heap);
    for block in &replay.at_start {
        walk.insert(block.addr, block.stack, block.requested);
    }
    let mut at_peak = replay.peak.event.is_none().then(|| walk.by_stack());
    let mut moments: Vec<(i64, Vec<u64>)> = Vec::with_capacity(replay.tops.len());
    let mut next = replay.tops.iter().copied().peekable();
    for (index, event) in trace.events.iter().enumerate() {
        if replay.changes.has(index) {
            match event.action() {
                Action::Alloc => walk.insert(event.addr, trace.stack(index), event.size()),
                _ => walk.remove(event.addr),
            }
        }
        if replay.peak.event == Some(index) {
            at_peak = Some(walk.by_stack());
        }
        while next.next_if_eq(&index).is_some() {
            moments.push((x_of(index, *event), walk.sums.clone()));
        }
    }
    (finish(heap, &walk.lines, &moments, replay.live.axis, room), at_peak.unwrap_or_default())
}

/// What is live at one moment.
struct Walk<'a> {
    lines: Lines<'a>,
    /// Stack and bytes of each block, by address.
    live: HashMap<u64, (u32, u64)>,
    /// Bytes by line.
    sums: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(heap: &'a Heap) -> Self {
        Self { lines: Lines::new(heap), live: HashMap::new(), sums: vec![0] }
    }

    #[inline]
    fn insert(&mut self, addr: u64, stack: u32, bytes: u64) {
        let line = self.lines.of(stack) as usize;
        if line >= self.sums.len() {
            self.sums.resize(line.saturating_add(1), 0);
        }
        if let Some(sum) = self.sums.get_mut(line) {
            *sum = sum.saturating_add(bytes);
        }
        if let Some(old) = self.live.insert(addr, (stack, bytes)) {
            self.subtract(old);
        }
    }

    #[inline]
    fn remove(&mut self, addr: u64) {
        if let Some(old) = self.live.remove(&addr) {
            self.subtract(old);
        }
    }

    #[inline]
    fn subtract(&mut self, (stack, bytes): (u32, u64)) {
        let line = self.lines.of(stack) as usize;
        if let Some(sum) = self.sums.get_mut(line) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    fn by_stack(&self) -> BySite {
        let mut sites = BySite::new();
        for (stack, bytes) in self.live.values() {
            let site = sites.entry(*stack).or_default();
            *site = (site.0.saturating_add(Bytes(*bytes)), site.1.saturating_add(1));
        }
        sites
    }
}

fn finish(heap: &Heap, lines: &Lines<'_>, moments: &[(i64, Vec<u64>)], axis: SeriesAxis, room: &mut Room) -> SiteBands {
    let value = |sums: &Vec<u64>, line: usize| sums.get(line).copied().unwrap_or(0);
    let column = |line: usize| moments.iter().map(move |(_, sums)| value(sums, line));
    // Moment by moment, as the sums lie in memory.
    let mut most = vec![0u64; lines.frames.len()];
    for (_, sums) in moments {
        most.iter_mut().zip(sums).for_each(|(most, sum)| *most = (*most).max(*sum));
    }
    // The line of the rest is no line of its own.
    let of_lines = most.into_iter().enumerate().skip(1);
    let mut largest: Vec<(u64, usize)> =
        of_lines.filter(|(_, most)| *most > 0).map(|(line, most)| (most, line)).collect();
    largest.sort_by_key(|(most, line)| (Reverse(*most), *line));
    largest.truncate(MAX_BANDS);
    let kept: Vec<usize> = largest.into_iter().map(|(_, line)| line).collect();
    let mut is_other = vec![true; lines.frames.len()];
    for line in &kept {
        if let Some(is_other) = is_other.get_mut(*line) {
            *is_other = false;
        }
    }
    let rest = moments
        .iter()
        .map(|(_, sums)| {
            let others = sums.iter().zip(&is_other).filter(|(_, is_other)| **is_other);
            others.fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes))
        })
        .collect();
    let sites = kept
        .iter()
        .map(|line| SiteBand {
            frame: lines.frames.get(*line).copied().flatten().and_then(|frame| room.take(heap.frame(frame))),
            bytes: column(*line).collect(),
        })
        .collect();
    SiteBands { axis: Some(axis), x: moments.iter().map(|(x, _)| *x).collect(), sites, rest }
}

/// Which line a stack belongs to.
struct Lines<'a> {
    heap: &'a Heap,
    /// By stack, which are numbered without gaps, and at the end that of what has none; [`UNKNOWN`] where nobody asked yet.
    by_stack: Vec<u32>,
    by_frame: HashMap<Option<u32>, u32>,
    /// Whether a frame is the user's own code.
    own: HashMap<u32, bool>,
    /// The frame of each line; `None` for the rest and for what has no stack.
    frames: Vec<Option<u32>>,
}

impl<'a> Lines<'a> {
    fn new(heap: &'a Heap) -> Self {
        Self {
            heap,
            by_stack: vec![UNKNOWN; heap.stack_count().saturating_add(1)],
            by_frame: HashMap::new(),
            own: HashMap::new(),
            frames: vec![None], // the rest
        }
    }

    #[inline]
    fn of(&mut self, stack: u32) -> u32 {
        let slot = (stack as usize).min(self.by_stack.len().saturating_sub(1));
        match self.by_stack.get(slot) {
            Some(line) if *line != UNKNOWN => *line,
            _ => self.of_new(stack, slot),
        }
    }

    #[inline(never)]
    fn of_new(&mut self, stack: u32, slot: usize) -> u32 {
        let frame = self.frame_of(stack);
        let known = self.by_frame.get(&frame).copied();
        let line = known.unwrap_or_else(|| {
            if self.frames.len() >= MAX_LINES {
                return OTHERS;
            }
            let line = u32::try_from(self.frames.len()).unwrap_or(OTHERS);
            self.frames.push(frame);
            self.by_frame.insert(frame, line);
            line
        });
        if let Some(known) = self.by_stack.get_mut(slot) {
            *known = line;
        }
        line
    }

    /// The innermost frame of the user's own code, else the innermost one that is not native, else the innermost.
    fn frame_of(&mut self, stack: u32) -> Option<u32> {
        if stack == NO_STACK {
            return None;
        }
        let heap = self.heap;
        let ids = heap.frame_ids(stack);
        let own = ids.iter().copied().find(|id| {
            *self.own.entry(*id).or_insert_with(|| {
                let (_, file, line) = heap.frame(*id);
                !is_library_frame(&String::from_utf8_lossy(file), line)
            })
        });
        own.or_else(|| ids.iter().copied().find(|id| heap.frame(*id).2 > 0)).or_else(|| ids.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::super::replay::tests::{KIB, block, event};
    use super::super::replay::{AtEnd, replay};
    use super::*;

    fn heap() -> Heap {
        Heap::new().unwrap()
    }

    fn x_of(index: usize, _: Event) -> i64 {
        i64::try_from(index).unwrap()
    }

    #[test]
    fn what_is_live_at_the_peak_is_found_by_its_allocation() {
        let events = [
            event(Action::Alloc, 1, 5 * KIB, 0),
            event(Action::Alloc, 2, 9 * KIB, 1),
            event(Action::FreeRequested, 1, 5 * KIB, 2),
            event(Action::FreeCompleted, 1, 5 * KIB, 3),
            event(Action::FreeRequested, 3, KIB, 4),
            event(Action::FreeCompleted, 3, KIB, 5),
            event(Action::Alloc, 1, KIB, 6),
        ];
        // The allocations' stacks are 10 to 16; the frees were recorded with their own.
        let stacks = [10, 11, 12, 13, 14, 15, 16];
        let blocks = [block(2, 9 * KIB, 11), block(1, KIB, 16), block(4, 3 * KIB, NO_STACK)];
        let (trace, at_end) = (Trace { events: &events, stacks: &stacks }, AtEnd { blocks: &blocks, reserved: 0 });
        let found = replay(trace, at_end, 9).unwrap();
        assert_eq!((found.peak.event, found.peak.totals.requested), (Some(1), 18 * KIB));
        let (bands, sites) = site_bands(&heap(), trace, &found, x_of, &mut Room::new());
        let mut sites: Vec<_> = sites.into_iter().map(|(stack, (bytes, blocks))| (stack, bytes.0, blocks)).collect();
        sites.sort_unstable();
        // Block 3 was there before, allocated nobody knows where, and so was block 4.
        assert_eq!(sites, [(10, 5 * KIB, 1), (11, 9 * KIB, 1), (NO_STACK, 4 * KIB, 2)]);
        // None of these stacks has frames; without a line of code all is one band, which follows the live bytes.
        assert_eq!((bands.x, bands.sites.len()), ((0..7).collect(), 1));
        assert_eq!(bands.sites[0].bytes, [9, 18, 18, 13, 13, 12, 13].map(|kib| kib * KIB));
    }

    /// What contradicts the end of the recording on the way back is passed over on the way forwards.
    #[test]
    fn an_allocation_that_nothing_ends_is_no_part_of_the_peak() {
        let events =
            [event(Action::Alloc, 1, 7 * KIB, 0), event(Action::Alloc, 1, KIB, 1), event(Action::Alloc, 2, KIB, 2)];
        let blocks = [block(1, KIB, 21), block(2, KIB, 22)];
        let trace = Trace { events: &events, stacks: &[20, 21, 22] };
        let found = replay(trace, AtEnd { blocks: &blocks, reserved: 0 }, 9).unwrap();
        assert_eq!((found.contradictions, found.peak.totals.requested), (1, 2 * KIB));
        let (_, sites) = site_bands(&heap(), trace, &found, x_of, &mut Room::new());
        assert_eq!(sites.values().map(|(bytes, _)| bytes.0).sum::<u64>(), 2 * KIB);
    }
}
