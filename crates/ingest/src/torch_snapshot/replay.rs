//! Live requested bytes over the recorded events, found by walking back from the blocks at the end.
//!
//! The trace has no beginning: what was live before it is only known by undoing it. One pass, one map, whatever the
//! order of frees. Knows no segment and no stack.
//!
//! A block counts as live until `free_completed`: until then its memory cannot be used again. Where that event is not
//! in the trace (`skip_actions`), but the block is gone afterwards, `free_requested` ends it.

use super::rows::{Action, Event};
use hashbrown::HashMap;
use rankscope_model::{Bytes, Series, SeriesAxis};

/// Most buckets of the curve. Each gives at most two points.
pub(super) const MAX_BUCKETS: usize = 2048;

/// A block that is live at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveBlock {
    pub(super) addr: u64,
    pub(super) requested: u64,
    /// It has a stack, so it was allocated while recording was on.
    pub(super) recorded: bool,
}

/// What the events say.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Replay {
    /// Largest live bytes, before the first event included.
    pub(super) peak: Bytes,
    /// Live bytes before the first event.
    pub(super) before: Bytes,
    /// Live bytes after events. The events are cut into at most [`MAX_BUCKETS`] buckets of equal count; each gives
    /// its smallest and its largest value, at the x where they stand and in that order, or one point if they are the
    /// same. So no spike is lost, and x ascends (equal times may repeat).
    pub(super) live: Series,
    /// Blocks of the end that were allocated while recording was on, by an event that is no longer there.
    pub(super) lost_allocations: u64,
    /// Events that contradict the blocks or each other: an allocation that is neither freed nor live at the end, or a
    /// free of what is live afterwards.
    pub(super) contradictions: u64,
    /// Out-of-memory events: index, requested bytes, free bytes.
    pub(super) ooms: Vec<(u64, Bytes, Bytes)>,
}

/// Walks `events` (oldest first) back from the blocks that are live at their end; `None` without events.
/// At most `max_ooms` out-of-memory events are kept, the latest.
pub(super) fn replay(events: &[Event], at_end: &[LiveBlock], max_ooms: usize) -> Option<Replay> {
    let first = events.first()?;
    let timed = first.time_us != Event::NO_TIME && events.is_sorted_by_key(|e| e.time_us);

    let mut walk = Walk::from_end(at_end);
    let mut peak = walk.total;
    let mut x = Vec::new();
    let mut y = Vec::new();
    let mut point = |at: &Reached| {
        let (index, event) = at.event;
        x.push(if timed { event.time_us } else { i64::try_from(index).unwrap_or(i64::MAX) });
        y.push(at.total);
    };
    let per_bucket = events.len().div_ceil(MAX_BUCKETS);
    let mut ooms: Vec<(u64, Bytes, Bytes)> = Vec::new();
    for (bucket, members) in events.chunks(per_bucket).enumerate().rev() {
        let start = bucket * per_bucket;
        let mut lowest: Option<Reached> = None;
        let mut highest: Option<Reached> = None;
        for (within, event) in members.iter().enumerate().rev() {
            let index = start + within;
            let here = Reached { event: (index, *event), total: walk.total };
            if lowest.is_none_or(|low| here.total < low.total) {
                lowest = Some(here);
            }
            if highest.is_none_or(|high| here.total > high.total) {
                highest = Some(here);
            }
            if event.action() == Action::Oom && ooms.len() < max_ooms {
                ooms.push((index as u64, Bytes(event.size()), Bytes(event.addr)));
            }
            walk.undo(*event);
        }
        if let (Some(low), Some(high)) = (lowest, highest) {
            peak = peak.max(high.total);
            // Backwards: the later one first.
            let (later, earlier) = if low.event.0 > high.event.0 { (low, high) } else { (high, low) };
            point(&later);
            if earlier.event.0 != later.event.0 && earlier.total != later.total {
                point(&earlier);
            }
        }
    }
    x.reverse();
    y.reverse();
    ooms.reverse();
    Some(Replay {
        peak: Bytes(peak.max(walk.total)),
        before: Bytes(walk.total),
        live: Series { axis: if timed { SeriesAxis::UnixMicros } else { SeriesAxis::Index }, x, y },
        lost_allocations: walk.live.values().filter(|block| block.recorded).count() as u64,
        contradictions: walk.contradictions,
        ooms,
    })
}

/// Live bytes right after an event.
#[derive(Clone, Copy)]
struct Reached {
    event: (usize, Event),
    total: u64,
}

#[derive(Clone, Copy)]
struct Held {
    requested: u64,
    recorded: bool,
}

struct Walk {
    live: HashMap<u64, Held>,
    total: u64,
    contradictions: u64,
}

impl Walk {
    fn from_end(at_end: &[LiveBlock]) -> Self {
        let mut walk = Self { live: HashMap::with_capacity(at_end.len()), total: 0, contradictions: 0 };
        for block in at_end {
            walk.insert(block.addr, Held { requested: block.requested, recorded: block.recorded });
        }
        walk.contradictions = 0;
        walk
    }

    fn undo(&mut self, event: Event) {
        // Freed while recording was on; whether it was allocated then as well, its alloc event will tell.
        let held = Held { requested: event.size(), recorded: false };
        match event.action() {
            Action::Alloc => match self.live.remove(&event.addr) {
                Some(held) => self.total = self.total.saturating_sub(held.requested),
                None => self.contradictions += 1,
            },
            Action::FreeCompleted => self.insert(event.addr, held),
            Action::FreeRequested if !self.live.contains_key(&event.addr) => self.insert(event.addr, held),
            Action::FreeRequested | Action::Oom | Action::Other => {}
        }
    }

    fn insert(&mut self, addr: u64, held: Held) {
        self.total = self.total.saturating_add(held.requested);
        if let Some(old) = self.live.insert(addr, held) {
            self.total = self.total.saturating_sub(old.requested);
            self.contradictions += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn event(action: Action, addr: u64, size: u64, time: i64) -> Event {
        Event::new(action, addr, size, time)
    }

    #[test]
    fn what_was_live_before_is_found_by_undoing() {
        let events = [
            event(Action::FreeRequested, 1, 10 * KIB, 5),
            event(Action::FreeCompleted, 1, 10 * KIB, 5),
            event(Action::Alloc, 1, 4 * KIB, 7),
        ];
        let at_end = [
            LiveBlock { addr: 1, requested: 4 * KIB, recorded: true },
            LiveBlock { addr: 2, requested: KIB, recorded: false },
        ];
        let replay = replay(&events, &at_end, 9).unwrap();
        assert_eq!((replay.before, replay.peak), (Bytes(11 * KIB), Bytes(11 * KIB)));
        assert_eq!(replay.live.y, [11 * KIB, KIB, 5 * KIB]);
        assert_eq!((replay.live.axis, replay.live.x), (SeriesAxis::UnixMicros, vec![5, 5, 7]));
        assert_eq!((replay.contradictions, replay.lost_allocations), (0, 0));
    }

    #[test]
    fn time_that_runs_backwards_is_no_axis() {
        let events = [event(Action::Other, 0, 0, 9), event(Action::Other, 0, 0, 8)];
        let replay = replay(&events, &[], 9).unwrap();
        assert_eq!((replay.live.axis, replay.live.x), (SeriesAxis::Index, vec![0, 1]));
    }

    #[test]
    fn a_spike_of_one_event_survives_the_buckets() {
        let mut events = Vec::new();
        for i in 0..100_000i64 {
            let size = if i == 61_803 { 1 << 30 } else { 512 };
            events.push(event(Action::Alloc, 4096, size, i));
            events.push(event(Action::FreeCompleted, 4096, size, i));
        }
        let replay = replay(&events, &[], 9).unwrap();
        assert_eq!(replay.peak, Bytes(1 << 30));
        assert!(replay.live.x.len() <= 2 * MAX_BUCKETS && replay.live.x.is_sorted());
        let spike = replay.live.y.iter().position(|y| *y == 1 << 30).unwrap();
        assert_eq!(replay.live.x[spike], 61_803);
    }

    #[test]
    fn blocks_whose_allocation_was_overwritten_are_counted() {
        let recorded = LiveBlock { addr: 1, requested: 5, recorded: true };
        let before_recording = LiveBlock { addr: 2, requested: 5, recorded: false };
        let replay = replay(&[event(Action::Oom, 77, 99, 0)], &[recorded, before_recording], 9).unwrap();
        assert_eq!(replay.lost_allocations, 1);
        assert_eq!(replay.ooms, [(0, Bytes(99), Bytes(77))]);
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let huge = LiveBlock { addr: 1, requested: u64::MAX, recorded: true };
        let more = LiveBlock { addr: 2, requested: u64::MAX, recorded: true };
        let events = [event(Action::Alloc, 1, u64::MAX, 0), event(Action::FreeCompleted, 2, u64::MAX, 0)];
        let replay = replay(&events, &[huge, more, huge], 9).unwrap();
        assert_eq!(replay.contradictions, 1);
    }
}
