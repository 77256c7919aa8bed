//! Which moment the figures of a report are of. Values at the end of a recording are no peaks, and are not called so.

use rankscope_model::{ArtifactKind, Bytes, Quantity, Report, Subject};

/// The figures were read from memory snapshots alone, which tell what was held when they were taken. What the ranks
/// held before is in their recordings, where they have any.
pub fn is_of_snapshots(report: &Report) -> bool {
    let Some(imbalance) = &report.diagnosis.imbalance else { return false };
    let mut of_ranks = report
        .diagnosis
        .artifacts
        .iter()
        .filter(|file| !file.ranks.is_empty() || file.kind == ArtifactKind::TorchSnapshot)
        .peekable();
    imbalance.at.is_none()
        && matches!(imbalance.quantity, Quantity::Allocated | Quantity::Reserved)
        && of_ranks.peek().is_some()
        && of_ranks.all(|file| file.kind == ArtifactKind::TorchSnapshot)
}

/// The most that somebody held at any moment of the recording, in the quantity that is drawn over it.
pub fn recorded_peak(report: &Report, subject: Subject) -> Option<(Quantity, Bytes)> {
    let timeline = report.figures.timeline.as_ref()?;
    let line = timeline.lines.iter().find(|line| line.subject == subject)?;
    Some((timeline.quantity, Bytes(line.y.iter().max().copied()?)))
}
