//! `torch.cuda.memory_summary()`: the printed table of an allocator, whole or abbreviated, of torch 1.4 to the newest.
//!
//! Several may stand in one file, of several devices and of ranks that print at the same time. Only the rows that are
//! figures of one moment are taken; lifetime totals and counts are not.

use super::keys::Figure;
use super::records::Draft;
use crate::lines::{Label, Line};
use rankscope_model::{ArtifactId, Bytes, Place, Provenance};

/// Tables that may be open at once; the one that was silent longest is taken for finished.
const MAX_OPEN: usize = 256;
/// In every title since torch 1.4; `CUDA`, `XPU` or `MTIA` stands before it.
const TITLE: &str = "memory summary, device ID ";

/// One table.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) draft: Draft,
    pub(super) at: Provenance,
    pub(super) label: Label,
}

/// Gathers tables line by line.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    open: Vec<Summary>,
    done: Vec<Summary>,
}

impl Summaries {
    /// Takes a line; `true` if it belongs to a table.
    pub(super) fn line(&mut self, line: &Line<'_>, artifact: ArtifactId) -> bool {
        let is_row = line.body.starts_with('|');
        if self.open.is_empty() && !is_row {
            return false;
        }
        if let Some(device) = device_of_title(line.body) {
            self.close(line.label);
            if self.open.len() >= MAX_OPEN {
                self.done.push(self.open.remove(0));
            }
            let mut draft = Draft::default();
            draft.device = Some(device);
            self.open.push(Summary { draft, at: line.provenance(artifact), label: line.label });
            return true;
        }
        if !is_row {
            self.close(line.label);
            return false;
        }
        let Some(summary) = self.open.iter_mut().find(|open| open.label.writer() == line.label.writer()) else {
            return false;
        };
        if let Some((now, peak, values)) = figures(line.body) {
            // Last, since of what has no peak of its own only this is kept.
            summary.draft.set(peak, values.1);
            summary.draft.set(now, values.0);
            if let Place::Line(first) | Place::Lines(first, _) = summary.at.place {
                summary.at.place = Place::Lines(first, line.number);
            }
        }
        true
    }

    fn close(&mut self, label: Label) {
        if let Some(index) = self.open.iter().position(|open| open.label.writer() == label.writer()) {
            self.done.push(self.open.remove(index));
        }
    }

    /// Tables that are complete, in the order in which they ended.
    pub(super) fn take_done(&mut self) -> Vec<Summary> {
        std::mem::take(&mut self.done)
    }

    /// The text is over.
    pub(super) fn finish(&mut self) -> Vec<Summary> {
        self.done.append(&mut self.open);
        self.take_done()
    }
}

/// `|                  PyTorch CUDA memory summary, device ID 0                 |`
fn device_of_title(body: &str) -> Option<u32> {
    let (_, after) = body.split_once(TITLE)?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after.get(..end)?.parse().ok()
}

/// The current and the peak value of a row that is a figure of one moment.
fn figures(body: &str) -> Option<(Figure, Figure, (Bytes, Bytes))> {
    let mut cells = body.strip_prefix('|')?.split('|');
    let metric = cells.next()?.trim();
    let now = match metric {
        "Allocated memory" => Figure::Allocated,
        "Active memory" => Figure::Active,
        // `GPU reserved memory`, `XPU reserved memory`.
        _ if metric.ends_with("reserved memory") => Figure::Reserved,
        _ => return None,
    };
    let values = (bytes(cells.next()?)?, bytes(cells.next()?)?);
    // A cell counts only if it is closed: a text may be cut within a number.
    cells.next()?;
    Some((now, now.peak(), values))
}

/// `1062 MB`, `10240 MiB`, `0 B`: units of 1024 under either name.
fn bytes(cell: &str) -> Option<Bytes> {
    let (number, unit) = cell.trim().split_once(' ')?;
    let number: u64 = number.parse().ok()?;
    let power = match unit.trim() {
        "B" => 0,
        "KB" | "KiB" => 1,
        "MB" | "MiB" => 2,
        "GB" | "GiB" => 3,
        "TB" | "TiB" => 4,
        "PB" | "PiB" => 5,
        _ => return None,
    };
    number.checked_mul(1024u64.checked_pow(power)?).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_version() {
        let row = |text| figures(text).map(|(now, peak, (a, b))| (now, peak, a.0, b.0));
        assert_eq!(
            row("| Allocated memory      |  183578 KB |    5260 MB |  149119 MB |  148940 MB |"),
            Some((Figure::Allocated, Figure::PeakAllocated, 183_578 << 10, 5260 << 20))
        );
        assert_eq!(
            row("| GPU reserved memory   |  12420 MiB |  12420 MiB |  16924 MiB |   4504 MiB |"),
            Some((Figure::Reserved, Figure::PeakReserved, 12_420 << 20, 12_420 << 20))
        );
        assert_eq!(
            row("| Allocated memory      |      0 B   |      0 B   |      0 B   |      0 B   |"),
            Some((Figure::Allocated, Figure::PeakAllocated, 0, 0))
        );
        assert_eq!(
            row("| Active memory         |    1062 MB |    4877 MB |   89299 MB |   88237 MB |"),
            Some((Figure::Active, Figure::Active, 1062 << 20, 4877 << 20))
        );
        for other in [
            "|       from large pool |    1048 MB |    4865 MB |   89263 MB |   88215 MB |",
            "| Non-releasable memory |    1062 MB |    4877 MB |   89299 MB |   88237 MB |",
            "| Allocations           |     223    |     404    |  110233    |  110010    |",
            "| GPU reserved segments |     223    |     404    |  110233    |  110010    |",
            "| Allocated memory      |    1062 MB |    48",
            "| Allocated memory      |    1062 MB |    4877 MB",
            "| Allocated memory      | 99999999999999999999 MB | 1 MB | 1 MB | 1 MB |",
            "| Allocated memory      | 18446744073709551615 PB | 1 MB | 1 MB | 1 MB |",
            "|",
            "",
        ] {
            assert_eq!(row(other), None, "{other}");
        }
    }

    #[test]
    fn titles_name_the_device() {
        assert_eq!(device_of_title("|          PyTorch CUDA memory summary, device ID 3                 |"), Some(3));
        assert_eq!(device_of_title("|          PyTorch CUDA memory summary, device ID 0"), Some(0));
        assert_eq!(device_of_title("|          PyTorch CUDA memory summary, device ID"), None);
    }
}
