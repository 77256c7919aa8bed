//! What can still be used of a snapshot that breaks off: the segments if they are complete, and the events before
//! the cut.
//!
//! Works on what stands on the pickle machine's stack at that moment; knows no opcode.

use super::heap::{Heap, TableFull};
use super::rows::Top;
use super::value::{ObjectId, Value};
use super::words::Word;

/// Closes what is open and gives the top level; `None` if the segments are not complete.
pub(super) fn salvage(heap: &mut Heap, stack: &[Value]) -> Result<Option<Top>, TableFull> {
    let Some((root, pairs)) = stack.split_first() else { return Ok(None) };
    // Cut between the last key and STOP: all is there.
    if let Some(top) = root.as_object().and_then(|root| heap.top(root)) {
        return Ok(Some(top));
    }
    let mut top = Top::default();
    let mut rest = pairs;
    while let [key, value, after @ ..] = rest
        && let Some(key) = key.as_text()
    {
        // A value is complete once the next key has been read.
        let complete = after.first().is_some_and(|next| next.as_text().is_some());
        match (key.word(), value.as_object()) {
            (Some(Word::Segments), Some(list)) if complete => top.segments = Some(list),
            (Some(Word::DeviceTraces), Some(list)) => {
                if !complete {
                    close_traces(heap, list, after)?;
                }
                top.device_traces = Some(list);
            }
            _ => {}
        }
        rest = after;
    }
    Ok(top.segments.is_some().then_some(top))
}

/// Puts what stands above the list of traces into it: lists of events, the last of which may be open, and then the
/// events that are waiting to be put into that one. What follows them is half an event.
fn close_traces(heap: &mut Heap, traces: ObjectId, above: &[Value]) -> Result<(), TableFull> {
    let is_list = |value: &&Value| value.as_object().is_some_and(|list| !heap.is_dict(list));
    let lists = above.get(..above.iter().take_while(is_list).count()).unwrap_or_default();
    let waiting = above.get(lists.len()..).unwrap_or_default();
    let is_event = |value: &&Value| value.as_object().is_some_and(|event| heap.is_event(event));
    let events = waiting.get(..waiting.iter().take_while(is_event).count()).unwrap_or_default();
    if let Some(open) = lists.last().and_then(|last| last.as_object()) {
        heap.append(open, events)?;
    }
    heap.append(traces, lists)
}
