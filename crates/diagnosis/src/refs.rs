//! From places in artifacts to the references that a reader opens: adjacent lines become one range, with its text.

use rankscope_model::{ArtifactId, Evidence, EvidenceRef, Place, Provenance, ScriptEvidence, StepRecord};

/// Lines of text kept in the quote of one range.
const QUOTE_LINES: usize = 8;

/// References to `places`, in file order, adjacent lines merged, at most `limit`.
pub(crate) fn refs<'a>(
    evidence: &Evidence,
    places: impl IntoIterator<Item = &'a Provenance>,
    limit: usize,
) -> Vec<EvidenceRef> {
    merge(evidence, places.into_iter().map(|at| (at, None)).collect(), limit)
}

/// The same for step records; a reference to one step keeps its number.
pub(crate) fn step_refs<'a>(
    evidence: &Evidence,
    records: impl IntoIterator<Item = &'a StepRecord>,
    limit: usize,
) -> Vec<EvidenceRef> {
    merge(evidence, records.into_iter().map(|r| (&r.at, r.step.map(|s| s.0))).collect(), limit)
}

fn merge(evidence: &Evidence, mut places: Vec<(&Provenance, Option<u64>)>, limit: usize) -> Vec<EvidenceRef> {
    places.sort_by_key(|(at, _)| (at.artifact, at.place));
    let mut merged: Vec<EvidenceRef> = Vec::new();
    let mut files = Vec::new();
    let mut quoted_lines = 0;
    let mut last_artifact = None;
    for (at, step) in places {
        let (line, line_end, offset) = match at.place {
            Place::Line(line) => (Some(line), line, None),
            Place::Lines(first, last) => (Some(first), last.max(first), None),
            Place::Offset(offset) => (None, 0, Some(offset)),
        };
        if let (Some(line), Some(open)) = (line, merged.last_mut())
            && last_artifact == Some(at.artifact)
            && let Some(open_end) = open.line_end.or(open.line)
            && line <= open_end.saturating_add(1)
        {
            let is_new_line = line_end > open_end;
            if is_new_line {
                open.line_end = Some(line_end);
            }
            if open.step != step {
                open.step = None;
            }
            if is_new_line && !at.quote.is_empty() {
                quoted_lines += 1;
                if quoted_lines <= QUOTE_LINES {
                    open.quote.push('\n');
                    open.quote.push_str(&at.quote);
                } else if quoted_lines == QUOTE_LINES + 1 {
                    open.quote.push_str("\n…");
                }
            }
            continue;
        }
        if merged.len() == limit {
            break;
        }
        quoted_lines = 1;
        last_artifact = Some(at.artifact);
        merged.push(EvidenceRef {
            artifact: evidence.artifact_name(at.artifact).to_owned(),
            line,
            line_end: line.filter(|first| line_end > *first).map(|_| line_end),
            offset,
            time: at.time.map(|t| t.0),
            step,
            quote: at.quote.clone(),
            ..EvidenceRef::default()
        });
        files.push(at.artifact);
    }
    for (reference, file) in merged.iter_mut().zip(files) {
        add_margins(evidence, reference, file);
    }
    merged
}

/// What stands above and below, where the file is a script whose reader kept it.
fn add_margins(evidence: &Evidence, reference: &mut EvidenceRef, file: ArtifactId) {
    let Some(script) = evidence.scripts.iter().find(|script| script.at.artifact == file) else { return };
    let Some(first) = reference.line else { return };
    let last = reference.line_end.unwrap_or(first);
    let text = |line: u64| script.margins.get(&line).cloned();
    let mut above: Vec<String> =
        (1..=ScriptEvidence::MARGIN_LINES).map_while(|n| text(first.checked_sub(n)?)).collect();
    above.reverse();
    reference.above = above;
    reference.below = (1..=ScriptEvidence::MARGIN_LINES).map_while(|n| text(last.saturating_add(n))).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{ArtifactInfo, ArtifactKind};

    fn one_file() -> Evidence {
        let info = ArtifactInfo {
            name: "smi.txt".into(),
            kind: ArtifactKind::NvidiaSmi,
            ranks: vec![],
            devices: vec![],
            bytes: 1,
            warnings: vec![],
        };
        Evidence { artifacts: vec![info.clone(), ArtifactInfo { name: "b.txt".into(), ..info }], ..Default::default() }
    }

    #[test]
    fn adjacent_lines_become_a_range_and_files_stay_apart() {
        let evidence = one_file();
        let at = |file, line| Provenance::line(ArtifactId(file), line, &format!("row {line}"));
        let places = [at(0, 43), at(0, 41), at(0, 42), at(0, 50), at(1, 51)];
        let found = refs(&evidence, &places, 16);
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["smi.txt:41-43", "smi.txt:50", "b.txt:51"]);
        assert_eq!(found[0].quote, "row 41\nrow 42\nrow 43");
    }

    #[test]
    fn a_place_in_a_script_brings_its_neighbours() {
        let mut evidence = one_file();
        let at = |line| Provenance::line(ArtifactId(1), line, &format!("line {line}"));
        let margins = [1, 2, 4, 5, 6, 8].map(|line| (line, format!("line {line}"))).into();
        evidence.scripts = vec![ScriptEvidence {
            at: at(1),
            frameworks: vec![],
            launchers: vec![],
            is_entry: true,
            is_whole: true,
            facts: vec![],
            margins,
        }];
        let found = refs(&evidence, &[at(3), at(7)], 16);
        let sides = |n: usize| (found[n].above.join("|"), found[n].below.join("|"));
        assert_eq!(sides(0), ("line 1|line 2".into(), "line 4|line 5".into()));
        assert_eq!(sides(1), ("line 5|line 6".into(), "line 8".into()));
        assert!(refs(&evidence, &[Provenance::line(ArtifactId(0), 3, "x")], 1)[0].above.is_empty());
    }

    #[test]
    fn the_number_of_references_is_bounded() {
        let evidence = one_file();
        let places: Vec<_> = (0..100).map(|n| Provenance::line(ArtifactId(0), n * 3 + 1, "x")).collect();
        assert_eq!(refs(&evidence, &places, 16).len(), 16);
    }
}
