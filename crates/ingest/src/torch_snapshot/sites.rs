//! Call sites: bytes grouped by the stack that allocated them, and stacks as frames that a reader can be shown.
//!
//! Knows no event and no segment.

use super::heap::Heap;
use super::replay::BySite;
use rankscope_model::{Bytes, CallSite, Frame, is_library_frame};
use std::cmp::Reverse;

/// Frames that are kept of one call site.
pub(super) const MAX_FRAMES: usize = 64;
/// Of a deeper stack: innermost frames that are kept. They tell the operator; the user's own code stands at the other end.
const INNERMOST: usize = 16;

/// The `most` largest call sites, biggest first; equal ones by more blocks, then by their frames, so that the order is the
/// same for every rank.
pub(super) fn top_sites(heap: &Heap, sites: &BySite, most: usize) -> Vec<CallSite> {
    let mut sites: Vec<_> = sites.iter().map(|(stack, (bytes, blocks))| (*stack, *bytes, *blocks)).collect();
    sites.sort_unstable_by(|a, b| {
        let size = |site: &(u32, Bytes, u64)| Reverse((site.1, site.2));
        size(a).cmp(&size(b)).then_with(|| heap.frames(a.0).cmp(heap.frames(b.0)))
    });
    sites.truncate(most);
    sites.into_iter().map(|(stack, bytes, blocks)| CallSite { frames: frames(heap, stack), bytes, blocks }).collect()
}

/// The frames of a stack. Of one deeper than [`MAX_FRAMES`] the middle is left out, and a frame says so; the innermost
/// frame of the user's own code stays wherever it stands.
fn frames(heap: &Heap, stack: u32) -> Vec<Frame> {
    let all = heap.frames(stack);
    let count = all.len();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let frame =
        |(function, file, line): (&[u8], &[u8], u32)| Frame { function: text(function), file: text(file), line };
    if count <= MAX_FRAMES {
        return all.map(frame).collect();
    }
    let is_own = |(_, file, line): (&[u8], &[u8], u32)| !is_library_frame(&String::from_utf8_lossy(file), line);
    let own = heap.frames(stack).position(is_own);
    // One frame for the words, and two more where the user's own frame stands in the middle of what is left out.
    let is_left_out = |at: usize, room: usize| at >= INNERMOST && at < count - (room - INNERMOST);
    let own = own.filter(|own| is_left_out(*own, MAX_FRAMES - 1));
    let room = if own.is_some() { MAX_FRAMES - 3 } else { MAX_FRAMES - 1 };
    let mut frames = Vec::with_capacity(MAX_FRAMES);
    let mut left_out = 0u64;
    for (at, row) in all.enumerate() {
        if is_left_out(at, room) && own != Some(at) {
            left_out += 1;
            continue;
        }
        if left_out > 0 {
            frames.push(Frame { function: format!("[{left_out} frames left out]"), file: String::new(), line: 0 });
            left_out = 0;
        }
        frames.push(frame(row));
    }
    frames
}
