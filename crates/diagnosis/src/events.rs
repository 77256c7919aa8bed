//! What happened to cards, drivers and ranks while a job was watched: in order of time, what is told again counted. Names
//! no cause: a card that was lost explains an end, not why it was full.

use crate::case::Case;
use crate::words;
use rankscope_model::{
    ArtifactId, DeviceEvent, LiveStateKind, RunEvent, SeriesAxis, Subject, Timeline, TimelineMark, UnixMicros,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Events kept; of more the newest.
const MAX_EVENTS: usize = 200;
/// Lost cards that the headline names; more are counted.
const MAX_NAMED: usize = 3;
/// Marks of events in the timeline.
const MAX_MARKS: usize = 32;

/// All events.
pub(crate) fn events(case: &Case) -> Vec<RunEvent> {
    let has_several = has_several_nodes(case);
    let mut found: Vec<RunEvent> = Vec::new();
    // What holds of each card, and where the same Xid was told first.
    let mut holds: HashMap<(ArtifactId, Option<Subject>), LiveStateKind> = HashMap::new();
    let mut first: HashMap<(ArtifactId, &str), usize> = HashMap::new();
    for event in in_order(case) {
        let Some(at) = event.at.time else { continue };
        let (card, same) = ((event.at.artifact, event.subject), (event.at.artifact, event.text.as_str()));
        if event.kind == LiveStateKind::Xid {
            if let Some(known) = first.get(&same).and_then(|index| found.get_mut(*index)) {
                known.times = known.times.saturating_add(1);
                known.last = Some(at);
                continue;
            }
            first.insert(same, found.len());
        } else if event.kind != LiveStateKind::RankGone && holds.insert(card, event.kind) == Some(event.kind) {
            // Said again, as an agent does that has lost lines.
            continue;
        }
        let evidence = case.refs([&event.at]).into_iter().next().unwrap_or_default();
        let text = if has_several {
            let file = case.evidence.artifact_name(event.at.artifact);
            format!("{}: {}", node_name(file), event.text)
        } else {
            event.text.clone()
        };
        found.push(RunEvent { at, kind: event.kind, text, times: 1, last: None, evidence });
    }
    let surplus = found.len().saturating_sub(MAX_EVENTS);
    found.drain(..surplus);
    found
}

/// For the beginning of the headline: cards that do not answer any more.
pub(crate) fn lost(case: &Case) -> Option<String> {
    let mut lost: BTreeMap<(ArtifactId, Subject), UnixMicros> = BTreeMap::new();
    for event in in_order(case) {
        let (Some(card), Some(at)) = (event.subject, event.at.time) else { continue };
        match event.kind {
            LiveStateKind::Lost => {
                lost.entry((event.at.artifact, card)).or_insert(at);
            }
            LiveStateKind::Ok => {
                lost.remove(&(event.at.artifact, card));
            }
            // The slices of a card are gone when MIG is changed on it, and lost to nobody.
            LiveStateKind::MigChanged => lost.retain(|(artifact, slice), _| {
                let is_slice = slice.device() == card.device() && matches!(slice, Subject::MigSlice { .. });
                *artifact != event.at.artifact || !is_slice
            }),
            _ => {}
        }
    }
    let has_several = has_several_nodes(case);
    let card_of = |(artifact, card): &(ArtifactId, Subject)| {
        let file = case.evidence.artifact_name(*artifact);
        if has_several { format!("{card} of {}", node_name(file)) } else { card.to_string() }
    };
    if let (1, Some((key, at))) = (lost.len(), lost.first_key_value()) {
        return Some(format!("{} was lost at {} and has not answered since.", card_of(key), at.clock()));
    }
    let name = |(key, at): (&(ArtifactId, Subject), &UnixMicros)| format!("{} ({})", card_of(key), at.clock());
    let named: Vec<String> = lost.iter().take(MAX_NAMED).map(name).collect();
    let more = lost.len().saturating_sub(named.len());
    let more = (more > 0).then(|| words::numbered(more, "more card", "more cards"));
    let list: Vec<String> = named.into_iter().chain(more).collect();
    (!lost.is_empty()).then(|| format!("{} were lost and have not answered since.", words::join(&list)))
}

fn has_several_nodes(case: &Case) -> bool {
    let nodes: BTreeSet<ArtifactId> = case.evidence.events.iter().map(|event| event.at.artifact).collect();
    nodes.len() > 1 || !case.homes.is_empty()
}

fn node_name(file: &str) -> &str {
    file.strip_suffix(".live.jsonl").unwrap_or(file)
}

/// Marks for what went wrong, on a time axis.
pub(crate) fn mark(case: &Case, timeline: &mut Timeline) {
    if timeline.axis != SeriesAxis::UnixMicros {
        return;
    }
    let mut marks: Vec<TimelineMark> = Vec::new();
    for event in in_order(case) {
        let Some(text) = mark_text(event) else { continue };
        let Some(at) = event.at.time else { continue };
        if marks.len() < MAX_MARKS && marks.iter().all(|mark| mark.text != text) {
            marks.push(TimelineMark { x: at.0, text });
        }
    }
    timeline.marks.extend(marks);
}

fn in_order<'a>(case: &Case<'a>) -> Vec<&'a DeviceEvent> {
    let mut events: Vec<&DeviceEvent> = case.evidence.events.iter().collect();
    events.sort_by_key(|event| (event.at.time, event.at.artifact, event.at.place));
    events
}

/// `GPU 3 lost`; nothing for what is well again.
fn mark_text(event: &DeviceEvent) -> Option<String> {
    let of_card = |what: &str| event.subject.map_or_else(|| what.to_owned(), |card| format!("{card} {what}"));
    Some(match event.kind {
        LiveStateKind::Lost if matches!(event.subject, Some(Subject::MigSlice { .. })) => of_card("gone"),
        LiveStateKind::Lost => of_card("lost"),
        LiveStateKind::Xid => {
            let number =
                event.text.split("Xid ").nth(1).and_then(|rest| rest.split(|sign: char| !sign.is_ascii_digit()).next());
            match number.filter(|number| !number.is_empty()) {
                Some(number) => of_card(&format!("Xid {number}")),
                None => of_card("Xid"),
            }
        }
        LiveStateKind::RankGone => {
            let rank = event.text.split_once(" (").map_or("a rank", |(rank, _)| rank);
            format!("{} ended", rank.to_lowercase())
        }
        LiveStateKind::NoDriver => "driver gone".to_owned(),
        LiveStateKind::DriverRestarted => "driver restarted".to_owned(),
        LiveStateKind::MigChanged => of_card("MIG changed"),
        _ => return None,
    })
}
