//! Two runs side by side as text: for terminals and as Markdown.

use super::markdown::{fenced, text};
use super::terminal::{Page, Style, Terminal, value};
use super::words::plain;
use rankscope_model::{
    CauseFate, ComparedCause, ComparedPhase, ComparedRow, Comparison, Outcome, Phase, Quantity, SpreadFigures,
};
use std::fmt::Write;

/// Rows that are listed; the rest is counted.
const MAX_ROWS: usize = 64;

/// The comparison as lines for a terminal.
pub fn comparison_terminal(comparison: &Comparison, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let style = match comparison.outcome {
        Outcome::Fixed => Style::Good,
        Outcome::Partly => Style::Warn,
        Outcome::NotFixed => Style::Hot,
        Outcome::CannotTell => Style::Dim,
    };
    let title = page.paint(Style::Bold, &page.paint(style, comparison.outcome.title()));
    page.line(&title);
    page.wrapped("", &plain(&comparison.sentence));
    if let Some(quantity) = comparison.quantity.filter(|_| !comparison.rows.is_empty()) {
        page.heading(&format!("Before and after, {}", quantity.title()));
        page.line(&format!("  {:<16} {:>10} {:>10} {:>11}", "", "before", "after", "difference"));
        for row in comparison.rows.iter().take(MAX_ROWS) {
            let [before, after, difference] = cells(row, quantity);
            let note = note(row).map_or_else(String::new, |note| format!("  {note}"));
            let style = if row.head_accused { Style::Hot } else { Style::Plain };
            let line = format!("  {:<16} {before:>10} {after:>10} {difference:>11}{note}", row.subject.to_string());
            let line = page.paint(style, &line);
            page.line(&line);
        }
        if let Some(more) = comparison.rows.len().checked_sub(MAX_ROWS).filter(|more| *more > 0) {
            page.line(&format!("  and {more} more"));
        }
    }
    if comparison.phases.iter().any(|phase| phase.phase.is_some()) {
        page.heading("By phase");
        for phase in &comparison.phases {
            page.wrapped("  ", &phase_line(phase));
        }
    }
    if !comparison.causes.is_empty() {
        page.heading("What became of the causes");
        for cause in &comparison.causes {
            let style =
                if matches!(cause.fate, CauseFate::Remains | CauseFate::New) { Style::Hot } else { Style::Plain };
            let line = page.paint(style, &format!("  {}", cause_line(cause)));
            page.line(&line);
        }
    }
    if !comparison.doubts.is_empty() {
        page.heading("In doubt");
        for doubt in &comparison.doubts {
            page.wrapped("  ! ", &plain(&doubt.text));
        }
    }
    if !comparison.collect.is_empty() {
        page.heading("Would settle it");
        for collect in comparison.collect.iter().take(2) {
            page.wrapped("  ", &plain(&collect.what));
            page.code("    ", collect.command.lines());
        }
    }
    page.out
}

/// The comparison as Markdown, one heading below the report's own.
pub fn comparison_markdown(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(out, "## Compared with the run before\n");
    let _ = writeln!(out, "**{}.** {}\n", comparison.outcome.title(), text(&comparison.sentence));
    if let Some(quantity) = comparison.quantity.filter(|_| !comparison.rows.is_empty()) {
        let _ = writeln!(out, "| {} | before | after | difference | |\n|---|---:|---:|---:|---|", quantity.title());
        for row in comparison.rows.iter().take(MAX_ROWS) {
            let [before, after, difference] = cells(row, quantity);
            let note = note(row).unwrap_or_default();
            let _ = writeln!(out, "| {} | {before} | {after} | {difference} | {note} |", row.subject);
        }
        out.push('\n');
    }
    for phase in comparison.phases.iter().filter(|_| comparison.phases.iter().any(|phase| phase.phase.is_some())) {
        let _ = writeln!(out, "- {}", text(&phase_line(phase)));
    }
    for cause in &comparison.causes {
        let _ = writeln!(out, "- {}", text(&cause_line(cause)));
    }
    for doubt in &comparison.doubts {
        let _ = writeln!(out, "- In doubt: {}", text(&doubt.text));
    }
    for collect in comparison.collect.iter().take(2) {
        let _ = writeln!(out, "\n{}\n", text(&collect.what));
        fenced(&mut out, "sh", collect.command.lines());
    }
    out
}

fn cells(row: &ComparedRow, quantity: Quantity) -> [String; 3] {
    let side = |bytes: Option<rankscope_model::Bytes>| bytes.map_or_else(|| "-".to_owned(), |b| value(quantity, b));
    let difference = row.difference().map_or_else(
        || "-".to_owned(),
        |n| match n {
            0 => "0".to_owned(),
            n => {
                let sign = if n > 0 { '+' } else { '-' };
                format!("{sign}{}", value(quantity, rankscope_model::Bytes(n.unsigned_abs())))
            }
        },
    );
    [side(row.base), side(row.head), difference]
}

fn note(row: &ComparedRow) -> Option<&'static str> {
    match (row.base_accused, row.head_accused) {
        (true, true) => Some("◆ still stands out"),
        (true, false) => Some("✓ no longer stands out"),
        (false, true) => Some("◆ stands out now"),
        (false, false) => None,
    }
}

fn phase_line(phase: &ComparedPhase) -> String {
    let word = match phase.phase {
        None => "whole run",
        Some(Phase::Train) => "training",
        Some(Phase::Eval) => "validation",
        Some(Phase::Init) => "initialisation",
        Some(Phase::Save) => "saving",
        Some(Phase::Resume) => "loading",
    };
    let side = |figures: &Option<SpreadFigures>| match figures {
        None => "not shown".to_owned(),
        Some(figures) if figures.is_even() => "even".to_owned(),
        Some(figures) => {
            let first = figures.heaviest.first().map(ToString::to_string).unwrap_or_default();
            format!("{first} +{}", value(phase.quantity, figures.gap))
        }
    };
    let answer = phase.outcome.map_or("seen once only", Outcome::title).to_lowercase();
    format!("{word} ({}): {} → {}: {answer}", phase.quantity.title(), side(&phase.base), side(&phase.head))
}

fn cause_line(cause: &ComparedCause) -> String {
    let figure = |confidence: f64| if confidence > 0.0 { format!("{confidence:.2}") } else { "not named".to_owned() };
    let (before, after) = (figure(cause.base_confidence), figure(cause.head_confidence));
    format!("{}: {} ({before} → {after})", cause.fate.title(), cause.label.title())
}
