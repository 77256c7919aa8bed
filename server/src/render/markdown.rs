//! A report as Markdown, for an issue or a chat. Strangers' text is escaped: it stays text.

use super::words::{confidence, event_line, mark, percent, places, plain, remedy_parts, speaks_of};
use rankscope_model::{Bytes, Report};
use std::fmt::Write;

/// The report as `CommonMark` with tables.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    let diagnosis = &report.diagnosis;
    // Writing into a String cannot fail.
    let _ = writeln!(out, "# {}\n", text(&report.run.title));
    let _ = writeln!(out, "**{}.** {}\n", diagnosis.verdict_title(), text(&diagnosis.summary));
    figures(&mut out, report);
    causes(&mut out, report);
    events(&mut out, report);

    let _ = writeln!(out, "## Checklist\n\n| stage | item | status |\n|---|---|---|");
    for entry in &diagnosis.checklist {
        let (stage, title) = (entry.item.stage().title(), entry.item.title());
        let _ = writeln!(out, "| {stage} | {title} | {} {} |", mark(entry.status), entry.status);
    }
    if let Some((item, collect)) = &report.next {
        let _ = writeln!(out, "\n## Next\n\n{} ({})\n", text(&collect.what), item.short_title());
        fenced(&mut out, "sh", collect.command.lines());
    }

    let _ = writeln!(out, "\n## Files\n\n| file | taken for | speaks of | size |\n|---|---|---|---|");
    for artifact in &diagnosis.artifacts {
        let (kind, bytes) = (artifact.kind.title(), Bytes(artifact.bytes));
        let subjects = speaks_of(artifact).unwrap_or_default();
        let _ = writeln!(out, "| {} | {kind} | {subjects} | {bytes} |", text(&artifact.name));
    }
    let warned = || {
        diagnosis.artifacts.iter().flat_map(|artifact| artifact.warnings.iter().map(move |warning| (artifact, warning)))
    };
    if warned().next().is_some() {
        out.push('\n');
    }
    for (artifact, warning) in warned() {
        let _ = writeln!(out, "- {}: {}", text(&artifact.name), text(warning));
    }
    let _ = writeln!(out, "\nDiagnosis {} of this run, by Rankscope {}.", report.version, env!("CARGO_PKG_VERSION"));
    out
}

fn figures(out: &mut String, report: &Report) {
    let Some(imbalance) = &report.diagnosis.imbalance else { return };
    let _ = writeln!(out, "| {} | |\n|---|---|", imbalance.quantity.title());
    let heaviest: Vec<String> = imbalance.heaviest.iter().map(ToString::to_string).collect();
    if !heaviest.is_empty() {
        let word = if imbalance.by_design { "more by design" } else { "stands out" };
        let _ = writeln!(out, "| {word} | {} |", heaviest.join(", "));
    }
    let _ = writeln!(out, "| highest | {} |", imbalance.max_bytes);
    let _ = writeln!(out, "| median | {} |", imbalance.median_bytes);
    let _ = writeln!(out, "| above the mean | {} |", percent(imbalance.ratio));
    if let Some(capacity) = imbalance.capacity_bytes {
        let _ = writeln!(out, "| capacity | {capacity} |");
    }
    if let Some(opens) = &imbalance.opens_at {
        let _ = writeln!(out, "| the gap opens | {} |", text(&opens.text));
    }
    if let Some(at) = &imbalance.at {
        let _ = writeln!(out, "| seen | {} |", text(&at.text));
    }
    out.push('\n');
}

fn events(out: &mut String, report: &Report) {
    if report.diagnosis.events.is_empty() {
        return;
    }
    out.push_str("## What happened\n\n");
    for event in &report.diagnosis.events {
        let _ = writeln!(out, "- {}", text(&event_line(event)));
    }
    out.push('\n');
}

fn causes(out: &mut String, report: &Report) {
    if report.diagnosis.causes.is_empty() {
        return;
    }
    out.push_str("## Causes\n\n");
    for (index, cause) in report.diagnosis.causes.iter().enumerate() {
        let (title, label, confidence) = (cause.label.title(), cause.label, confidence(cause.confidence));
        let _ = writeln!(out, "### {}. {title}\n\n`{label}`, {confidence}\n", index + 1);
        for (side, word, reasons) in [("why", "For", &cause.why), ("against", "Against", &cause.against)] {
            for (number, reason) in reasons.iter().enumerate() {
                let place = places(&cause.evidence, side, number).map(|place| format!(" ({})", text(&place)));
                let _ = writeln!(out, "- {word}: {}{}", text(reason), place.unwrap_or_default());
            }
        }
        let (words, code) = remedy_parts(&cause.remedy);
        let _ = writeln!(out, "\n{}\n", text(words));
        fenced(out, "diff", code);
        out.push('\n');
    }
}

pub(super) fn fenced<'a>(out: &mut String, language: &str, lines: impl Iterator<Item = &'a str>) {
    let lines: Vec<&str> = lines.collect();
    if lines.is_empty() {
        return;
    }
    // A fence must be longer than any inside it.
    let longest = lines.iter().map(|line| line.chars().take_while(|sign| *sign == '`').count()).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(out, "{fence}{language}");
    for line in lines {
        // Indentation is part of code.
        let code = line.trim_start();
        let indent = line.get(..line.len() - code.len()).unwrap_or_default();
        let _ = writeln!(out, "{indent}{}", plain(code));
    }
    let _ = writeln!(out, "{fence}");
}

/// One line in which nothing is markup, and which calls nobody where it is posted.
pub(super) fn text(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    let mut before = ' ';
    for sign in plain(raw).chars() {
        let in_word = before.is_alphanumeric();
        before = sign;
        match sign {
            // An escaped @ still calls; one that is followed by a space of no width does not.
            '@' if !in_word => safe.push_str("@\u{200b}"),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                safe.push('\\');
                safe.push(sign);
            }
            sign => safe.push(sign),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_text_stays_text() {
        assert_eq!(text("<b>|a|\n`x` [l](u)"), "&lt;b>\\|a\\| \\`x\\` \\[l\\](u)");
        assert_eq!(text("@team see a@b.c"), "@\u{200b}team see a@b.c");
        assert_eq!(text("a\u{202e}b"), "ab");
        let mut out = String::new();
        fenced(&mut out, "sh", ["```", "x"].into_iter());
        assert_eq!(out, "````sh\n```\nx\n````\n");
    }
}
