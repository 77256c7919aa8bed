//! Call sites: bytes grouped by the stack that allocated them, and stacks as frames that a reader can be shown.
//!
//! Knows no event and no segment.

use super::heap::Heap;
use super::replay::BySite;
use rankscope_model::{Bytes, CallSite, Frame, is_library_frame};
use std::cmp::{Ordering, Reverse};

/// Frames that are kept of one call site.
pub(super) const MAX_FRAMES: usize = 64;
/// Of a deeper stack: innermost frames that are kept. They tell the operator; the user's own code stands at the other end.
const INNERMOST: usize = 16;

/// Bytes kept of the name of a function or file. Demangled C++ names reach some hundreds.
const MAX_TEXT: usize = 1024;
/// Bytes of frames that are kept of one snapshot, all devices together. Every stack may name the same long text, and
/// each call site has a copy of its own. A node of 16 GPUs has some 5 MB.
const MAX_FRAME_BYTES: usize = 24 << 20;

/// Room for the frames of one snapshot.
#[derive(Debug)]
pub(super) struct Room {
    left: usize,
    /// Frames for which there was none.
    pub(super) left_out: u64,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { left: MAX_FRAME_BYTES, left_out: 0 }
    }

    pub(super) fn take(&mut self, (function, file, line): (&[u8], &[u8], u32)) -> Option<Frame> {
        let frame = Frame { function: text(function), file: text(file), line };
        let left = self
            .left
            .checked_sub(size_of::<Frame>().saturating_add(frame.function.len()).saturating_add(frame.file.len()));
        self.left = left.unwrap_or(0);
        self.left_out = self.left_out.saturating_add(u64::from(left.is_none()));
        left.map(|_| frame)
    }
}

/// A name as text, cut to size.
fn text(bytes: &[u8]) -> String {
    match bytes.get(..MAX_TEXT) {
        Some(head) if bytes.len() > MAX_TEXT => format!("{}…", String::from_utf8_lossy(head)),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The order of two stacks by their frames. Only the first frame that differs is looked at: equal ones have equal ids.
fn by_frames(heap: &Heap, one: u32, other: u32) -> Ordering {
    let (one, other) = (heap.frame_ids(one), heap.frame_ids(other));
    match one.iter().zip(other).find(|(a, b)| a != b) {
        Some((a, b)) => heap.frame(*a).cmp(&heap.frame(*b)),
        None => one.len().cmp(&other.len()),
    }
}

/// The `most` largest call sites, biggest first; equal ones by more blocks, then by their frames, so that the order is the
/// same for every rank.
pub(super) fn top_sites(heap: &Heap, sites: &BySite, most: usize, room: &mut Room) -> Vec<CallSite> {
    let mut sites: Vec<_> = sites.iter().map(|(stack, (bytes, blocks))| (*stack, *bytes, *blocks)).collect();
    let order = |a: &(u32, Bytes, u64), b: &(u32, Bytes, u64)| {
        let size = |site: &(u32, Bytes, u64)| Reverse((site.1, site.2));
        size(a).cmp(&size(b)).then_with(|| by_frames(heap, a.0, b.0))
    };
    // A job has thousands of sites and a few are kept: only those are put in order.
    if most < sites.len() {
        sites.select_nth_unstable_by(most, order);
        sites.truncate(most);
    }
    sites.sort_unstable_by(order);
    let site = |(stack, bytes, blocks)| CallSite { frames: frames(heap, stack, room), bytes, blocks };
    sites.into_iter().map(site).collect()
}

/// The frames of a stack. Of one deeper than [`MAX_FRAMES`] the middle is left out, and a frame says so; the innermost
/// frame of the user's own code stays wherever it stands.
fn frames(heap: &Heap, stack: u32, room: &mut Room) -> Vec<Frame> {
    let all = heap.frames(stack);
    let count = all.len();
    if count <= MAX_FRAMES {
        return all.filter_map(|row| room.take(row)).collect();
    }
    let is_own = |(_, file, line): (&[u8], &[u8], u32)| !is_library_frame(&String::from_utf8_lossy(file), line);
    let own = heap.frames(stack).position(is_own);
    // One frame for the words, and two more where the user's own frame stands in the middle of what is left out.
    let is_left_out =
        |at: usize, room: usize| at >= INNERMOST && at < count.saturating_sub(room.saturating_sub(INNERMOST));
    let own = own.filter(|own| is_left_out(*own, MAX_FRAMES - 1));
    let kept = if own.is_some() { MAX_FRAMES - 3 } else { MAX_FRAMES - 1 };
    let mut frames = Vec::with_capacity(MAX_FRAMES);
    let mut left_out = 0u64;
    for (at, row) in all.enumerate() {
        if is_left_out(at, kept) && own != Some(at) {
            left_out = left_out.saturating_add(1);
            continue;
        }
        if left_out > 0 {
            frames.push(Frame { function: format!("[{left_out} frames left out]"), file: String::new(), line: 0 });
            left_out = 0;
        }
        frames.extend(room.take(row));
    }
    frames
}
