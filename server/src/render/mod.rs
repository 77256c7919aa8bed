//! A report as text: for terminals and as Markdown. Knows the model only; the page is the app's.

mod comparison;
mod markdown;
mod terminal;
mod words;

pub use comparison::{comparison_markdown, comparison_terminal};
pub use markdown::markdown;
pub use terminal::{Terminal, terminal};
pub use words::plain;

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::*;

    fn reference(line: u64, end: u64, reason: &str) -> EvidenceRef {
        EvidenceRef {
            artifact: "nvidia-smi.txt".into(),
            line: Some(line),
            line_end: Some(end),
            reason: Some(reason.into()),
            ..EvidenceRef::default()
        }
    }

    fn cause(label: CauseLabel, confidence: f64, against: &str) -> Cause {
        Cause {
            label,
            confidence,
            ranks: vec![0],
            why: vec!["Three processes also hold 497 MiB each on GPU 0.".into()],
            against: vec![against.into()],
            remedy: "Bind every process to its own GPU first.\n\n  rank = 0\n+ torch.cuda.set_device(rank)".into(),
            evidence: vec![reference(32, 34, "why.0"), reference(3, 3, "against.0")],
        }
    }

    fn report() -> Report {
        let bar = |device, mib| PeakBar {
            subject: Subject::Device(device),
            peak: Bytes::from_mib(mib),
            accused: device == 0,
        };
        let entry = |item: Item, status| ChecklistEntry {
            stage: item.stage().number(),
            item,
            status,
            findings: vec![],
            collect: vec![],
        };
        let artifact = |name: &str, kind, warnings: &[&str]| ArtifactInfo {
            name: name.into(),
            kind,
            ranks: vec![],
            devices: vec![0, 1],
            bytes: 3362,
            warnings: warnings.iter().map(|warning| (*warning).into()).collect(),
        };
        let capacity = Some(Bytes(40 * GIB));
        Report {
            run: RunInfo { id: "1".into(), title: "My <run>".into(), created_at: UnixMicros(0) },
            version: 2,
            diagnosed_at: UnixMicros(0),
            diagnosis: Diagnosis {
                events: vec![],
                format: DIAGNOSIS_FORMAT.into(),
                verdict: Verdict::Imbalance,
                summary: "GPU 0 is fuller because the other processes also opened a context on it.".into(),
                imbalance: Some(Imbalance {
                    quantity: Quantity::DeviceUsed,
                    ratio: 0.32,
                    max_bytes: Bytes::from_mib(25_322),
                    median_bytes: Bytes::from_mib(12_809),
                    mean_bytes: Bytes::from_mib(19_065),
                    heaviest: vec![Subject::Device(0)],
                    compared: 2,
                    capacity_bytes: capacity,
                    opens_at: Some(OpensAt { step: Some(12), phase: None, text: "at step 12".into() }),
                    at: None,
                    explained_bytes: None,
                    by_design: false,
                }),
                causes: vec![
                    cause(CauseLabel::CtxNoSetDevice, 0.61, "A checkpoint leaves the same rows."),
                    cause(CauseLabel::CkptNoMapLocation, 0.2, "The script loads to the CPU\u{1b}[31m | not here."),
                ],
                checklist: vec![
                    entry(Item::DeviceVisibility, ItemStatus::Fail),
                    entry(Item::DistributedInit, ItemStatus::Suspect),
                    entry(Item::DistributedSampler, ItemStatus::Pass),
                    entry(Item::OptimizerState, ItemStatus::NotApplicable),
                    entry(Item::Verified, ItemStatus::Unknown),
                ],
                findings: vec![],
                artifacts: vec![
                    artifact("nvidia-smi.txt", ArtifactKind::NvidiaSmi, &[]),
                    artifact("../a_b.gz\n", ArtifactKind::Unreadable, &["it ends early"]),
                ],
            },
            figures: Figures {
                peaks: Some(Peaks {
                    quantity: Quantity::DeviceUsed,
                    bars: vec![bar(0, 25_322), bar(1, 12_809)],
                    median: Bytes::from_mib(12_809),
                    capacity,
                    per_node: None,
                    at: None,
                }),
                ..Figures::default()
            },
            next: Some((
                Item::DeviceVisibility,
                Collect { what: "The moment at which the rows appear.".into(), command: "nvidia-smi\n  -l 1".into() },
            )),
        }
    }

    #[test]
    fn a_report_in_a_narrow_terminal() {
        insta::assert_snapshot!(terminal(&report(), Terminal { color: false, width: 72 }));
    }

    #[test]
    fn a_report_as_markdown() {
        insta::assert_snapshot!(markdown(&report()));
    }
}
