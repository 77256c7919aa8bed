//! Reports that hold nothing but what a test puts into them, and two of them compared.

use crate::backend::ComparedReports;
use rankscope_diagnosis::{Policy, Side, compare};
use rankscope_model::{DIAGNOSIS_FORMAT, Diagnosis, Figures, Report, RunInfo, UnixMicros, Verdict};

/// Empty.
pub fn report() -> Report {
    Report {
        run: RunInfo { id: "1".into(), title: "a run".into(), created_at: UnixMicros(0) },
        version: 1,
        diagnosed_at: UnixMicros(0),
        diagnosis: Diagnosis {
            format: DIAGNOSIS_FORMAT.into(),
            verdict: Verdict::Inconclusive,
            summary: String::new(),
            imbalance: None,
            causes: vec![],
            checklist: vec![],
            findings: vec![],
            events: vec![],
            artifacts: vec![],
        },
        figures: Figures::default(),
        next: None,
    }
}

/// Held against each other as the server does it.
pub fn compared(base: Report, head: Report) -> ComparedReports {
    let comparison = compare(Side::from(&base), Side::from(&head), &Policy::default());
    ComparedReports { base, head, comparison }
}
