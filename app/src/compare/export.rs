//! A report with its comparison as one file that needs nothing else.

use super::{Stand, answer, details};
use crate::backend::ComparedReports;
use crate::document::STYLE;
use crate::report::{Access, report_view};
use crate::words;
use leptos::prelude::*;

/// A whole HTML document: the comparison first, then the report of the run after.
pub fn standalone_comparison_html(compared: &ComparedReports) -> String {
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
                    <title>{words::shown_line(&compared.head.run.title)}</title>
                    <meta name="description" content=words::shown_line(&compared.comparison.sentence)/>
                    <style inner_html=STYLE></style>
                </head>
                <body class="standalone">
                    <section class="compared-part" aria-label="Compared with the run before">
                        {answer(compared, Stand::File)}
                        <div class="main">{details(compared)}</div>
                    </section>
                    {report_view(&compared.head, &Access::Export)}
                </body>
            </html>
        }
        .to_html()
    });
    owner.unset_with_forced_cleanup();
    format!("<!DOCTYPE html>{html}\n")
}
