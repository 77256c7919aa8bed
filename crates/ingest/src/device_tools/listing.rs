//! `nvidia-smi -L`: which index is which GPU.

use super::sink::Sink;
use super::values;
use crate::lines::Line;
use rankscope_model::ArtifactKind;

/// Takes a line; `true` if it names a GPU or a MIG device of one.
pub(super) fn line(line: &Line<'_>, last_gpu: &mut Option<u32>, sink: &mut Sink<'_>) -> bool {
    let Some((before, uuid)) = line.body.strip_suffix(')').and_then(|body| body.rsplit_once("(UUID: ")) else {
        return false;
    };
    if !values::is_uuid(uuid) {
        return false;
    }
    if let Some((index, _)) = before.strip_prefix("GPU ").and_then(|rest| rest.split_once(':'))
        && let Some(index) = values::index(index)
    {
        sink.identify(None, Some(uuid), index);
        sink.name_card(&sink.at(line), uuid, index, None);
        sink.see_device(index);
        *last_gpu = Some(index);
    } else if before.trim_start().starts_with("MIG ") && before.contains("Device") {
        // Its instances are not printed here; its memory is part of the GPU above it.
        if let Some(index) = *last_gpu {
            sink.identify(None, Some(uuid), index);
            let number =
                before.rsplit_once("Device").and_then(|(_, number)| values::index(number.trim_end_matches([':', ' '])));
            sink.name_card(&sink.at(line), uuid, index, number);
        }
    } else {
        return false;
    }
    sink.count(ArtifactKind::NvidiaSmiList, 1);
    true
}
