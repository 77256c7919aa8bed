//! `nvidia-smi topo -m`: the matrix of links between GPUs, and the CPUs and NUMA nodes near them.
//!
//! A copy may have blanks where the tool prints tabs; both are read.

use super::sink::Sink;
use super::values;
use crate::lines::Line;
use rankscope_model::{ArtifactKind, GpuLink, LinkKind, Topology, TopologyGpu};

/// Columns of the matrix; nodes have 16 GPUs and as many network cards at most.
const MAX_COLUMNS: usize = 128;

/// Gathers matrices line by line.
#[derive(Default)]
pub(super) struct TopologyReader {
    open: Option<Open>,
}

struct Open {
    writer: (Option<u32>, Option<u32>),
    topology: Topology,
    /// What stands over each column of links: a GPU, or another device.
    columns: Vec<Option<u32>>,
    is_tabbed: bool,
    has_rows: bool,
}

impl TopologyReader {
    /// Takes a line; `true` if it was part of a matrix.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let used = self.try_line(line, sink);
        if used {
            sink.count(ArtifactKind::GpuTopology, 1);
        }
        used
    }

    fn try_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(open) = self.open.as_mut().filter(|open| open.writer == line.label.writer()) {
            if open.row(line.body) {
                return true;
            }
            if open.has_rows && is_legend(line.body) {
                return true;
            }
        }
        if !line.body.starts_with("GPU") {
            return false;
        }
        let Some(columns) = head(line.body) else { return false };
        self.finish(sink);
        self.open = Some(Open {
            writer: line.label.writer(),
            topology: Topology { at: sink.at(line), gpus: Vec::new(), links: Vec::new() },
            columns,
            is_tabbed: line.body.contains('\t'),
            has_rows: false,
        });
        true
    }

    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        if let Some(open) = self.open.take().filter(|open| !open.topology.gpus.is_empty()) {
            open.topology.gpus.iter().for_each(|gpu| sink.see_device(gpu.device));
            sink.push_topology(open.topology);
        }
    }
}

/// `GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity`: what the columns of links are. The last ones are told by their names.
fn head(body: &str) -> Option<Vec<Option<u32>>> {
    let mut columns = Vec::new();
    let mut has_affinity = false;
    for word in body.split_ascii_whitespace().take(MAX_COLUMNS) {
        if word == "CPU" {
            has_affinity = true;
            break;
        }
        let is_other = ["NIC", "mlx", "CPU"].iter().any(|start| word.starts_with(start));
        match gpu(word) {
            Some(index) => columns.push(Some(index)),
            None if is_other => columns.push(None),
            None => return None,
        }
    }
    (columns.first() == Some(&Some(0)) && (has_affinity || columns.len() >= 2)).then_some(columns)
}

fn gpu(word: &str) -> Option<u32> {
    word.strip_prefix("GPU").and_then(values::index)
}

fn is_legend(body: &str) -> bool {
    body == "Legend:"
        || body == "NIC Legend:"
        || body.starts_with("NIC")
        || body.split_once(" = ").is_some_and(|(word, _)| {
            matches!(word.trim_end(), "X" | "SYS" | "NODE" | "PHB" | "PXB" | "PIX" | "NV#" | "SOC" | "PSB")
        })
}

impl Open {
    fn row(&mut self, body: &str) -> bool {
        let cells: Vec<&str> = if self.is_tabbed {
            body.split('\t').map(str::trim).take(MAX_COLUMNS + 8).collect()
        } else {
            body.split_ascii_whitespace().take(MAX_COLUMNS + 8).collect()
        };
        let Some((name, rest)) = cells.split_first() else { return false };
        let Some(links) = rest.get(..self.columns.len()) else { return false };
        if links.iter().any(|cell| *cell != "X" && link(cell).is_none()) {
            return false;
        }
        self.has_rows = true;
        let Some(index) = gpu(name) else { return name.starts_with("NIC") || name.starts_with("mlx") };
        if self.topology.gpus.len() >= MAX_COLUMNS {
            return false;
        }
        for (column, cell) in self.columns.iter().zip(links) {
            // Each link is printed twice; the half above the diagonal is enough.
            if let (Some(other), Some(kind)) = (column, link(cell))
                && *other > index
            {
                self.topology.links.push(GpuLink { a: index, b: *other, kind });
            }
        }
        let affinity = |at: usize| rest.get(self.columns.len().saturating_add(at)).and_then(|text| values::word(text));
        self.topology.gpus.push(TopologyGpu { device: index, cpu_affinity: affinity(0), numa_affinity: affinity(1) });
        true
    }
}

fn link(cell: &str) -> Option<LinkKind> {
    Some(match cell {
        "PIX" | "PSB" => LinkKind::Pix,
        "PXB" => LinkKind::Pxb,
        "PHB" => LinkKind::Phb,
        "NODE" => LinkKind::Node,
        "SYS" | "SOC" => LinkKind::Sys,
        _ => LinkKind::NvLink(cell.strip_prefix("NV")?.parse().ok().filter(|n| *n <= 255)?),
    })
}
