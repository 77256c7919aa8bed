//! The answer as the headline, and the figures behind it.

use super::code::copy_button;
use super::moment::{is_of_snapshots, recorded_peak};
use crate::icons;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{ArtifactInfo, ArtifactKind, Bytes, Diagnosis, Imbalance, Report, SeriesAxis, UnixMicros};
use std::collections::BTreeSet;

/// A headline longer than this is set smaller.
const LONG_HEADLINE: usize = 120;
/// A diagnosis that is so much later than its last figure says of when that is, in microseconds.
const LATER: i64 = 15_000_000;

/// Run, verdict, summary and facts.
pub fn headline(report: &Report) -> AnyView {
    let diagnosis = &report.diagnosis;
    let summary = words::shown_line(&diagnosis.summary);
    let (first, rest) = words::first_sentence(&summary);
    let (first, rest) = (first.to_owned(), rest.to_owned());
    let long = first.chars().count() > LONG_HEADLINE;
    view! {
        <header class="headline">
            <p class="run">
                <strong><bdi>{words::shown_line(&report.run.title)}</bdi></strong>
                <span>{size(diagnosis)}</span>
                <time datetime=words::time_iso(report.run.created_at)>{words::time(report.run.created_at)}</time>
                {as_of(report).map(|at| view! { <span>"figures as of "<time datetime=words::time_iso(at)>{words::clock(at)}</time></span> })}
            </p>
            <p class="verdict-word">{icons::verdict_of(diagnosis)}{diagnosis.verdict_title()}</p>
            <h1 class=long.then_some("long")>{first}</h1>
            {(!rest.is_empty()).then(|| view! { <p class="lede">{rest}</p> })}
            {copy_button(&summary, "Copy this sentence")}
            {diagnosis.imbalance.as_ref().map(|imbalance| facts(report, imbalance))}
        </header>
    }
    .into_any()
}

/// When the last figure of a job that was watched was read, where that is clearly before its diagnosis: a node has fallen
/// silent, or the job has ended.
fn as_of(report: &Report) -> Option<UnixMicros> {
    let is_watched = report.diagnosis.artifacts.iter().any(|file| file.kind == ArtifactKind::LiveRecord);
    let timeline = report.figures.timeline.as_ref().filter(|_| is_watched)?;
    if timeline.axis != SeriesAxis::UnixMicros {
        return None;
    }
    let last = timeline.lines.iter().filter_map(|line| line.x.last()).max()?;
    (report.diagnosed_at.0.saturating_sub(*last) >= LATER).then_some(UnixMicros(*last))
}

/// `8 ranks, 8 GPUs, 3 files`: what the run was seen to consist of.
fn size(diagnosis: &Diagnosis) -> String {
    let ranks: BTreeSet<u32> = diagnosis.artifacts.iter().flat_map(|file| file.ranks.iter().copied()).collect();
    // Every node has a GPU 0: the records of two nodes have no card in common. Other files say no node.
    let is_record = |file: &&ArtifactInfo| file.kind == ArtifactKind::LiveRecord;
    let first = diagnosis.artifacts.iter().find(is_record).map(|file| file.name.as_str());
    let node = |file| Some(file).filter(is_record).map(|file| file.name.as_str()).or(first);
    let devices: BTreeSet<(Option<&str>, u32)> = diagnosis
        .artifacts
        .iter()
        .filter(|file| knows_its_cards(file.kind))
        .flat_map(|file| file.devices.iter().map(move |device| (node(file), *device)))
        .collect();
    let mut parts = Vec::new();
    if !ranks.is_empty() {
        parts.push(words::count(ranks.len(), "rank"));
    }
    if !devices.is_empty() {
        parts.push(words::count(devices.len(), "GPU"));
    }
    parts.push(words::count(diagnosis.artifacts.len(), "file"));
    parts.join(", ")
}

/// Whether a file numbers cards as its node does. A process counts from 0 what was made visible to it, and a log of many
/// nodes has as many cards of one number: what they call GPU 0 to 3 may be any number of cards.
fn knows_its_cards(kind: ArtifactKind) -> bool {
    match kind {
        ArtifactKind::NvidiaSmi
        | ArtifactKind::NvidiaSmiCsv
        | ArtifactKind::NvidiaSmiQuery
        | ArtifactKind::NvidiaSmiMonitor
        | ArtifactKind::NvidiaSmiList
        | ArtifactKind::GpuTopology
        | ArtifactKind::Gpustat
        | ArtifactKind::Nvitop
        | ArtifactKind::Prometheus
        | ArtifactKind::RocmSmi
        | ArtifactKind::Nvml
        | ArtifactKind::LiveRecord => true,
        ArtifactKind::StepLog
        | ArtifactKind::MemoryStats
        | ArtifactKind::OomMessage
        | ArtifactKind::TorchSnapshot
        | ArtifactKind::ProfilerTrace
        | ArtifactKind::MemoryTimeline
        | ArtifactKind::PythonScript
        | ArtifactKind::JobLog
        | ArtifactKind::Environment
        | ArtifactKind::ProcessList
        | ArtifactKind::LaunchScript
        | ArtifactKind::AccelerateConfig
        | ArtifactKind::DeepspeedConfig
        | ArtifactKind::ProbeLog
        | ArtifactKind::Text
        | ArtifactKind::Archive
        | ArtifactKind::Unreadable => false,
    }
}

fn facts(report: &Report, imbalance: &Imbalance) -> AnyView {
    let quantity = imbalance.quantity;
    let figure = |bytes: Bytes| words::value(quantity, bytes.0);
    // As the charts have it: where ranks differ by design or take turns, they accuse nobody.
    let accused = match &report.figures.peaks {
        Some(peaks) => peaks.bars.iter().any(|bar| bar.accused),
        None => !imbalance.heaviest.is_empty(),
    } && !imbalance.by_design;
    let who = match imbalance.heaviest.first() {
        Some(first) => first.to_string(),
        None => "highest".to_owned(),
    };
    let others = others(report, imbalance);
    let of_capacity = imbalance.capacity_bytes.map(|capacity| format!("of {}", figure(capacity)));
    let gap = imbalance.max_bytes.saturating_sub(imbalance.median_bytes);
    let explained = imbalance.explained_bytes.map(|explained| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let share =
            if gap.0 == 0 { 0 } else { (explained.0 as f64 / gap.0 as f64 * 100.0).round().clamp(0.0, 100.0) as u32 };
        view! {
            <div>
                <dt>"gap explained"</dt>
                <dd>{format!("{share} %")}</dd>
                <dd class="more">{format!("{} of {}", figure(explained), figure(gap))}</dd>
            </div>
        }
    });
    let opens = imbalance.opens_at.as_ref().map(|at| {
        view! {
            <div class="wordy">
                <dt>"gap opens"</dt>
                <dd>{words::shown_line(&at.text)}</dd>
            </div>
        }
    });
    // Values of one step, or of the end, are no peaks.
    let at_the_end = is_of_snapshots(report);
    let highest = match &imbalance.at {
        Some(at) => format!("{who} {}", words::shown_line(&at.text)),
        None if at_the_end => format!("{who} at the end"),
        None => format!("{who} peaks at"),
    };
    let when = if at_the_end { ", at the end" } else { "" };
    let beside = [of_capacity, others].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let of_the_end = at_the_end.then(|| format!("{}, when its snapshot was taken", quantity.title()));
    let more = [of_the_end, Some(beside).filter(|beside| !beside.is_empty())];
    let more = more.into_iter().flatten().collect::<Vec<_>>().join(", ");
    // What it held before that is often more, and is what the card must have room for.
    let before = imbalance.heaviest.first().filter(|_| at_the_end).and_then(|first| recorded_peak(report, *first));
    let before = before.map(|(quantity, peak)| {
        view! {
            <div>
                <dt>{format!("{who} peaks at")}</dt>
                <dd>{words::value(quantity, peak.0)}</dd>
                <dd class="more">{format!("{}, in its recording", quantity.title())}</dd>
            </div>
        }
    });
    view! {
        <dl class="facts">
            <div class:hot=accused>
                <dt>{highest}</dt>
                <dd>{figure(imbalance.max_bytes)}</dd>
                <dd class="more">{more}</dd>
            </div>
            {before}
            <div>
                <dt>{format!("median of {}", imbalance.compared)}</dt>
                <dd>{figure(imbalance.median_bytes)}</dd>
                <dd class="more">{format!("{}{when}", quantity.title())}</dd>
            </div>
            <div>
                <dt>"above the mean"</dt>
                <dd>{words::percent(imbalance.ratio)}</dd>
                <dd class="more">{format!("mean {}", figure(imbalance.mean_bytes))}</dd>
            </div>
            {explained}
            {opens}
        </dl>
    }
    .into_any()
}

/// Who else stands out, and how far up they are: they need not be as high as the first.
fn others(report: &Report, imbalance: &Imbalance) -> Option<String> {
    let (_, others) = imbalance.heaviest.split_first().filter(|(_, others)| !others.is_empty())?;
    let count = words::count(others.len(), "other");
    let peaks = report.figures.peaks.as_ref().filter(|peaks| peaks.quantity == imbalance.quantity);
    let of = |subject| peaks?.bars.iter().find(|bar| bar.subject == subject).map(|bar| bar.peak);
    let values: Vec<Bytes> = others.iter().filter_map(|other| of(*other)).collect();
    let Some(least) = values.iter().min().filter(|_| values.len() == others.len()) else {
        return Some(format!("{count} stand out too"));
    };
    let figure = |bytes: Bytes| words::value(imbalance.quantity, bytes.0);
    let shown = figure(*least);
    Some(match others.len() {
        _ if shown == figure(imbalance.max_bytes) => format!("{count} alike"),
        1 => format!("{count} {shown}"),
        _ => format!("{count}, {shown} and more"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{DIAGNOSIS_FORMAT, Verdict};

    fn seen(files: &[(&str, ArtifactKind, u32, u32)]) -> String {
        let artifact = |&(name, kind, ranks, devices): &(&str, ArtifactKind, u32, u32)| ArtifactInfo {
            name: name.into(),
            kind,
            ranks: (0..ranks).collect(),
            devices: (0..devices).collect(),
            bytes: 1,
            warnings: vec![],
        };
        size(&Diagnosis {
            format: DIAGNOSIS_FORMAT.into(),
            verdict: Verdict::Balanced,
            summary: String::new(),
            imbalance: None,
            causes: vec![],
            checklist: vec![],
            findings: vec![],
            events: vec![],
            artifacts: files.iter().map(artifact).collect(),
        })
    }

    #[test]
    fn cards_are_counted_only_where_a_file_knows_them() {
        // Each of 16 nodes prints of its own GPUs 0 to 3.
        assert_eq!(seen(&[("job.out", ArtifactKind::StepLog, 64, 4)]), "64 ranks, 1 file");
        assert_eq!(seen(&[("oom.txt", ArtifactKind::OomMessage, 0, 1)]), "1 file");
        assert_eq!(seen(&[("smi.txt", ArtifactKind::NvidiaSmi, 0, 8)]), "8 GPUs, 1 file");
        let both = [("smi.txt", ArtifactKind::NvidiaSmi, 0, 4), ("job.log", ArtifactKind::StepLog, 4, 1)];
        assert_eq!(seen(&both), "4 ranks, 4 GPUs, 2 files");
    }

    #[test]
    fn nodes_have_no_card_in_common() {
        let nodes = [("a.jsonl", ArtifactKind::LiveRecord, 8, 8), ("b.jsonl", ArtifactKind::LiveRecord, 16, 8)];
        assert_eq!(seen(&nodes), "16 ranks, 16 GPUs, 2 files");
    }
}
