//! The report as one file that needs nothing else: the same view, its style written in, no scripts.

use super::{Access, report_view};
use crate::standalone::standalone_html;
use rankscope_model::Report;

/// A whole HTML document of the report. It refers to nothing outside itself and does nothing by itself.
pub fn standalone_report_html(report: &Report) -> String {
    standalone_html(&report.run.title, &report.diagnosis.summary, || report_view(report, &Access::Export))
}
