//! Memory snapshots as a page: one rank over time by line of code, what was live at its peak, all ranks side by side
//! by call site, and how the segments are filled. Knows snapshots as they were read, not where they are kept.

mod over_time;
mod pictures;
mod segments;
mod subjects;
mod table;
mod tree;

use crate::backend::NamedSnapshot;
use crate::words;
use leptos::prelude::*;
pub use pictures::{Drawn, Picture, picture};
use rankscope_model::Report;
pub use subjects::Wanted;
use subjects::{Subjects, subjects};

/// The whole page below the bar.
pub fn snapshots_view(report: &Report, snapshots: &[NamedSnapshot], wanted: &Wanted) -> AnyView {
    let run = &report.run;
    let found = subjects(snapshots, wanted);
    let back = format!("/runs/{}", run.id);
    let body = match found {
        Some(found) => sections(&run.id, &found, wanted),
        None => view! {
            <div class="empty">
                <p><strong>"No memory snapshot in this run."</strong>" It tells which line of code holds which bytes. On every rank,"</p>
                {crate::report::code_block("torch.cuda.memory._record_memory_history()\n# after some steps:\ntorch.cuda.memory._dump_snapshot(f\"snap_rank{rank}.pickle\")")}
                <p>"and add the files to "<a href=format!("{back}#next")>"the report"</a>"."</p>
            </div>
        }
        .into_any(),
    };
    view! {
        <main id="main" class="snapshots">
            <header class="headline">
                <p class="run"><a href=back><bdi>{words::shown_line(&run.title)}</bdi></a><span>"memory snapshots"</span></p>
                <h1>{title(snapshots.len())}</h1>
            </header>
            {body}
        </main>
    }
    .into_any()
}

fn title(count: usize) -> String {
    match count {
        0 => "Snapshots".to_owned(),
        1 => "What one rank holds, line by line".to_owned(),
        n => format!("What {n} ranks hold, line by line"),
    }
}

fn sections(run: &str, found: &Subjects<'_>, wanted: &Wanted) -> AnyView {
    view! {
        <div class="stack">
            {over_time::section(run, found, wanted)}
            {tree::section(found)}
            {table::section(run, found, wanted)}
            {segments::section(run, found)}
        </div>
    }
    .into_any()
}
