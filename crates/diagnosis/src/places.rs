//! Where a rank is: in a job on several nodes a claim names card and node beside each rank, because a number alone leads
//! nobody to a machine. Works on sentences, knows no rule.

use crate::case::Case;
use crate::words;
use rankscope_model::{Cause, Finding, Subject};

/// Ranks of one sentence that get their place; with more it would not be read.
const MOST: usize = 4;

/// The sentence with the place of each rank that it names, at its first mention.
pub(crate) fn named(case: &Case, text: String) -> String {
    let mut text = text;
    let mut count = 0;
    for rank in case.homes.keys() {
        let Some(place) = case.place_of(*rank).map(|place| format!(" ({place})")) else { continue };
        if count == MOST || text.contains(&place) {
            continue;
        }
        if let Some(placed) = with_place(&text, *rank, &place) {
            text = placed;
            count += 1;
        }
    }
    text
}

/// The reasons for and against each cause, as [`name_in_findings`].
pub(crate) fn name_in_causes(case: &Case, causes: &mut [Cause]) {
    if case.homes.is_empty() {
        return;
    }
    for cause in causes {
        let Cause { why, against, evidence, .. } = cause;
        for (side, reasons) in [("why", why), ("against", against)] {
            for (number, reason) in reasons.iter_mut().enumerate() {
                let key = format!("{side}.{number}");
                let of_reason = evidence.iter().filter(|reference| reference.reason.as_deref() == Some(key.as_str()));
                let files = of_reason.map(|reference| reference.artifact.as_str());
                *reason = on_node(named(case, std::mem::take(reason)), files);
            }
        }
    }
}

/// The text with the node in front, where it speaks of a card and was read of one node alone.
fn on_node<'f>(text: String, mut files: impl Iterator<Item = &'f str>) -> String {
    let node = files
        .next()
        .filter(|first| files.all(|other| other == *first))
        .and_then(|file| file.strip_suffix(".live.jsonl"));
    match node.filter(|node| text.contains("GPU") && !text.contains(node)) {
        Some(node) => format!("{node}: {text}"),
        None => text,
    }
}

/// The claims, and of those that speak of a card and are read of one node alone, that node.
pub(crate) fn name_in_findings(case: &Case, findings: &mut [Finding]) {
    if case.homes.is_empty() {
        return;
    }
    for finding in findings {
        let claim = named(case, std::mem::take(&mut finding.claim));
        let files = finding.evidence.iter().map(|reference| reference.artifact.as_str());
        finding.claim = on_node(claim, files);
    }
}

/// The text with the place behind the first mention of the subject, unless one stands there already.
fn with_place(text: &str, subject: Subject, place: &str) -> Option<String> {
    let name = subject.to_string();
    let mentions = |name: &str| {
        let whole = |(start, found): (usize, &str)| {
            let before = text.get(..start)?.chars().next_back();
            let end = start.checked_add(found.len())?;
            let after = text.get(end..)?.chars().next();
            let is_whole = ![before, after].into_iter().flatten().any(|sign| sign.is_alphanumeric() || sign == '\'');
            is_whole.then_some(end)
        };
        text.match_indices(name).find_map(whole)
    };
    let end = [mentions(&name), mentions(&words::capital(&name))].into_iter().flatten().min()?;
    let (before, after) = text.split_at_checked(end)?;
    let is_placed = after.starts_with(" (") || after.starts_with(" of ");
    (!is_placed).then(|| format!("{before}{place}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::Rank;

    #[test]
    fn the_place_stands_behind_the_first_mention_of_just_that_rank() {
        let placed = |text| with_place(text, Subject::Rank(Rank(3)), " (GPU 1 of node-b)");
        for (text, expected) in [
            (
                "rank 30 and rank 3 are full; rank 3 most.",
                "rank 30 and rank 3 (GPU 1 of node-b) are full; rank 3 most.",
            ),
            ("Rank 3 is full, and rank 3 grows.", "Rank 3 (GPU 1 of node-b) is full, and rank 3 grows."),
        ] {
            assert_eq!(placed(text).as_deref(), Some(expected));
        }
        for same in ["rank 31 is full", "rank 3 (GPU 1 of node-b) is full", "Ranks 1 and 3", "rank 3's cache"] {
            assert_eq!(placed(same), None, "{same}");
        }
    }
}
