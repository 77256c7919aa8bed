//! How segments are filled: free pieces between blocks in use. Knows no event and no frame.

use super::rows::{Block, Segment};
use rankscope_model::{Bytes, SegmentFill, SegmentMap};
use std::cmp::Reverse;

/// Segments that are listed.
const MAX_SEGMENTS: usize = 48;

/// The segments of one device while they are read.
#[derive(Default)]
pub(super) struct Segments {
    map: SegmentMap,
    /// Free bytes of each, to choose which are listed.
    seen: Vec<(u64, Segment)>,
}

impl Segments {
    /// Takes in a segment with its blocks; one without a list of blocks tells nothing.
    pub(super) fn add(&mut self, segment: &Segment, blocks: &[Block]) {
        if blocks.is_empty() {
            return;
        }
        let free = free_pieces(blocks);
        let sum = free.iter().fold(0u64, |sum, piece| sum.saturating_add(*piece));
        if !segment.private {
            self.map.free = self.map.free.saturating_add(Bytes(sum));
            self.map.pieces = self.map.pieces.saturating_add(free.len() as u64);
            self.map.largest_free = self.map.largest_free.max(Bytes(free.iter().copied().max().unwrap_or(0)));
            if blocks.iter().all(|block| !block.is_active()) {
                self.map.releasable = self.map.releasable.saturating_add(Bytes(sum));
            }
        }
        self.seen.push((sum, *segment));
    }

    /// The figures; `None` if no segment listed blocks.
    pub(super) fn finish(mut self, table: &[Block]) -> Option<SegmentMap> {
        if self.seen.is_empty() {
            return None;
        }
        self.seen.sort_by_key(|(free, segment)| (Reverse(*free), Reverse(segment.total), segment.address));
        self.map.left_out = self.seen.len().saturating_sub(MAX_SEGMENTS) as u64;
        let listed = self.seen.iter().take(MAX_SEGMENTS);
        self.map.segments = listed.map(|(_, segment)| fill(segment, table)).collect();
        Some(self.map)
    }
}

/// Sizes of the free pieces; neighbours that are both free are one.
fn free_pieces(blocks: &[Block]) -> Vec<u64> {
    let mut pieces: Vec<u64> = Vec::new();
    let mut open = false;
    for block in blocks {
        match (block.is_active(), open, pieces.last_mut()) {
            (true, ..) => open = false,
            (false, true, Some(piece)) => *piece = piece.saturating_add(block.size),
            (false, ..) => {
                pieces.push(block.size);
                open = true;
            }
        }
    }
    pieces
}

fn fill(segment: &Segment, table: &[Block]) -> SegmentFill {
    let blocks = segment.blocks.map_or(&[][..], |run| run.of(table));
    let size = blocks.iter().fold(0u64, |sum, block| sum.saturating_add(block.size));
    let used = blocks.iter().filter(|block| block.is_active());
    let active = used.fold(0u64, |sum, block| sum.saturating_add(block.size));
    SegmentFill {
        size: Bytes(size),
        active: Bytes(active),
        largest_free: Bytes(free_pieces(blocks).into_iter().max().unwrap_or(0)),
        private: segment.private,
        parts: parts(blocks, size),
    }
}

/// Percent in use of each equal part.
fn parts(blocks: &[Block], size: u64) -> Vec<u8> {
    let mut used = [0u128; SegmentFill::PARTS];
    let count = SegmentFill::PARTS as u128;
    // Positions in units of a part's byte, so that all borders are whole.
    let part = u128::from(size.max(1));
    let mut at = 0u128;
    for block in blocks {
        let end = at.saturating_add(u128::from(block.size).saturating_mul(count));
        if block.is_active() {
            let first = usize::try_from(at.checked_div(part).unwrap_or(0)).unwrap_or(0);
            for (number, slot) in used.iter_mut().enumerate().skip(first) {
                let from = (number as u128).saturating_mul(part);
                let to = from.saturating_add(part);
                if from >= end {
                    break;
                }
                *slot = slot.saturating_add(to.min(end).saturating_sub(from.max(at)));
            }
        }
        at = end;
    }
    let percent = |bytes: &u128| {
        let hundredfold = bytes.saturating_mul(100).saturating_add(part.div_euclid(2));
        u8::try_from(hundredfold.checked_div(part).unwrap_or(0)).unwrap_or(100).min(100)
    };
    used.iter().map(percent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch_snapshot::rows::BlockState;

    fn block(size: u64, used: bool) -> Block {
        let state = if used { BlockState::Allocated } else { BlockState::Inactive };
        Block { size, state, ..Block::EMPTY }
    }

    #[test]
    fn free_neighbours_are_one_piece() {
        let blocks = [block(10, false), block(5, false), block(1, true), block(7, false)];
        assert_eq!(free_pieces(&blocks), [15, 7]);
    }

    #[test]
    fn parts_say_where_the_blocks_lie() {
        let blocks = [block(64, true), block(64, false)];
        let parts = parts(&blocks, 128);
        assert_eq!(parts.len(), SegmentFill::PARTS);
        assert!(parts[..32].iter().all(|share| *share == 100) && parts[32..].iter().all(|share| *share == 0));
        assert_eq!(super::parts(&[block(u64::MAX, true)], u64::MAX)[63], 100);
        assert_eq!(super::parts(&[], 0), vec![0; SegmentFill::PARTS]);
    }
}
