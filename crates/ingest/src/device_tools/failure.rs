//! What `nvidia-smi` prints when it has no reading to give: a driver that does not answer, a card that is gone, options
//! it does not know. Told as the reason why a file holds no figures.

use super::sink::Sink;
use crate::lines::Line;

/// Words with which a failure begins, and what to do about it.
const FAILURES: [(&str, &str); 6] = [
    (
        "NVIDIA-SMI has failed because it couldn't communicate",
        "the driver is not loaded on that machine: load it, or run the command where the job runs",
    ),
    (
        "Failed to initialize NVML: Driver/library version mismatch",
        "the driver was updated under a running kernel module: restart the machine, or reload the module",
    ),
    ("Failed to initialize NVML", "run it on the host, or in a container that is given the GPUs"),
    ("Unable to determine the device handle for", "that GPU does not answer: restart it or the machine"),
    ("No devices were found", "the driver shows no GPU there: run it on the machine and in the container of the job"),
    ("ERROR: Option ", "that nvidia-smi does not have this option: upload the output of plain `nvidia-smi`"),
];

/// Longest part of the line that is quoted.
const MAX_QUOTE: usize = 120;

/// Takes a line; `true` if it is such a failure.
pub(super) fn line(line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
    let Some((_, advice)) = FAILURES.iter().find(|(words, _)| line.body.starts_with(words)) else { return false };
    let quote: String = line.body.chars().take(MAX_QUOTE).collect();
    sink.warn(format!("line {}: nvidia-smi failed (`{}`); {advice}", line.number, quote.trim_end_matches('.')));
    true
}
