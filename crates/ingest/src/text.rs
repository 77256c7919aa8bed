//! One pass over a text: every text reader sees every line, because a job log may hold all kinds at once.
//!
//! Merges what they found and says what kind the file is. Knows no format itself.

use crate::context::{ReadContext, ReadError};
use crate::device_tools::DeviceTools;
use crate::launch::{PrintedReader, ProcessListReader};
use crate::lines::for_each_line;
use crate::nvidia_smi::TableReader;
use crate::oom::OomReader;
use crate::phases::PhaseReader;
use crate::sniff::TextEncoding;
use crate::step_log::StepReader;
use rankscope_model::{ArtifactInfo, ArtifactKind, DeviceTable, Evidence, LaunchSetting, Place, Rank, Subject};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

/// Which readers look at a text.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "one switch for each reader")]
pub(crate) struct Readers {
    pub(crate) tables: bool,
    pub(crate) steps: bool,
    pub(crate) ooms: bool,
    /// Phases, and what the program prints of its launch.
    pub(crate) story: bool,
}

impl Readers {
    pub(crate) const ALL: Self = Self { tables: true, steps: true, ooms: true, story: true };
}

/// An out-of-memory message is one line that says more than one line of a table or a log.
const OOM_WEIGHT: u64 = 8;

/// Reads a text with some of the readers.
///
/// The kind is the one whose lines are the most, a message counting for [`OOM_WEIGHT`] lines; at a tie a table goes
/// before a message, and a message before a step log. Text in which nothing was found is [`ArtifactKind::Text`].
pub(crate) fn read_with(
    input: &mut dyn BufRead,
    encoding: TextEncoding,
    ctx: &ReadContext<'_>,
    readers: Readers,
) -> Result<Evidence, ReadError> {
    let mut tools = DeviceTools::new(ctx);
    let mut tables = TableReader::new(ctx);
    let mut steps = StepReader::new(ctx);
    let mut ooms = OomReader::new(ctx);
    let mut phases = PhaseReader::new(ctx);
    let mut printed = PrintedReader::new(ctx);
    let mut processes = ProcessListReader::new(ctx);
    let scan = for_each_line(input, encoding, ctx.limits, &mut |line, trust| {
        // In front: a command line in it may name anything.
        if readers.story && processes.line(&line) {
            return;
        }
        if readers.tables && (tools.line(&line) || tables.line(&line)) {
            return;
        }
        if readers.ooms && ooms.line(&line) {
            return;
        }
        if readers.story {
            phases.line(&line);
            printed.line(&line);
        }
        if readers.steps {
            steps.line(&line, trust);
        }
    });
    let mut info = ctx.info(ArtifactKind::Text);
    match scan.stopped {
        Some((1, source)) => return Err(ReadError::Io { offset: 0, source }),
        Some((line, source)) => {
            info.warnings
                .push(format!("the text ends early, after line {line}: {source}; what stands before was read"));
        }
        None => {}
    }
    info.warnings.extend(scan.cut.told("is", "are").map(|lines| {
        let limit = ctx.limits.max_line_bytes >> 10;
        format!("{lines} longer than {limit} KiB, and read only up to there")
    }));
    info.warnings.extend(scan.wide.told("is", "are").map(|lines| {
        format!(
            "{lines} in UTF-16 in a text of another encoding, as if two shells had written to the file; letters beyond \
             ASCII in there are lost"
        )
    }));
    let (mut device_tables, table_lines, warnings) = tables.finish();
    info.warnings.extend(warnings);
    let table_lines = if device_tables.is_empty() { 0 } else { table_lines };
    let found = tools.finish(&device_tables);
    info.warnings.extend(found.warnings);
    if !found.tables.is_empty() {
        device_tables.extend(found.tables);
        device_tables.sort_by_key(|table| table.at.place);
    }
    leave_out_impossible(&mut device_tables, &mut info.warnings);
    let (ooms, warnings) = ooms.finish(&scan.trust);
    info.warnings.extend(warnings);
    let (steps, of_statistics, warnings) = steps.finish(&scan.trust);
    info.warnings.extend(warnings);
    let (phases, warning) = phases.finish(&scan.trust);
    info.warnings.extend(warning);
    let printed = printed.finish(&scan.trust, &mut info.warnings);
    let (process_rows, listed) = processes.finish(&mut info.warnings);
    let launches: Vec<_> = printed.into_iter().chain(listed).collect();
    info.warnings.truncate(ctx.limits.max_warnings);

    info.kind = kind(table_lines, &found.lines, ooms.len() as u64, steps.len() as u64);
    if info.kind == ArtifactKind::StepLog && of_statistics.saturating_mul(2) > steps.len() as u64 {
        info.kind = ArtifactKind::MemoryStats;
    }
    // A list of processes beside figures is a side note, however long it is.
    if info.kind == ArtifactKind::Text && process_rows > 0 && phases.is_empty() {
        info.kind = ArtifactKind::ProcessList;
    }
    if info.kind == ArtifactKind::Text && !(phases.is_empty() && launches.is_empty()) {
        info.kind = ArtifactKind::JobLog;
    }
    let (topologies, cards, unnumbered) = (found.topologies, found.cards, found.unnumbered);
    let evidence =
        Evidence { device_tables, steps, ooms, topologies, phases, launches, cards, unnumbered, ..Evidence::default() };
    note_subjects(&mut info, &evidence, found.devices);
    Ok(Evidence { artifacts: vec![info], ..evidence })
}

/// More than a card has cannot be used: such a figure is damage, and is none.
fn leave_out_impossible(tables: &mut [DeviceTable], warnings: &mut Vec<String>) {
    for row in tables.iter_mut().flat_map(|table| &mut table.devices) {
        let Some((used, total)) = row.used.zip(row.total).filter(|(used, total)| used > total && total.0 > 0) else {
            continue;
        };
        row.used = None;
        let line = match row.at.place {
            Place::Line(line) | Place::Lines(line, _) => format!("line {line}: "),
            Place::Offset(_) => String::new(),
        };
        warnings
            .push(format!("{line}{used} used of {total} is not possible on {}; the figure was left out", row.subject));
    }
}

fn kind(table_lines: u64, tools: &BTreeMap<ArtifactKind, u64>, ooms: u64, steps: u64) -> ArtifactKind {
    let tables = std::iter::once((table_lines, ArtifactKind::NvidiaSmi)).chain(tools.iter().map(|(k, n)| (*n, *k)));
    let others = [(ooms.saturating_mul(OOM_WEIGHT), ArtifactKind::OomMessage), (steps, ArtifactKind::StepLog)];
    let mut best = (0, ArtifactKind::Text);
    for (weight, kind) in tables.chain(others) {
        if weight > best.0 {
            best = (weight, kind);
        }
    }
    best.1
}

/// Which ranks and GPUs the file speaks of.
fn note_subjects(info: &mut ArtifactInfo, evidence: &Evidence, mut devices: BTreeSet<u32>) {
    let mut ranks = BTreeSet::new();
    let mut note = |subject: Subject| {
        ranks.extend(subject.rank());
        devices.extend(subject.device());
    };
    for table in &evidence.device_tables {
        table.devices.iter().for_each(|row| note(row.subject));
        table.processes.iter().for_each(|row| note(row.subject));
    }
    evidence.steps.iter().for_each(|row| note(row.subject));
    for topology in &evidence.topologies {
        topology.gpus.iter().for_each(|gpu| note(Subject::Device(gpu.device)));
    }
    ranks.extend(evidence.phases.iter().filter_map(|mark| mark.rank).map(|rank| rank.0));
    // A setting that one rank prints for all says nothing of it; the GPU that it works on does.
    let settings = evidence.launches.iter().flat_map(|launch| &launch.facts);
    let own =
        settings.filter(|fact| matches!(fact.what, LaunchSetting::CurrentDevice(_) | LaunchSetting::PhysicalGpu(_)));
    ranks.extend(own.filter_map(|fact| fact.rank).map(|rank| rank.0));
    for oom in &evidence.ooms {
        ranks.extend(oom.rank.map(|Rank(rank)| rank));
        devices.extend(oom.device);
    }
    info.ranks = ranks.into_iter().collect();
    info.devices = devices.into_iter().collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_card_has_is_no_figure() {
        use rankscope_model::{ArtifactId, Bytes, DeviceRow, Provenance};
        let row = |line, used| DeviceRow {
            used: Some(Bytes(used)),
            total: Some(Bytes(80 << 30)),
            ..DeviceRow::new(Provenance::line(ArtifactId(0), line, ""), Subject::Device(1))
        };
        let table = DeviceTable {
            devices: vec![row(5, 79 << 30), row(7, 99 << 40)],
            ..DeviceTable::new(Provenance::line(ArtifactId(0), 1, ""))
        };
        let (mut tables, mut warnings) = ([table], Vec::new());
        leave_out_impossible(&mut tables, &mut warnings);
        assert_eq!(tables[0].devices.iter().map(|row| row.used.is_some()).collect::<Vec<_>>(), [true, false]);
        assert!(warnings[0].starts_with("line 7: ") && warnings.len() == 1, "{warnings:?}");
    }

    #[test]
    fn the_kind_is_what_dominates() {
        let none = BTreeMap::new();
        assert_eq!(kind(0, &none, 0, 0), ArtifactKind::Text);
        assert_eq!(kind(20, &none, 0, 0), ArtifactKind::NvidiaSmi);
        assert_eq!(kind(20, &none, 1, 500), ArtifactKind::StepLog);
        assert_eq!(kind(0, &none, 1, 3), ArtifactKind::OomMessage);
        assert_eq!(kind(0, &none, 1, 8), ArtifactKind::OomMessage);
        assert_eq!(kind(8, &none, 1, 8), ArtifactKind::NvidiaSmi);
        let rows = BTreeMap::from([(ArtifactKind::NvidiaSmiCsv, 30)]);
        assert_eq!(kind(20, &rows, 1, 8), ArtifactKind::NvidiaSmiCsv);
        assert_eq!(kind(20, &rows, 1, 31), ArtifactKind::StepLog);
    }
}
