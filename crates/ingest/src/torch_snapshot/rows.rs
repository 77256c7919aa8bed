//! The rows of a snapshot's tables: events, blocks, segments. Small and plain, because there are millions.
//!
//! Each row takes its values from [`Fields`] by key; a key that is absent leaves the row as it was. Knows no
//! container and no opcode.

use super::fields::Fields;
use super::value::{ObjectId, Value};
use super::words::Word;

/// No stack was recorded.
pub(super) const NO_STACK: u32 = u32::MAX;

/// One recorded event, 24 bytes: a long recording has millions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    /// Address; on [`Action::Oom`] the free bytes of the device.
    pub(super) addr: u64,
    /// Microseconds since the Unix epoch, [`Event::NO_TIME`] if not recorded.
    pub(super) time_us: i64,
    /// The action in the upper byte, the size in the lower seven.
    packed: u64,
}

/// What an event did, as far as it matters for live and reserved bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Other,
    Alloc,
    FreeRequested,
    FreeCompleted,
    Oom,
    /// A segment was taken from the driver, or an expandable one grew.
    Reserve,
    /// A segment was given back, or a part of an expandable one.
    Release,
}

impl Event {
    pub(super) const NO_TIME: i64 = i64::MIN;
    const SIZE_BITS: u32 = 56;
    const MAX_SIZE: u64 = (1 << Self::SIZE_BITS) - 1;
    pub(super) const EMPTY: Self = Self { addr: 0, time_us: Self::NO_TIME, packed: 0 };

    /// Bytes, saturating at 2^56 - 1; their meaning depends on the action.
    pub(super) fn size(self) -> u64 {
        self.packed & Self::MAX_SIZE
    }

    pub(super) fn action(self) -> Action {
        match self.packed >> Self::SIZE_BITS {
            1 => Action::Alloc,
            2 => Action::FreeRequested,
            3 => Action::FreeCompleted,
            4 => Action::Oom,
            5 => Action::Reserve,
            6 => Action::Release,
            _ => Action::Other,
        }
    }

    fn set_action(&mut self, action: Action) {
        self.packed = self.size() | (action as u64) << Self::SIZE_BITS;
    }

    fn set_size(&mut self, size: u64) {
        self.packed = self.packed & !Self::MAX_SIZE | size.min(Self::MAX_SIZE);
    }

    /// Takes over what `fields` has.
    pub(super) fn apply(&mut self, fields: &Fields) {
        if let Some(action) = fields.word(Word::Action) {
            self.set_action(match action {
                Word::Alloc => Action::Alloc,
                Word::FreeRequested => Action::FreeRequested,
                Word::FreeCompleted => Action::FreeCompleted,
                Word::Oom => Action::Oom,
                Word::SegmentAlloc | Word::SegmentMap => Action::Reserve,
                Word::SegmentFree | Word::SegmentUnmap => Action::Release,
                _ => Action::Other,
            });
        }
        if let Some(addr) = fields.address(Word::DeviceFree).or_else(|| fields.address(Word::Addr)) {
            self.addr = addr;
        } else if self.action() == Action::Oom && self.addr == 0 {
            // The event has no address, and what was free is not there: unlike 0, that is no figure.
            self.addr = u64::MAX;
        }
        if let Some(size) = fields.size(Word::Size) {
            self.set_size(size);
        }
        if let Some(time) = fields.get(Word::TimeUs).and_then(Value::as_signed) {
            self.time_us = time;
        }
    }
}

#[cfg(test)]
impl Event {
    pub(super) fn new(action: Action, addr: u64, size: u64, time_us: i64) -> Self {
        let mut event = Self { addr, time_us, packed: 0 };
        event.set_action(action);
        event.set_size(size);
        event
    }
}

/// The recorded events of one device, oldest first, with their stacks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trace<'a> {
    pub(super) events: &'a [Event],
    /// As many as there are events; ids of stacks, or [`NO_STACK`].
    pub(super) stacks: &'a [u32],
}

impl Trace<'_> {
    /// The stack of an event.
    pub(super) fn stack(self, index: usize) -> u32 {
        self.stacks.get(index).copied().unwrap_or(NO_STACK)
    }
}

/// State of a block at the moment of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Free, or a state that this reader does not know.
    Inactive,
    /// In use by the program.
    Allocated,
    /// Released by the program, still needed by another stream.
    PendingFree,
}

/// One block of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    /// Base address, from torch 2.1.
    pub(super) address: Option<u64>,
    /// Bytes after rounding.
    pub(super) size: u64,
    /// Bytes that the program asked for. On inactive blocks a stale left-over.
    pub(super) requested: Option<u64>,
    /// The stack that allocated it, or [`NO_STACK`].
    pub(super) stack: u32,
    pub(super) state: BlockState,
}

impl Block {
    pub(super) const EMPTY: Self =
        Self { address: None, size: 0, requested: None, stack: NO_STACK, state: BlockState::Inactive };

    /// Takes over what `fields` has. `history` and `stack` are what its members of these names refer to.
    pub(super) fn apply(&mut self, fields: &Fields, history: Option<History>, stack: Option<u32>) {
        self.address = fields.address(Word::Address).or(self.address);
        self.size = fields.size(Word::Size).unwrap_or(self.size);
        let requested = fields.size(Word::RequestedSize).or(self.requested);
        self.requested = requested.or_else(|| history?.real_size);
        self.stack = stack.or_else(|| Some(history?.stack)).unwrap_or(self.stack);
        if fields.has(Word::State) {
            self.state = match fields.word(Word::State) {
                Some(Word::ActiveAllocated) => BlockState::Allocated,
                Some(Word::ActivePendingFree | Word::ActiveAwaitingFree) => BlockState::PendingFree,
                _ => BlockState::Inactive,
            };
        }
    }

    /// In use by the program.
    pub(super) fn is_allocated(&self) -> bool {
        self.state == BlockState::Allocated
    }

    /// In use, or not yet usable again.
    pub(super) fn is_active(&self) -> bool {
        self.state != BlockState::Inactive
    }
}

/// One segment: a `cudaMalloc`, or a mapped run of an expandable segment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Segment {
    /// CUDA ordinal as the process sees it; `u32::MAX` if the file has none that can be.
    pub(super) device: u32,
    /// It belongs to a private pool, as CUDA graphs do.
    pub(super) private: bool,
    pub(super) address: Option<u64>,
    pub(super) total: Option<u64>,
    pub(super) allocated: Option<u64>,
    pub(super) active: Option<u64>,
    /// Its blocks, as positions in the table of blocks; `None` if the file lists none.
    pub(super) blocks: Option<Run>,
}

impl Segment {
    /// Takes over what `fields` has. `private` and `blocks` are what its members of these names refer to.
    pub(super) fn apply(&mut self, fields: &Fields, private: Option<bool>, blocks: Option<Run>) {
        if let Some(device) = fields.get(Word::Device) {
            let ordinal = device.as_size().and_then(|n| u32::try_from(n).ok());
            self.device = ordinal.unwrap_or(u32::MAX);
        }
        self.private = private.unwrap_or(self.private);
        self.address = fields.address(Word::Address).or(self.address);
        self.total = fields.size(Word::TotalSize).or(self.total);
        self.allocated = fields.size(Word::AllocatedSize).or(self.allocated);
        self.active = fields.size(Word::ActiveSize).or(self.active);
        self.blocks = blocks.or(self.blocks);
    }
}

/// Consecutive rows of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Run {
    start: u32,
    len: u32,
}

impl Run {
    /// No rows, but the next one is to be `start`.
    pub(super) fn before(start: u32) -> Self {
        Self { start, len: 0 }
    }

    /// Takes in `row` if it is the next one.
    pub(super) fn extend(&mut self, row: u32) -> bool {
        let next = self.start.checked_add(self.len) == Some(row);
        self.len = self.len.saturating_add(u32::from(next));
        next
    }

    /// It has no rows.
    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The rows of this run.
    pub(super) fn of<T>(self, table: &[T]) -> &[T] {
        let start = self.start as usize;
        table.get(start..start.saturating_add(self.len as usize)).unwrap_or_default()
    }
}

/// The first entry of a block's history: its current or last user, torch 1.13 and 2.0.
#[derive(Debug, Clone, Copy)]
pub(super) struct History {
    pub(super) real_size: Option<u64>,
    pub(super) stack: u32,
}

/// The top-level dict.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Top {
    pub(super) segments: Option<ObjectId>,
    pub(super) device_traces: Option<ObjectId>,
}
