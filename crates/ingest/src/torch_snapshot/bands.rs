//! Live bytes by the line of code that asked for them, at the telling moments of a recording.
//!
//! A second walk, forwards from what was live before the first event. Many stacks share a line; so that a deep network
//! is not hundreds of slivers, bytes are summed by the innermost line of the user's own code.

use super::heap::Heap;
use super::replay::{AtEnd, StartBlock};
use super::rows::{Action, Event, NO_STACK, Trace};
use super::sites::Room;
use hashbrown::{HashMap, HashSet};
use rankscope_model::{SeriesAxis, SiteBand, SiteBands, is_library_frame};
use std::cmp::Reverse;

/// Lines that are kept.
const MAX_BANDS: usize = 12;
/// Lines that are told apart while walking; more than a program has where memory is allocated.
const MAX_LINES: usize = 2048;
/// The line of everything beyond [`MAX_LINES`].
const OTHERS: u32 = 0;

/// The lines of code over time. `tops` are the events to look at, ascending; `x_of` places an event on the axis.
pub(super) fn site_bands(
    heap: &Heap,
    trace: Trace<'_>,
    (at_start, at_end, tops): (&[StartBlock], AtEnd<'_>, &[usize]),
    (axis, x_of): (SeriesAxis, impl Fn(usize, Event) -> i64),
    room: &mut Room,
) -> SiteBands {
    let mut lines = Lines::new(heap);
    let mut live: HashMap<u64, (u32, u64)> = HashMap::with_capacity(at_start.len());
    let mut sums: Vec<u64> = vec![0];
    for block in at_start {
        let line = lines.of(block.stack);
        add(&mut sums, line, block.requested);
        live.insert(block.addr, (line, block.requested));
    }
    let ends = Ends::of(trace, at_end);
    let mut moments: Vec<(i64, Vec<u64>)> = Vec::with_capacity(tops.len());
    let mut next = tops.iter().copied().peekable();
    for (index, event) in trace.events.iter().enumerate() {
        match event.action() {
            Action::Alloc => {
                let line = lines.of(trace.stack(index));
                add(&mut sums, line, event.size());
                if let Some((old, bytes)) = live.insert(event.addr, (line, event.size())) {
                    remove(&mut sums, old, bytes);
                }
            }
            _ if ends.is_end(index) => {
                if let Some((line, bytes)) = live.remove(&event.addr) {
                    remove(&mut sums, line, bytes);
                }
            }
            _ => {}
        }
        while next.next_if_eq(&index).is_some() {
            moments.push((x_of(index, *event), sums.clone()));
        }
    }
    finish(heap, &lines, &moments, axis, room)
}

fn finish(heap: &Heap, lines: &Lines<'_>, moments: &[(i64, Vec<u64>)], axis: SeriesAxis, room: &mut Room) -> SiteBands {
    let value = |sums: &Vec<u64>, line: usize| sums.get(line).copied().unwrap_or(0);
    let column = |line: usize| moments.iter().map(move |(_, sums)| value(sums, line));
    // The line of the rest is no line of its own.
    let mut largest: Vec<(u64, usize)> = (1..lines.frames.len())
        .map(|line| (column(line).max().unwrap_or(0), line))
        .filter(|(most, _)| *most > 0)
        .collect();
    largest.sort_by_key(|(most, line)| (Reverse(*most), *line));
    largest.truncate(MAX_BANDS);
    let kept: Vec<usize> = largest.into_iter().map(|(_, line)| line).collect();
    let rest = moments
        .iter()
        .map(|(_, sums)| {
            let others = sums.iter().enumerate().filter(|(line, _)| !kept.contains(line));
            others.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes))
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

/// At which events a block ends: where its free completes, and where that was not recorded, where it was asked for. A
/// block that waits for its free at the end of the recording has not ended.
struct Ends(Vec<u64>);

impl Ends {
    fn of(trace: Trace<'_>, at_end: AtEnd<'_>) -> Self {
        let mut ends = Self(vec![0; trace.events.len().div_ceil(64)]);
        // Addresses whose block, seen from the end, is known to live on beyond a request to free it.
        let mut outlives: HashSet<u64> = at_end.blocks.iter().map(|block| block.addr).collect();
        for (index, event) in trace.events.iter().enumerate().rev() {
            match event.action() {
                Action::FreeCompleted => {
                    ends.set(index);
                    outlives.insert(event.addr);
                }
                Action::FreeRequested if !outlives.contains(&event.addr) => ends.set(index),
                Action::Alloc => {
                    outlives.remove(&event.addr);
                }
                _ => {}
            }
        }
        ends
    }

    fn set(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index.div_euclid(64)) {
            *word |= 1 << index.rem_euclid(64);
        }
    }

    fn is_end(&self, index: usize) -> bool {
        self.0.get(index.div_euclid(64)).is_some_and(|word| word & (1 << index.rem_euclid(64)) != 0)
    }
}

fn add(sums: &mut Vec<u64>, line: u32, bytes: u64) {
    let line = line as usize;
    if line >= sums.len() {
        sums.resize(line.saturating_add(1), 0);
    }
    if let Some(sum) = sums.get_mut(line) {
        *sum = sum.saturating_add(bytes);
    }
}

fn remove(sums: &mut [u64], line: u32, bytes: u64) {
    if let Some(sum) = sums.get_mut(line as usize) {
        *sum = sum.saturating_sub(bytes);
    }
}

/// Which line a stack belongs to.
struct Lines<'a> {
    heap: &'a Heap,
    by_stack: HashMap<u32, u32>,
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
            by_stack: HashMap::new(),
            by_frame: HashMap::new(),
            own: HashMap::new(),
            frames: vec![None], // the rest
        }
    }

    fn of(&mut self, stack: u32) -> u32 {
        if let Some(line) = self.by_stack.get(&stack) {
            return *line;
        }
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
        self.by_stack.insert(stack, line);
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
