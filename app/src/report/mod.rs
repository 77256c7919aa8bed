//! The report as a page: one view over a [`Report`], for its owner, behind a share and as an exported file.
//! Knows what a report holds, not where it is kept.

mod causes;
mod charts;
mod checklist;
mod code;
mod events;
mod export;
mod files;
mod headline;
mod manage;
mod moment;
mod next;
mod places;
mod share;
mod shown;

use crate::standing::Checklist;
use crate::words;
pub use charts::{broad_figure, figure};
pub use code::{code_block, copy_button, remedy};
pub use export::standalone_report_html;
pub use leptos::prelude::*;
pub use places::Places;
use rankscope_model::{ChecklistEntry, Finding, ItemNote, Report, ShareInfo, Verdict};
pub use shown::Shown;

/// Who looks at the report; decides what can be done beside reading.
pub enum Access {
    /// Its owner: everything.
    Owner(Owned),
    /// A visitor with a share's token: reading and zooming.
    Shared {
        /// The token in the page's address.
        token: String,
        /// Files can be downloaded as they were uploaded.
        raw_files: bool,
        /// How much is shown, and in which order.
        shown: Shown,
    },
    /// A file on its own: reading.
    Export,
}

/// What the owner's page needs beside the report.
pub struct Owned {
    /// The run's shares, newest first.
    pub shares: Vec<ShareInfo>,
    /// Id and token of the share made just now.
    pub new_share: Option<(String, String)>,
    /// The newest version of the run's report.
    pub newest: u32,
    /// For the whole address of a share.
    pub base_url: String,
    /// How much is shown, and in which order.
    pub shown: Shown,
    /// What people say of the checklist, oldest first.
    pub notes: Vec<ItemNote>,
    /// The closing item as a comparison with the run after the fix decides it.
    pub proof: Option<Box<(ChecklistEntry, Finding)>>,
    /// Stated beside the place to drop more evidence.
    pub max_file_bytes: u64,
    /// Stated beside the place to drop more evidence.
    pub max_request_bytes: u64,
}

impl Access {
    /// Start of the addresses from which a zoomed chart and its values are read; `None` for a file on its own.
    fn data_root(&self, report: &Report) -> Option<String> {
        match self {
            Self::Owner(_) => Some(format!("/api/v1/runs/{}", report.run.id)),
            Self::Shared { token, .. } => Some(format!("/r/{token}")),
            Self::Export => None,
        }
    }

    /// Start of the addresses of files as they were uploaded; `None` where they are not for this visitor.
    fn raw_root(&self, report: &Report) -> Option<String> {
        match self {
            Self::Shared { raw_files: false, .. } => None,
            _ => self.data_root(report),
        }
    }

    /// What the reader chose; `None` for a file on its own, where nothing can be chosen.
    fn shown(&self) -> Option<&Shown> {
        match self {
            Self::Owner(owned) => Some(&owned.shown),
            Self::Shared { shown, .. } => Some(shown),
            Self::Export => None,
        }
    }

    /// Long lists are shown whole.
    fn whole(&self) -> bool {
        self.shown().is_some_and(|shown| shown.whole)
    }

    /// The line under a list that was cut: how much is missing, and where it is.
    fn cut(&self, left_out: usize, what: &str) -> Option<AnyView> {
        (left_out > 0).then(|| {
            let more = words::count(left_out, what);
            match self.shown() {
                None => {
                    view! { <p class="cut dim">{format!("{more} not shown; the JSON of the report has them.")}</p> }
                        .into_any()
                }
                Some(shown) => {
                    let all = Shown { whole: true, ..shown.clone() }.query();
                    view! { <p class="cut dim">{format!("{more} not shown. ")}<a href=all>"Show everything"</a></p> }
                        .into_any()
                }
            }
        })
    }
}

/// Other versions that the foot of a report leads to.
const LINKED_VERSIONS: usize = 12;

/// The whole report, from headline to files.
pub fn report_view(report: &Report, access: &Access) -> AnyView {
    let places = Places::of(&report.diagnosis).capped(access.whole());
    let owned = match access {
        Access::Owner(owned) => Some(owned),
        Access::Shared { .. } | Access::Export => None,
    };
    let (notes, proof) = owned.map_or((&[][..], None), |owned| (&owned.notes[..], owned.proof.as_deref()));
    let standing = Checklist::new(report, notes, proof);
    // Where nothing is sure, what would settle it is the content, and stands where the cause would.
    let open = report.diagnosis.verdict == Verdict::Inconclusive;
    let (next_in_main, next_aside) = if open {
        (Some(next::next(report, &standing, owned)), None)
    } else {
        (None, Some(next::next(report, &standing, owned)))
    };
    view! {
        <main id="main" class="report">
            {owned.and_then(|owned| old_version(report, owned))}
            {headline::headline(report)}
            <div class="cols">
                <div class="main">
                    {causes::causes(&report.diagnosis, &places)}
                    {next_in_main}
                    {events::events(report, access, &places)}
                    {charts::charts(report, access, &places)}
                    {files::files(report, access, &places)}
                </div>
                <div class="side">
                    {next_aside}
                    {checklist::checklist(&report.run.id, &standing, &places, owned.is_some())}
                    {owned.map(|owned| share::share(report, owned))}
                    {owned.is_some().then(|| share::exports(report))}
                    {owned.and_then(|_| manage::manage(report))}
                </div>
            </div>
            {footer(report, owned)}
        </main>
    }
    .into_any()
}

/// Says that this is not the newest diagnosis, and leads to it.
fn old_version(report: &Report, owned: &Owned) -> Option<AnyView> {
    (report.version < owned.newest).then(|| {
        view! {
            <p class="old-version" role="note">
                {crate::icons::warning()}
                <span>
                    {format!("This is diagnosis {} of {}, as it was made {}. ", report.version, owned.newest, crate::words::time(report.diagnosed_at))}
                    <a href=format!("/runs/{}", report.run.id)>"Show the newest"</a>
                </span>
            </p>
        }
        .into_any()
    })
}

fn footer(report: &Report, owned: Option<&Owned>) -> AnyView {
    let when = crate::words::time(report.diagnosed_at);
    let others = owned.filter(|owned| owned.newest > 1).map(|owned| {
        let links = (1..=owned.newest)
            .rev()
            .filter(|version| *version != report.version)
            .take(LINKED_VERSIONS)
            .enumerate()
            .map(|(place, version)| {
                let address = if version == owned.newest {
                    format!("/runs/{}", report.run.id)
                } else {
                    format!("/runs/{}?version={version}", report.run.id)
                };
                let between = if place == 0 { " " } else { ", " };
                view! { {between} <a href=address>{format!("diagnosis {version}")}</a> }
            })
            .collect_view();
        view! { <span class="versions">" Others of this run:"{links}</span> }
    });
    view! {
        <footer class="made">
            {format!("Diagnosis {} of this run, made {when}. Sizes in binary units: 1 GiB = 1024 MiB.", report.version)}
            {others}
        </footer>
    }
    .into_any()
}
