//! A report with its comparison as one file that needs nothing else.

use super::{Stand, answer, details};
use crate::backend::ComparedReports;
use crate::report::{Access, report_view};
use crate::standalone::standalone_html;
use leptos::prelude::*;

/// A whole HTML document: the comparison first, then the report of the run after.
pub fn standalone_comparison_html(compared: &ComparedReports) -> String {
    standalone_html(&compared.head.run.title, &compared.comparison.sentence, || {
        view! {
            <section class="compared-part" aria-label="Compared with the run before">
                {answer(compared, Stand::File)}
                <div class="main">{details(compared)}</div>
            </section>
            {report_view(&compared.head, &Access::Export)}
        }
        .into_any()
    })
}
