//! Memory over the recorded events, found by walking back from the segments and blocks at the end.
//!
//! The trace has no beginning: what was live before it is only known by undoing it. One pass and one map, whatever the
//! order of frees; what was live at the peak is found by [`super::bands`], forwards. Knows no text and no frame.
//!
//! A block counts as live (and as active) until `free_completed`: until then its memory cannot be used again. Where that
//! event is not in the trace (`skip_actions`), but the block is gone afterwards, `free_requested` ends it. As allocated
//! it counts until `free_requested`.
//!
//! The trace tells what was requested. How long a block was, rounded, is known of those that are there at the end; of
//! others a lower bound is taken, the next multiple of 512.

use super::changes::Changes;
use super::rows::{Action, Event, NO_STACK, Trace};
use crate::buckets::MAX_BUCKETS as CURVE_BUCKETS;
use hashbrown::HashMap;
use rankscope_model::{Band, Bytes, MemoryCurve, Series, SeriesAxis};

/// Most buckets of the series of live bytes. Each gives at most two points.
pub(super) const MAX_BUCKETS: usize = 2048;

/// A block that is live at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveBlock {
    pub(super) addr: u64,
    pub(super) requested: u64,
    /// Rounded.
    pub(super) size: u64,
    /// Released by the program, but not yet free.
    pub(super) pending: bool,
    /// [`NO_STACK`] if it was allocated while no recording was on.
    pub(super) stack: u32,
}

/// How things stand after the last event.
#[derive(Debug, Clone, Copy)]
pub(super) struct AtEnd<'a> {
    pub(super) blocks: &'a [LiveBlock],
    /// Sum of the segments.
    pub(super) reserved: u64,
}

/// Bytes and number of blocks by stack.
pub(super) type BySite = HashMap<u32, (Bytes, u64)>;

/// The peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peak {
    /// The first event after which it was reached, or none if it stood before the first.
    pub(super) event: Option<usize>,
    /// The same on the axis.
    pub(super) x: Option<i64>,
    pub(super) totals: Totals,
}

/// What the events say.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Replay {
    /// Most live requested bytes, before the first event included.
    pub(super) peak: Peak,
    /// Live bytes before the first event.
    pub(super) before: Bytes,
    /// Live bytes after events. The events are cut into at most [`MAX_BUCKETS`] buckets of equal count; each gives
    /// its smallest and its largest value, at the x where they stand and in that order, or one point if they are the
    /// same. So no spike is lost, and x ascends (equal times may repeat).
    pub(super) live: Series,
    /// All quantities, in at most [`CURVE_BUCKETS`] buckets.
    pub(super) curve: MemoryCurve,
    /// Blocks of the end that were allocated while recording was on, by an event that is no longer there.
    pub(super) lost_allocations: u64,
    /// Events that contradict the blocks or each other: an allocation that is neither freed nor live at the end, or a
    /// free of what is live afterwards.
    pub(super) contradictions: u64,
    /// Events that took more segments from the driver than there are.
    pub(super) reserved_contradictions: u64,
    /// Out-of-memory events: index, requested bytes, free bytes.
    pub(super) ooms: Vec<(u64, Bytes, Bytes)>,
    /// Blocks that were allocated by a recorded event and are live at the end, requested bytes.
    pub(super) never_freed: BySite,
    /// Of them, what was allocated in the second half of the events.
    pub(super) late: Bytes,
    /// The events that changed what was live: allocations, and the ends of blocks.
    pub(super) changes: Changes,
    /// What was live before the first event.
    pub(super) at_start: Vec<StartBlock>,
    /// Of each of at most [`TOP_BUCKETS`] buckets of events of equal count, the first event after which most was live.
    pub(super) tops: Vec<usize>,
}

/// A block that was live before the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartBlock {
    pub(super) addr: u64,
    pub(super) requested: u64,
    /// [`NO_STACK`] where nothing tells it.
    pub(super) stack: u32,
}

/// Moments at which the lines of code are told apart.
pub(super) const TOP_BUCKETS: usize = 240;

/// Sums at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) active: u64,
    pub(super) reserved: u64,
}

impl Totals {
    /// In the order of the bands.
    fn quantities(self) -> [u64; QUANTITIES] {
        let unused = self.reserved.saturating_sub(self.active);
        [self.requested, self.allocated, self.active, self.reserved, unused]
    }
}

const QUANTITIES: usize = 5;

/// Walks `trace` back from what stands at its end; `None` without events. At most `max_ooms` out-of-memory events are
/// kept, the latest.
pub(super) fn replay(trace: Trace<'_>, at_end: AtEnd<'_>, max_ooms: usize) -> Option<Replay> {
    let events = trace.events;
    let first = events.first()?;
    let timed = first.time_us != Event::NO_TIME && events.is_sorted_by_key(|e| e.time_us);
    let x_of = |(index, event): (usize, Event)| {
        if timed { event.time_us } else { i64::try_from(index).unwrap_or(i64::MAX) }
    };

    let mut walk = Walk::from_end(trace, at_end);
    let mut peak: Option<Reached> = None;
    let mut x = Vec::new();
    let mut y = Vec::new();
    let mut point = |at: &Reached| {
        x.push(x_of(at.event));
        y.push(at.totals.requested);
    };
    let per_bucket = events.len().div_ceil(MAX_BUCKETS);
    let mut bands = Bands::new(events.len());
    let mut tops = Tops::new(events.len());
    let mut ooms: Vec<(u64, Bytes, Bytes)> = Vec::new();
    for (bucket, members) in events.chunks(per_bucket).enumerate().rev() {
        let start = bucket.saturating_mul(per_bucket);
        let mut lowest: Option<Reached> = None;
        let mut highest: Option<Reached> = None;
        for (within, event) in members.iter().enumerate().rev() {
            let index = start.saturating_add(within);
            let here = Reached { event: (index, *event), totals: walk.totals };
            if lowest.is_none_or(|low| here.totals.requested < low.totals.requested) {
                lowest = Some(here);
            }
            if highest.is_none_or(|high| here.totals.requested > high.totals.requested) {
                highest = Some(here);
            }
            // Backwards, so that of equal ones the earliest stays.
            if peak.is_none_or(|peak| here.totals.requested >= peak.totals.requested) {
                peak = Some(here);
            }
            bands.take_in(index, walk.totals.quantities());
            tops.take_in(index, walk.totals.requested);
            if event.action() == Action::Oom && ooms.len() < max_ooms {
                ooms.push((index as u64, Bytes(event.size()), Bytes(event.addr)));
            }
            walk.undo(index, *event);
        }
        if let (Some(low), Some(high)) = (lowest, highest) {
            // Backwards: the later one first.
            let (later, earlier) = if low.event.0 > high.event.0 { (low, high) } else { (high, low) };
            point(&later);
            if earlier.event.0 != later.event.0 && earlier.totals.requested != later.totals.requested {
                point(&earlier);
            }
        }
    }
    x.reverse();
    y.reverse();
    ooms.reverse();
    let axis = if timed { SeriesAxis::UnixMicros } else { SeriesAxis::Index };
    let peak = match peak {
        Some(peak) if peak.totals.requested > walk.totals.requested => {
            Peak { event: Some(peak.event.0), x: Some(x_of(peak.event)), totals: peak.totals }
        }
        _ => Peak { event: None, x: None, totals: walk.totals },
    };
    Some(Replay {
        peak,
        before: Bytes(walk.totals.requested),
        live: Series { axis, x, y },
        curve: bands.finish(axis, events, x_of),
        lost_allocations: walk.live.values().filter(|held| held.from_end && held.stack != NO_STACK).count() as u64,
        contradictions: walk.contradictions,
        reserved_contradictions: walk.reserved_contradictions,
        ooms,
        at_start: walk.at_start(),
        changes: walk.changes,
        tops: tops.best.into_iter().map(|(_, index)| index).collect(),
        never_freed: walk.never_freed,
        late: walk.late,
    })
}

/// The smallest and the largest value of each bucket and quantity, taken in from the end.
struct Bands {
    width: usize,
    buckets: Vec<[(u64, u64); QUANTITIES]>,
}

impl Bands {
    fn new(events: usize) -> Self {
        let width = events.div_ceil(CURVE_BUCKETS).max(1);
        Self { width, buckets: vec![[(u64::MAX, 0); QUANTITIES]; events.div_ceil(width)] }
    }

    #[inline]
    fn take_in(&mut self, index: usize, values: [u64; QUANTITIES]) {
        if let Some(bucket) = self.buckets.get_mut(index.checked_div(self.width).unwrap_or(0)) {
            for ((low, high), value) in bucket.iter_mut().zip(values) {
                *low = value.min(*low);
                *high = value.max(*high);
            }
        }
    }

    fn finish(self, axis: SeriesAxis, events: &[Event], x_of: impl Fn((usize, Event)) -> i64) -> MemoryCurve {
        let x = events.iter().copied().enumerate().step_by(self.width).map(x_of).collect();
        let [requested, allocated, active, reserved, unused] = std::array::from_fn(|quantity| {
            let column = || self.buckets.iter().filter_map(|bucket| bucket.get(quantity));
            Some(Band { low: column().map(|band| band.0).collect(), high: column().map(|band| band.1).collect() })
        });
        MemoryCurve { axis, x, allocated, active, reserved, requested, unused }
    }
}

/// The moment of each bucket at which most was live, taken in from the end.
struct Tops {
    width: usize,
    best: Vec<(u64, usize)>,
}

impl Tops {
    fn new(events: usize) -> Self {
        let width = events.div_ceil(TOP_BUCKETS).max(1);
        Self { width, best: vec![(0, 0); events.div_ceil(width)] }
    }

    #[inline]
    fn take_in(&mut self, index: usize, live: u64) {
        if let Some(best) = self.best.get_mut(index.checked_div(self.width).unwrap_or(0))
            && live >= best.0
        {
            *best = (live, index);
        }
    }
}

/// Sums right after an event.
#[derive(Clone, Copy)]
struct Reached {
    event: (usize, Event),
    totals: Totals,
}

#[derive(Clone, Copy)]
struct Held {
    requested: u64,
    size: u64,
    stack: u32,
    pending: bool,
    /// A block of the end, not one that a free tells of.
    from_end: bool,
}

/// Sizes are multiples of this.
const ROUNDING: u64 = 512;

struct Walk<'a> {
    trace: Trace<'a>,
    live: HashMap<u64, Held>,
    totals: Totals,
    contradictions: u64,
    reserved_contradictions: u64,
    /// The trace says when the program releases a block, not only when it is free.
    has_requests: bool,
    never_freed: BySite,
    late: Bytes,
    /// Frees with the same stack as their allocation, and with another one.
    same_stack: u64,
    other_stack: u64,
    changes: Changes,
}

impl<'a> Walk<'a> {
    fn from_end(trace: Trace<'a>, at_end: AtEnd<'_>) -> Self {
        let mut walk = Self {
            trace,
            live: HashMap::with_capacity(at_end.blocks.len()),
            totals: Totals { reserved: at_end.reserved, ..Totals::default() },
            contradictions: 0,
            reserved_contradictions: 0,
            has_requests: trace.events.iter().any(|event| event.action() == Action::FreeRequested),
            never_freed: BySite::new(),
            late: Bytes(0),
            same_stack: 0,
            other_stack: 0,
            changes: Changes::none(trace.events.len()),
        };
        for block in at_end.blocks {
            let held = Held {
                requested: block.requested,
                size: block.size,
                stack: block.stack,
                pending: block.pending,
                from_end: true,
            };
            walk.insert(block.addr, held);
        }
        walk.contradictions = 0;
        walk
    }

    #[inline]
    fn undo(&mut self, index: usize, event: Event) {
        match event.action() {
            Action::Alloc => match self.live.remove(&event.addr) {
                Some(held) => {
                    self.changes.set(index);
                    self.born(index, held);
                }
                None => self.contradictions = self.contradictions.saturating_add(1),
            },
            Action::FreeCompleted => {
                self.changes.set(index);
                self.insert(event.addr, self.freed(index, event, self.has_requests));
            }
            Action::FreeRequested => match self.live.get_mut(&event.addr) {
                Some(held) if held.pending => {
                    held.pending = false;
                    self.totals.allocated = self.totals.allocated.saturating_add(held.size);
                }
                Some(_) => {}
                None => {
                    self.changes.set(index);
                    self.insert(event.addr, self.freed(index, event, false));
                }
            },
            Action::Reserve => {
                self.reserved_contradictions =
                    self.reserved_contradictions.saturating_add(u64::from(event.size() > self.totals.reserved));
                self.totals.reserved = self.totals.reserved.saturating_sub(event.size());
            }
            Action::Release => self.totals.reserved = self.totals.reserved.saturating_add(event.size()),
            Action::Oom | Action::Other => {}
        }
    }

    /// A block that was freed while recording was on; whether it was allocated then as well, its alloc event will tell.
    fn freed(&self, index: usize, event: Event, pending: bool) -> Held {
        let requested = event.size();
        Held {
            requested,
            size: requested.max(1).checked_next_multiple_of(ROUNDING).unwrap_or(u64::MAX),
            stack: self.trace.stack(index),
            pending,
            from_end: false,
        }
    }

    fn born(&mut self, index: usize, held: Held) {
        self.subtract(&held);
        let stack = self.trace.stack(index);
        if held.from_end {
            let site = self.never_freed.entry(if stack == NO_STACK { held.stack } else { stack }).or_default();
            *site = (site.0.saturating_add(Bytes(held.requested)), site.1.saturating_add(1));
            if index >= self.trace.events.len() / 2 {
                self.late = self.late.saturating_add(Bytes(held.requested));
            }
        } else if stack == held.stack {
            self.same_stack = self.same_stack.saturating_add(1);
        } else {
            self.other_stack = self.other_stack.saturating_add(1);
        }
    }

    /// What is left once every event is undone.
    fn at_start(&self) -> Vec<StartBlock> {
        let repeat = self.frees_repeat();
        let known = |held: &Held| if held.from_end || repeat { held.stack } else { NO_STACK };
        let blocks = self.live.iter();
        blocks.map(|(addr, held)| StartBlock { addr: *addr, requested: held.requested, stack: known(held) }).collect()
    }

    /// Whether frees repeat the stack of the allocation. They do unless all contexts were recorded.
    fn frees_repeat(&self) -> bool {
        self.same_stack > 0 && self.other_stack <= self.same_stack / 100
    }

    fn insert(&mut self, addr: u64, held: Held) {
        self.totals.requested = self.totals.requested.saturating_add(held.requested);
        self.totals.active = self.totals.active.saturating_add(held.size);
        if !held.pending {
            self.totals.allocated = self.totals.allocated.saturating_add(held.size);
        }
        if let Some(old) = self.live.insert(addr, held) {
            self.subtract(&old);
            self.contradictions = self.contradictions.saturating_add(1);
        }
    }

    fn subtract(&mut self, held: &Held) {
        self.totals.requested = self.totals.requested.saturating_sub(held.requested);
        self.totals.active = self.totals.active.saturating_sub(held.size);
        if !held.pending {
            self.totals.allocated = self.totals.allocated.saturating_sub(held.size);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const KIB: u64 = 1024;

    pub(in super::super) fn event(action: Action, addr: u64, size: u64, time: i64) -> Event {
        Event::new(action, addr, size, time)
    }

    pub(in super::super) fn block(addr: u64, requested: u64, stack: u32) -> LiveBlock {
        LiveBlock { addr, requested, size: requested.next_multiple_of(512), pending: false, stack }
    }

    fn play(events: &[Event], blocks: &[LiveBlock]) -> Replay {
        let stacks: Vec<u32> = (0..).take(events.len()).map(|index| 100 + index).collect();
        replay(Trace { events, stacks: &stacks }, AtEnd { blocks, reserved: 64 * KIB }, 9).unwrap()
    }

    #[test]
    fn what_was_live_before_is_found_by_undoing() {
        let events = [
            event(Action::FreeRequested, 1, 10 * KIB, 5),
            event(Action::FreeCompleted, 1, 10 * KIB, 5),
            event(Action::Alloc, 1, 4 * KIB, 7),
        ];
        let replay = play(&events, &[block(1, 4 * KIB, 7), block(2, KIB, NO_STACK)]);
        assert_eq!((replay.before, replay.peak.totals.requested), (Bytes(11 * KIB), 11 * KIB));
        assert_eq!(
            replay.peak.event, None,
            "the first event changes nothing: a released block is live until it is free"
        );
        assert_eq!(replay.live.y, [11 * KIB, KIB, 5 * KIB]);
        assert_eq!((replay.live.axis, replay.live.x), (SeriesAxis::UnixMicros, vec![5, 5, 7]));
        assert_eq!((replay.contradictions, replay.lost_allocations), (0, 0));
        let allocated = replay.curve.allocated.unwrap();
        assert_eq!((allocated.low, replay.curve.x), (vec![KIB, KIB, 5 * KIB], vec![5, 5, 7]));
        assert_eq!(replay.curve.active.unwrap().high, [11 * KIB, KIB, 5 * KIB]);
        assert_eq!(replay.never_freed.into_iter().collect::<Vec<_>>(), [(102, (Bytes(4 * KIB), 1))]);
        assert_eq!(replay.late, Bytes(4 * KIB));
    }

    #[test]
    fn segments_are_undone_too() {
        let events = [
            event(Action::Release, 9, 20 * KIB, 1),
            event(Action::Reserve, 9, 60 * KIB, 2),
            event(Action::Alloc, 1, KIB, 3),
        ];
        let replay = play(&events, &[block(1, KIB, 1)]);
        assert_eq!(replay.curve.reserved.unwrap().low, [4 * KIB, 64 * KIB, 64 * KIB]);
        assert_eq!(replay.curve.unused.unwrap().high, [4 * KIB, 64 * KIB, 63 * KIB]);
        let absurd = [event(Action::Reserve, 9, 65 * KIB, 2)];
        assert_eq!(play(&absurd, &[]).reserved_contradictions, 1);
    }

    #[test]
    fn time_that_runs_backwards_is_no_axis() {
        let events = [event(Action::Other, 0, 0, 9), event(Action::Other, 0, 0, 8)];
        let replay = play(&events, &[]);
        assert_eq!((replay.live.axis, replay.live.x), (SeriesAxis::Index, vec![0, 1]));
        assert_eq!(
            (replay.peak.event, replay.peak.x),
            (None, None),
            "what never changes is at its peak from the start"
        );
    }

    #[test]
    fn a_spike_of_one_event_survives_the_buckets() {
        let mut events = Vec::new();
        for i in 0..100_000i64 {
            let size = if i == 61_803 { 1 << 30 } else { 512 };
            events.push(event(Action::Alloc, 4096, size, i));
            events.push(event(Action::FreeCompleted, 4096, size, i));
        }
        let replay = play(&events, &[]);
        assert_eq!((replay.peak.totals.requested, replay.peak.x), (1 << 30, Some(61_803)));
        assert!(replay.live.x.len() <= 2 * MAX_BUCKETS && replay.live.x.is_sorted());
        let spike = replay.live.y.iter().position(|y| *y == 1 << 30).unwrap();
        assert_eq!(replay.live.x[spike], 61_803);
        let curve = replay.curve;
        assert!(curve.x.len() <= CURVE_BUCKETS && curve.x.len() > CURVE_BUCKETS / 2 && curve.x.is_sorted());
        // Without `free_requested` a block is allocated until its free is complete.
        assert_eq!(curve.allocated.unwrap().max(), Some(Bytes(1 << 30)));
    }

    #[test]
    fn blocks_whose_allocation_was_overwritten_are_counted() {
        let replay = play(&[event(Action::Oom, 77, 99, 0)], &[block(1, 5, 1), block(2, 5, NO_STACK)]);
        assert_eq!(replay.lost_allocations, 1);
        assert_eq!(replay.ooms, [(0, Bytes(99), Bytes(77))]);
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let huge = |addr| LiveBlock { addr, requested: u64::MAX, size: u64::MAX, pending: false, stack: 1 };
        let events = [event(Action::Alloc, 1, u64::MAX, 0), event(Action::FreeCompleted, 2, u64::MAX, 0)];
        assert_eq!(play(&events, &[huge(1), huge(2), huge(1)]).contradictions, 1);
    }
}
