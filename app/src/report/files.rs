//! The files of a run: what each was taken for, what it speaks of, and the lines that the report quotes.

use super::Access;
use super::places::{Places, Quote, file_anchor};
use crate::icons;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{ArtifactInfo, ArtifactKind, Bytes, Report};

/// The files in the order of upload; of very many those that are quoted or have warnings come first.
pub fn files(report: &Report, access: &Access, places: &Places<'_>) -> AnyView {
    let raw = access.raw_root(report);
    let artifacts = &report.diagnosis.artifacts;
    let lines = artifacts
        .iter()
        .enumerate()
        .filter(|(n, _)| places.shows(*n))
        .map(|(n, file)| {
            let address = raw.as_ref().map(|root| format!("{root}/artifacts/{n}"));
            line(n, file, address, places)
        })
        .collect_view();
    let left_out = (0..artifacts.len()).filter(|n| !places.shows(*n)).count();
    view! {
        <section class="card files" id="files" aria-labelledby="files-title">
            <h2 id="files-title">"Files" <span>"what each was taken for, and the lines quoted above"</span></h2>
            <ul>{lines}</ul>
            {access.cut(left_out, "file")}
        </section>
    }
    .into_any()
}

/// What stands for a quote where the file holds no lines.
fn no_quote(kind: ArtifactKind) -> &'static str {
    match kind {
        // The page of the snapshots is the owner's, and this line is read in shares and files too.
        ArtifactKind::TorchSnapshot => "a binary file: its call sites and sizes were read; there is no line to quote",
        _ => "read as a whole; there is no single line to quote",
    }
}

/// Lines that mean nothing once they are wrapped: rows of tables, and code. They are read by scrolling sideways.
fn keeps_lines(kind: ArtifactKind, quotes: &[Quote<'_>]) -> bool {
    let is_of_columns = matches!(
        kind,
        ArtifactKind::NvidiaSmi
            | ArtifactKind::NvidiaSmiCsv
            | ArtifactKind::NvidiaSmiMonitor
            | ArtifactKind::GpuTopology
            | ArtifactKind::Gpustat
            | ArtifactKind::Nvitop
            | ArtifactKind::RocmSmi
            | ArtifactKind::ProcessList
            | ArtifactKind::PythonScript
            | ArtifactKind::LaunchScript
    );
    // A log may hold a table, too.
    let is_row = |line: &str| line.trim_start().starts_with(['|', '+']);
    is_of_columns || quotes.iter().any(|quote| quote.is_of_script() || quote.text.lines().any(is_row))
}

/// Blanks in front of every line that the quotes of a script show: they are left out, so that indentation stays
/// comparable between its quotes.
fn common_indent(quotes: &[Quote<'_>]) -> usize {
    let lines = quotes.iter().filter(|quote| quote.is_of_script()).flat_map(|quote| {
        quote.above.iter().map(String::as_str).chain(quote.text.lines()).chain(quote.below.iter().map(String::as_str))
    });
    let indents = lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.len() - line.trim_start_matches([' ', '\t']).len());
    indents.min().unwrap_or(0)
}

/// The quoted text and, in a script, what stands above and below it.
fn excerpt(quote: &Quote<'_>, indent: usize) -> (String, String, String) {
    if !quote.is_of_script() {
        return (String::new(), words::shown(quote.text.trim()), String::new());
    }
    let blank = |line: &&str| line.trim().is_empty();
    let above: Vec<&str> = quote.above.iter().map(String::as_str).skip_while(blank).collect();
    let mut below: Vec<&str> = quote.below.iter().map(String::as_str).collect();
    while below.last().is_some_and(blank) {
        below.pop();
    }
    let block = |lines: Vec<&str>| {
        let lines: Vec<_> =
            lines.into_iter().map(|line| words::shown(line.get(indent..).unwrap_or_default())).collect();
        lines.join("\n")
    };
    (block(above), block(quote.text.lines().collect()), block(below))
}

fn line(n: usize, file: &ArtifactInfo, raw: Option<String>, places: &Places<'_>) -> AnyView {
    let name = words::shown_line(&file.name);
    let speaks_of = words::speaks_of(file);
    let unread = file.kind == ArtifactKind::Unreadable;
    let warnings = file
        .warnings
        .iter()
        .map(|warning| view! { <p class="warning">{icons::warning()}<span>{words::shown(warning)}</span></p> })
        .collect_view();
    let (quotes, more) = places.quotes(n);
    let folded = (!more.is_empty()).then(|| {
        let word = format!("and {} quoted", words::count(more.len(), "more place"));
        let label = format!("Further lines quoted of {name}");
        view! { <details class="exact"><summary>{word}</summary>{quoted(file.kind, more, label)}</details> }
    });
    view! {
        <li class="file" id=file_anchor(n)>
            <div class="file-head">
                <strong class="file-name"><bdi>{name.clone()}</bdi></strong>
                <span class="kind" class:warn=unread>{file.kind.title()}</span>
                {(!speaks_of.is_empty()).then(|| view! { <span class="dim">{speaks_of}</span> })}
                <span class="file-size">{Bytes(file.bytes).to_string()}</span>
                {raw.map(|href| view! { <a href=href download=name.clone() aria-label=format!("Download {name}")>"raw"</a> })}
            </div>
            {warnings}
            {(!quotes.is_empty()).then(|| quoted(file.kind, quotes, format!("Lines quoted of {name}")))}
            {folded}
        </li>
    }
    .into_any()
}

/// Some quotes of a file as a list; `label` names it where it scrolls.
fn quoted(kind: ArtifactKind, quotes: Vec<Quote<'_>>, label: String) -> AnyView {
    let indent = common_indent(&quotes);
    let kept = keeps_lines(kind, &quotes);
    let quotes = quotes
        .into_iter()
        .map(|quote| {
            let href = format!("#{}", quote.id);
            let (above, text, below) = excerpt(&quote, indent);
            let beside = |lines: String| (!lines.is_empty()).then(|| view! { <code class="beside">{lines}</code> });
            view! {
                <li id=quote.id>
                    {beside(above)}
                    <a class="place" href=href>{quote.place}</a>
                    {if text.is_empty() {
                        view! { <span class="dim">{no_quote(kind)}</span> }.into_any()
                    } else {
                        view! { <code>{text}</code> }.into_any()
                    }}
                    {beside(below)}
                </li>
            }
        })
        .collect_view();
    if !kept {
        return view! { <ol class="quotes">{quotes}</ol> }.into_any();
    }
    view! {
        <div class="sideways" tabindex="0" role="region" aria-label=label>
            <ol class="quotes kept">{quotes}</ol>
        </div>
    }
    .into_any()
}
