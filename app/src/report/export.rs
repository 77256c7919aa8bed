//! The report as one file that needs nothing else: the same view, its style written in, no scripts.

use super::{Access, report_view};
use crate::document::STYLE;
use crate::words;
use leptos::prelude::*;
use rankscope_model::Report;

/// A whole HTML document of the report. It refers to nothing outside itself and does nothing by itself.
pub fn standalone_report_html(report: &Report) -> String {
    let owner = Owner::new_root(None);
    let html = owner.with(|| {
        view! {
            <html lang="en">
                <head>
                    <meta charset="utf-8"/>
                    <meta name="viewport" content="width=device-width, initial-scale=1"/>
                    <meta name="color-scheme" content="light dark"/>
                    <meta name="robots" content="noindex"/>
                    <meta name="generator" content="Rankscope"/>
                    <title>{words::shown_line(&report.run.title)}</title>
                    <meta name="description" content=words::shown_line(&report.diagnosis.summary)/>
                    <style inner_html=STYLE></style>
                </head>
                <body class="standalone">{report_view(report, &Access::Export)}</body>
            </html>
        }
        .to_html()
    });
    owner.unset_with_forced_cleanup();
    format!("<!DOCTYPE html>{html}\n")
}
