//! A report in the terminal: verdict, figures, causes with their reasons, checklist, the next step, files.

use super::words::{confidence, event_line, mark, percent, places, plain, remedy_parts, speaks_of};
use rankscope_model::{Bytes, Cause, ItemStatus, Quantity, Report, Stage, Verdict};
use std::collections::HashSet;

/// What the terminal can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Colours may be used.
    pub color: bool,
    /// Columns.
    pub width: usize,
}

const FOR: &str = "     for      ";
const AGAINST: &str = "     against  ";
const DO: &str = "     do       ";
/// Ranks or devices drawn as bars; the rest is counted.
const MAX_BARS: usize = 32;
/// Columns of the longest bar.
const BAR: usize = 32;
/// Narrowest text column.
const MIN_WIDTH: usize = 40;
/// Widest text column: longer lines are hard to read.
const MAX_WIDTH: usize = 110;

/// The report as lines for a terminal.
pub fn terminal(report: &Report, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    verdict(&mut page, report);
    figures(&mut page, report);
    causes(&mut page, report);
    events(&mut page, report);
    checklist(&mut page, report);
    next(&mut page, report);
    files(&mut page, report);
    page.out
}

fn verdict(page: &mut Page, report: &Report) {
    let verdict = report.diagnosis.verdict;
    let style = match verdict {
        Verdict::Imbalance if report.diagnosis.is_by_design() => Style::Dim,
        Verdict::Imbalance | Verdict::UniformPressure => Style::Hot,
        Verdict::Balanced => Style::Good,
        Verdict::Inconclusive => Style::Dim,
    };
    let title = page.paint(Style::Bold, &page.paint(style, report.diagnosis.verdict_title()));
    page.line(&title);
    page.wrapped("", &plain(&report.diagnosis.summary));
}

fn figures(page: &mut Page, report: &Report) {
    let Some(imbalance) = &report.diagnosis.imbalance else { return };
    page.heading(&format!("{} by {}", capital(imbalance.quantity.title()), subject_word(report)));
    if let Some(peaks) = &report.figures.peaks {
        let top = peaks.bars.iter().map(|bar| bar.peak.0).max().unwrap_or(0).max(1);
        let names: Vec<String> = peaks.bars.iter().map(|bar| bar.subject.to_string()).collect();
        let values: Vec<String> = peaks.bars.iter().map(|bar| value(peaks.quantity, bar.peak)).collect();
        let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let value_width = values.iter().map(|value| value.chars().count()).max().unwrap_or(0);
        // Of more than fit, those that stand out come first: they are what the picture is for.
        let mut rows: Vec<_> = peaks.bars.iter().zip(&names).zip(&values).collect();
        if rows.len() > MAX_BARS {
            rows.sort_by_key(|((bar, _), _)| !bar.accused);
        }
        for ((bar, name), value) in rows.into_iter().take(MAX_BARS) {
            let share = bar.peak.0 as f64 / top as f64;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most BAR
            let length = (share * BAR as f64).round() as usize;
            let drawn = "█".repeat(length.max(usize::from(bar.peak.0 > 0)));
            let style = if bar.accused { Style::Hot } else { Style::Plain };
            let note = if bar.accused { "  ◆ stands out" } else { "" };
            let row = format!("  {name:<name_width$}  {value:>value_width$}  {drawn}{note}");
            let row = page.paint(style, &row);
            page.line(&row);
        }
        let more = peaks.bars.len().saturating_sub(MAX_BARS);
        if more > 0 {
            page.line(&format!("  and {more} more"));
        }
    }
    let quantity = imbalance.quantity;
    let mut facts = vec![
        format!("highest {}", value(quantity, imbalance.max_bytes)),
        format!("median {}", value(quantity, imbalance.median_bytes)),
        format!("{} above the mean", percent(imbalance.ratio)),
    ];
    facts.extend(imbalance.capacity_bytes.map(|capacity| format!("capacity {capacity}")));
    facts.extend(imbalance.opens_at.as_ref().map(|opens| format!("the gap opens {}", plain(&opens.text))));
    facts.extend(imbalance.at.as_ref().map(|at| format!("seen {}", plain(&at.text))));
    facts.extend(
        imbalance.explained_bytes.map(|bytes| format!("{} explained by the first cause", value(quantity, bytes))),
    );
    page.wrapped("  ", &facts.join(" · "));
}

fn events(page: &mut Page, report: &Report) {
    if report.diagnosis.events.is_empty() {
        return;
    }
    page.heading("What happened");
    for event in &report.diagnosis.events {
        page.wrapped("  ", &plain(&event_line(event)));
    }
}

fn causes(page: &mut Page, report: &Report) {
    if report.diagnosis.causes.is_empty() {
        return;
    }
    page.heading("Causes");
    let mut told: HashSet<&str> = HashSet::new();
    for (index, cause) in report.diagnosis.causes.iter().enumerate() {
        if index > 0 {
            page.line("");
        }
        one_cause(page, index + 1, cause, &mut told);
    }
}

/// The first cause in full. Of the others, what tells them from those above: rivals mostly share their reasons.
fn one_cause<'r>(page: &mut Page, number: usize, cause: &'r Cause, told: &mut HashSet<&'r str>) {
    let title = page.paint(Style::Bold, cause.label.title());
    let label = page.paint(Style::Dim, &format!("{}, {}", confidence(cause.confidence), cause.label));
    page.line(&format!("  {number}  {title}  {label}"));
    for (side, word, reasons) in [("why", FOR, &cause.why), ("against", AGAINST, &cause.against)] {
        let mut repeated = false;
        for (index, reason) in reasons.iter().enumerate() {
            if told.insert(reason) {
                let place = places(&cause.evidence, side, index).map(|place| format!("  [{place}]"));
                page.wrapped(word, &format!("{}{}", plain(reason), place.unwrap_or_default()));
            } else {
                repeated = true;
            }
        }
        if repeated {
            page.wrapped(word, if number == 2 { "the same as for 1" } else { "the same as above" });
        }
    }
    let (words, code) = remedy_parts(&cause.remedy);
    page.wrapped(DO, &plain(words));
    // Words that lead to the code say nothing without it.
    if number == 1 || words.trim_end().ends_with(':') {
        page.code("              ", code);
    }
}

fn checklist(page: &mut Page, report: &Report) {
    page.heading("Checklist");
    for stage in Stage::ALL {
        let entries: Vec<_> = report.diagnosis.checklist.iter().filter(|entry| entry.item.stage() == *stage).collect();
        for (index, entry) in entries.iter().enumerate() {
            let title = if index == 0 { stage.title() } else { "" };
            let style = match entry.status {
                ItemStatus::Fail => Style::Hot,
                ItemStatus::Suspect => Style::Warn,
                ItemStatus::Pass => Style::Good,
                ItemStatus::Unknown | ItemStatus::NotApplicable => Style::Dim,
            };
            let status = page.paint(style, &format!("{} {:<14}", mark(entry.status), entry.status.word()));
            page.line(&format!("  {title:<16}{status}  {}", entry.item.short_title()));
        }
    }
}

fn next(page: &mut Page, report: &Report) {
    let Some((item, collect)) = &report.next else { return };
    page.heading("Next");
    page.wrapped("  ", &format!("{} ({})", plain(&collect.what), item.short_title()));
    page.code("    ", collect.command.lines());
}

fn files(page: &mut Page, report: &Report) {
    page.heading("Files");
    for artifact in &report.diagnosis.artifacts {
        let mut facts = vec![artifact.kind.title().to_owned()];
        facts.extend(speaks_of(artifact));
        facts.push(Bytes(artifact.bytes).to_string());
        let facts = page.paint(Style::Dim, &facts.join(" · "));
        page.line(&format!("  {}  {facts}", plain(&artifact.name)));
        for warning in &artifact.warnings {
            page.wrapped("    ! ", &plain(warning));
        }
    }
}

fn subject_word(report: &Report) -> &'static str {
    let heaviest = report.diagnosis.imbalance.as_ref().and_then(|imbalance| imbalance.heaviest.first().copied());
    let first = report.figures.peaks.as_ref().and_then(|peaks| peaks.bars.first()).map(|bar| bar.subject);
    if heaviest.or(first).is_some_and(|subject| subject.rank().is_some()) { "rank" } else { "GPU" }
}

/// Tokens and samples are counts, everything else is bytes.
pub(super) fn value(quantity: Quantity, bytes: Bytes) -> String {
    match quantity {
        Quantity::BatchTokens | Quantity::BatchSamples => bytes.0.to_string(),
        _ => bytes.to_string(),
    }
}

fn capital(text: &str) -> String {
    let mut signs = text.chars();
    signs.next().map(|first| first.to_uppercase().chain(signs).collect()).unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Hot,
    Warn,
    Good,
    Code,
}

pub(super) struct Page {
    pub(super) out: String,
    color: bool,
    width: usize,
}

impl Page {
    /// An empty page for a terminal.
    pub(super) fn new(terminal: Terminal) -> Self {
        Self { out: String::new(), color: terminal.color, width: terminal.width.clamp(MIN_WIDTH, MAX_WIDTH) }
    }

    pub(super) fn paint(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Hot => "31",
            Style::Warn => "33",
            Style::Good => "32",
            Style::Code => "36",
            Style::Plain => return text.to_owned(),
        };
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// Lines of code, each kept whole and with its own indentation.
    pub(super) fn code<'l>(&mut self, start: &str, lines: impl Iterator<Item = &'l str>) {
        for line in lines {
            let code = line.trim_start();
            let indent = " ".repeat(line.len() - code.len());
            let line = self.paint(Style::Code, &format!("{start}{indent}{}", plain(code)));
            self.line(&line);
        }
    }

    pub(super) fn heading(&mut self, text: &str) {
        let text = self.paint(Style::Bold, text);
        self.out.push('\n');
        self.line(&text);
    }

    /// Text after `start`, continued below the first word.
    pub(super) fn wrapped(&mut self, start: &str, text: &str) {
        let indent = start.chars().count();
        let mut line = start.to_owned();
        let mut used = indent;
        for word in text.split_whitespace() {
            let length = word.chars().count();
            if used > indent && used + 1 + length > self.width {
                self.line(&line);
                line = " ".repeat(indent);
                used = indent;
            }
            if used > indent {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
        self.line(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_below_its_first_word() {
        let mut page = Page { out: String::new(), color: false, width: 20 };
        page.wrapped("  for  ", "one two three four a-word-that-is-longer-than-the-line");
        assert_eq!(page.out, "  for  one two three\n       four\n       a-word-that-is-longer-than-the-line\n");
    }

    #[test]
    fn colours_are_an_addition() {
        let mut page = Page { out: String::new(), color: true, width: 20 };
        assert_eq!(page.paint(Style::Hot, "x"), "\u{1b}[31mx\u{1b}[0m");
        page.color = false;
        assert_eq!(page.paint(Style::Hot, "x"), "x");
    }
}
