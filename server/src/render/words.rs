//! Words that both text forms share.

use crate::visible::bends;
use rankscope_model::{ArtifactInfo, EvidenceRef, ItemStatus, RunEvent};
use std::fmt::Write;

/// Text of strangers as one harmless line: no control characters, so no terminal obeys it and no layout breaks, and no
/// marks that make it read as another text.
pub fn plain(text: &str) -> String {
    let shown = text.chars().filter(|sign| !bends(*sign));
    shown.map(|sign| if sign.is_control() { ' ' } else { sign }).collect::<String>().trim().to_owned()
}

/// `14:03:10  GPU 3: Xid 79 (2 times, last at 14:05:12), node-a.live.jsonl:17`: an event as a line.
pub fn event_line(event: &RunEvent) -> String {
    let times = event.repeated().map_or_else(String::new, |repeated| format!(" ({repeated})"));
    format!("{}  {}{times}, {}", event.at.clock(), event.text.trim_end_matches('.'), event.evidence)
}

/// A mark that tells the states apart without colour.
pub fn mark(status: ItemStatus) -> char {
    match status {
        ItemStatus::Fail => '✗',
        ItemStatus::Suspect => '!',
        ItemStatus::Pass => '✓',
        ItemStatus::Unknown => '?',
        ItemStatus::NotApplicable => '–',
    }
}

/// Places that support reason `number` of `side` (`why` or `against`), without repetitions, a few at most.
pub fn places(evidence: &[EvidenceRef], side: &str, number: usize) -> Option<String> {
    const SHOWN: usize = 4;
    let reason = format!("{side}.{number}");
    let mut places: Vec<String> = Vec::new();
    for reference in evidence.iter().filter(|reference| reference.reason.as_deref() == Some(&reason)) {
        let place = plain(&reference.to_string());
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let more = places.len().saturating_sub(SHOWN);
    places.truncate(SHOWN);
    let mut text = places.join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more"); // writing into a String cannot fail
    }
    (!text.is_empty()).then_some(text)
}

/// What a file speaks of: `ranks 0 to 7`, `GPUs 0, 2`.
pub fn speaks_of(artifact: &ArtifactInfo) -> Option<String> {
    let ranks = numbers(&artifact.ranks)
        .map(|list| format!("{} {list}", if artifact.ranks.len() == 1 { "rank" } else { "ranks" }));
    let devices = numbers(&artifact.devices)
        .map(|list| format!("{} {list}", if artifact.devices.len() == 1 { "GPU" } else { "GPUs" }));
    match (ranks, devices) {
        (Some(ranks), Some(devices)) => Some(format!("{ranks}; {devices}")),
        (one, other) => one.or(other),
    }
}

fn numbers(list: &[u32]) -> Option<String> {
    let (last, before) = list.split_last()?;
    let is_run = list.windows(2).all(|pair| matches!(pair, [a, b] if a.checked_add(1) == Some(*b)));
    Some(match before {
        [] => last.to_string(),
        [first, _, ..] if is_run => format!("{first} to {last}"),
        _ => format!("{} and {last}", before.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    })
}

/// A share of one as a whole percentage.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A confidence as the pages write it.
pub fn confidence(value: f64) -> String {
    format!("confidence {value:.2}")
}

/// A remedy's sentences and its code lines, which stand after a blank line.
pub fn remedy_parts(remedy: &str) -> (&str, impl Iterator<Item = &str>) {
    let (words, code) = remedy.split_once("\n\n").unwrap_or((remedy, ""));
    (words.trim(), code.lines())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_text_cannot_command_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mred\u{7}\nb"), "a [31mred  b");
        assert_eq!(plain("log\u{202e}txt.exe\u{2066}"), "logtxt.exe");
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        for (list, words) in [(&[3][..], "3"), (&[0, 1], "0 and 1"), (&[0, 1, 2], "0 to 2"), (&[0, 2, 5], "0, 2 and 5")]
        {
            assert_eq!(numbers(list).as_deref(), Some(words));
        }
        assert_eq!(numbers(&[]), None);
    }

    #[test]
    fn places_are_short_and_unique() {
        let reference = |line| EvidenceRef {
            artifact: "a.txt".into(),
            line: Some(line),
            reason: Some("why.0".into()),
            ..EvidenceRef::default()
        };
        let evidence: Vec<_> = [1, 1, 2, 3, 4, 5, 6].map(reference).into();
        assert_eq!(places(&evidence, "why", 0).as_deref(), Some("a.txt:1, a.txt:2, a.txt:3, a.txt:4 and 2 more"));
        assert_eq!(places(&evidence, "why", 1), None);
    }
}
