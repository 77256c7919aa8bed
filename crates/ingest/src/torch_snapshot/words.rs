//! The names that mean something in a snapshot: keys, actions, states.
//!
//! Knows spelling only; what a name does to a figure is decided where it is read.

macro_rules! words {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// A name that the reader knows. The discriminant is also the id of its text, see [`super::intern`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Word { $($name),* }

        impl Word {
            /// Every word, by discriminant.
            pub(super) const ALL: [Self; Self::COUNT] = [$(Self::$name),*];
            /// Number of words; a [`WordSet`] must hold them all.
            pub(super) const COUNT: usize = [$($text),*].len();

            /// As it is spelled in the file.
            pub(super) const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

words! {
    // Top level
    Segments = "segments", DeviceTraces = "device_traces", AllocatorSettings = "allocator_settings",
    ExternalAnnotations = "external_annotations", HostSegments = "host_segments", HostTraces = "host_traces",
    // Segment
    Device = "device", Address = "address", TotalSize = "total_size", AllocatedSize = "allocated_size",
    ActiveSize = "active_size", RequestedSize = "requested_size", SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id", IsExpandable = "is_expandable", Frames = "frames", Blocks = "blocks",
    // Block, and its history entries of torch 1.13 and 2.0
    Size = "size", State = "state", History = "history", RealSize = "real_size", Addr = "addr",
    // Event
    Action = "action", DeviceFree = "device_free", TimeUs = "time_us", CompileContext = "compile_context",
    UserMetadata = "user_metadata", PoolId = "pool_id", ForwardFrames = "forward_frames",
    InternalMetadata = "internal_metadata",
    // Frame
    Name = "name", Filename = "filename", Line = "line",
    // Annotation, allocator settings
    Stage = "stage", GraphCaptureReuse = "graph_capture_record_stream_reuse",
    // Actions
    Alloc = "alloc", FreeRequested = "free_requested", FreeCompleted = "free_completed",
    SegmentAlloc = "segment_alloc", SegmentFree = "segment_free", SegmentMap = "segment_map",
    SegmentUnmap = "segment_unmap", Snapshot = "snapshot", Oom = "oom", Annotate = "annotate",
    UserDefined = "user_defined",
    // States; the docstring of torch says `awaiting`, its code writes `pending`
    ActiveAllocated = "active_allocated", ActivePendingFree = "active_pending_free",
    ActiveAwaitingFree = "active_awaiting_free", Inactive = "inactive",
}

const _: () = assert!(Word::COUNT <= 64, "a WordSet holds 64 words");

/// A set of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WordSet(u64);

impl WordSet {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn insert(&mut self, word: Word) {
        self.0 |= 1 << word as u8;
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) fn has(self, word: Word) -> bool {
        self.0 & (1 << word as u8) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_spelled_once() {
        for (i, word) in Word::ALL.iter().enumerate() {
            assert_eq!(*word as usize, i);
            assert_eq!(Word::ALL.iter().filter(|other| other.text() == word.text()).count(), 1, "{}", word.text());
        }
    }
}
