//! Which versions of torch write a snapshot of this shape.
//!
//! The file does not say. Keys came one by one, so those that are there give a lower bound, and those that every
//! later version would have written give an upper one. Source: the Python files of the wheels 1.13.1 to 2.15.0.

use super::heap::Seen;
use super::words::{Word, WordSet};

/// The range in words, `2.5 - 2.7` or `2.12 or newer`. `has_events`: some trace holds an event, whose keys then count.
pub(super) fn torch_versions(seen: &Seen, has_events: bool) -> &'static str {
    let top = |word| seen.top.has(word);
    let event = |word| seen.event.has(word);
    if event(Word::InternalMetadata) {
        return "2.15 or newer";
    }
    if top(Word::HostSegments) || top(Word::HostTraces) || seen.actions.has(Word::Annotate) {
        return "2.14 or newer";
    }
    if event(Word::PoolId) {
        return "2.12 or newer";
    }
    if event(Word::ForwardFrames) {
        return "2.11";
    }
    if event(Word::UserMetadata) {
        return "2.10 - 2.11";
    }
    if event(Word::CompileContext) {
        return if seen.other.has(Word::GraphCaptureReuse) { "2.9" } else { "2.8 - 2.9" };
    }
    if seen.other.has(Word::GraphCaptureReuse) {
        return "2.9 or newer";
    }
    if top(Word::ExternalAnnotations) {
        return if has_events { "2.5 - 2.7" } else { "2.5 or newer" };
    }
    if top(Word::AllocatorSettings) {
        return "2.3 - 2.4";
    }
    let is_dict = seen.top != WordSet::NONE;
    if event(Word::TimeUs) {
        return "2.2";
    }
    let since_2_1 = seen.segment.has(Word::SegmentPoolId)
        || seen.segment.has(Word::IsExpandable)
        || seen.segment.has(Word::Frames)
        || seen.block.has(Word::Address);
    match (is_dict, since_2_1) {
        (true, true) if has_events => "2.1",
        (true, true) => "2.1 - 2.2",
        (true, false) => "2.0",
        // torch.cuda.memory_snapshot() gives the bare list in every version.
        (false, true) => "2.1 or newer",
        (false, false) if seen.segment.has(Word::RequestedSize) => "2.0",
        (false, false) => "1.13",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[Word]) -> WordSet {
        let mut set = WordSet::default();
        for word in words {
            set.insert(*word);
        }
        set
    }

    #[test]
    fn keys_tell_the_version() {
        use Word::{
            Address, AllocatorSettings, CompileContext, DeviceTraces, ExternalAnnotations, RequestedSize, Segments,
            TimeUs, TotalSize, UserMetadata,
        };
        let mut seen = Seen { segment: set(&[TotalSize]), ..Seen::default() };
        assert_eq!(torch_versions(&seen, false), "1.13");
        seen.segment.insert(RequestedSize);
        assert_eq!(torch_versions(&seen, false), "2.0");
        seen.block.insert(Address);
        assert_eq!(torch_versions(&seen, false), "2.1 or newer");
        seen.top = set(&[Segments, DeviceTraces]);
        assert_eq!(torch_versions(&seen, true), "2.1");
        assert_eq!(torch_versions(&seen, false), "2.1 - 2.2");
        seen.event = set(&[TimeUs]);
        assert_eq!(torch_versions(&seen, true), "2.2");
        seen.top.insert(AllocatorSettings);
        assert_eq!(torch_versions(&seen, true), "2.3 - 2.4");
        seen.top.insert(ExternalAnnotations);
        assert_eq!(torch_versions(&seen, true), "2.5 - 2.7");
        seen.event.insert(CompileContext);
        assert_eq!(torch_versions(&seen, true), "2.8 - 2.9");
        seen.event.insert(UserMetadata);
        assert_eq!(torch_versions(&seen, true), "2.10 - 2.11");
        seen.event.insert(Word::PoolId);
        assert_eq!(torch_versions(&seen, true), "2.12 or newer");
    }
}
