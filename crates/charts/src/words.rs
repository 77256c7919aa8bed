//! What the charts say in words: short names for groups of ranks, and the sentence for readers who cannot see a
//! picture. Knows the figures, no drawing.

use crate::ticks::ValueScale;
use rankscope_model::{
    Bytes, Composition, PartKind, PeakBar, Peaks, Quantity, Scatter, SeriesAxis, Subject, Timeline, lower_median,
};

/// What a subject is called without its number: `rank`, `GPU`, `MIG`.
pub(crate) fn kind(subject: Subject) -> &'static str {
    match subject {
        Subject::Rank(_) => "rank",
        Subject::Device(_) => "GPU",
        Subject::MigSlice { .. } => "MIG",
    }
}

/// The kind of all subjects, if they are of one.
pub(crate) fn common_kind(mut subjects: impl Iterator<Item = Subject>) -> Option<&'static str> {
    let first = kind(subjects.next()?);
    subjects.all(|subject| kind(subject) == first).then_some(first)
}

/// The number of a subject, for an axis that already says the kind: `3`, `0:2/0`.
pub(crate) fn number(subject: Subject) -> String {
    match subject {
        Subject::Rank(rank) => rank.0.to_string(),
        Subject::Device(device) => device.to_string(),
        Subject::MigSlice { device, gpu_instance, compute_instance } => {
            format!("{device}:{gpu_instance}/{compute_instance}")
        }
    }
}

fn plural(kind: &str, count: usize) -> String {
    match kind {
        "MIG" if count == 1 => "MIG slice".to_owned(),
        "MIG" => "MIG slices".to_owned(),
        _ if count == 1 => kind.to_owned(),
        _ => format!("{kind}s"),
    }
}

/// `8 ranks`, `1 GPU`, `3 subjects`.
pub(crate) fn count(subjects: &[Subject]) -> String {
    let kind = common_kind(subjects.iter().copied()).unwrap_or("subject");
    format!("{} {}", subjects.len(), plural(kind, subjects.len()))
}

/// `rank 3`, `ranks 1 to 7`, `GPUs 1 and 4`, `7 other ranks`, `7 others`.
pub(crate) fn group(subjects: &[Subject], others: bool) -> String {
    if let [one] = subjects {
        return one.to_string();
    }
    let other = if others { "other " } else { "" };
    let Some(kind) = common_kind(subjects.iter().copied()) else {
        return format!("{} {}", subjects.len(), if others { "others" } else { "subjects" });
    };
    let numbers: Option<Vec<u32>> = subjects
        .iter()
        .map(|subject| match subject {
            Subject::Rank(rank) => Some(rank.0),
            Subject::Device(device) => Some(*device),
            Subject::MigSlice { .. } => None,
        })
        .collect();
    let consecutive = |numbers: &[u32]| numbers.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
    match numbers.as_deref() {
        Some([first, second]) => format!("{} {first} and {second}", plural(kind, 2)),
        Some(numbers @ [first, .., last]) if consecutive(numbers) => {
            format!("{} {first} to {last}", plural(kind, 2))
        }
        _ => format!("{} {other}{}", subjects.len(), plural(kind, subjects.len())),
    }
}

/// `rank 0 and rank 4`, `rank 3`.
pub(crate) fn named(names: &[Subject]) -> String {
    match names {
        [] => "nobody".to_owned(),
        [one] => one.to_string(),
        [named @ .., last] => {
            let named: Vec<String> = named.iter().map(Subject::to_string).collect();
            format!("{} and {last}", named.join(", "))
        }
    }
}

/// Names of those who stand out, the first few by name.
fn accused(names: &[Subject]) -> String {
    const NAMED: usize = 5;
    match names {
        [] => "none stands out".to_owned(),
        [one] => format!("{one} stands out"),
        [named @ .., last] if names.len() <= NAMED => {
            let named: Vec<String> = named.iter().map(Subject::to_string).collect();
            format!("{} and {last} stand out", named.join(", "))
        }
        _ => {
            let named: Vec<String> = names.iter().take(NAMED).map(Subject::to_string).collect();
            format!("{} and {} more stand out", named.join(", "), names.len() - NAMED)
        }
    }
}

fn amount(quantity: Quantity, value: u64) -> String {
    if matches!(quantity, Quantity::BatchTokens | Quantity::BatchSamples) {
        value.to_string()
    } else {
        Bytes(value).to_string()
    }
}

/// A timeline in one sentence, for readers who cannot see the picture: who stands out, maximum, median, capacity.
pub fn describe_timeline(figure: &Timeline) -> String {
    let peaks: Vec<u64> = figure.lines.iter().filter_map(|line| line.y.iter().max().copied()).collect();
    let subjects: Vec<Subject> = figure.lines.iter().map(|line| line.subject).collect();
    let out: Vec<Subject> = figure.lines.iter().filter(|line| line.accused).map(|line| line.subject).collect();
    let figures = figures(figure.quantity, &peaks, figure.capacity);
    let since = if figure.axis == SeriesAxis::SinceStart { " since each recording began" } else { "" };
    let what = upper_first(figure.quantity.title());
    format!("{what} over time{since}, {}: {}; {figures}.", count(&subjects), accused(&out))
}

/// Peaks in one sentence, for readers who cannot see the picture.
pub fn describe_peaks(figure: &Peaks) -> String {
    let highest = figure.bars.iter().map(|bar| bar.peak.0).max().unwrap_or(0);
    let subjects: Vec<Subject> = figure.bars.iter().map(|bar| bar.subject).collect();
    let mut out: Vec<&PeakBar> = figure.bars.iter().filter(|bar| bar.accused).collect();
    out.sort_by_key(|bar| std::cmp::Reverse(bar.peak));
    let out: Vec<Subject> = out.iter().map(|bar| bar.subject).collect();
    let capacity = capacity(figure.capacity);
    let what = match &figure.at {
        Some(at) => format!("{} of {} {at}", upper_first(figure.quantity.title()), count(&subjects)),
        None => format!("Highest {} of {}", figure.quantity.title(), count(&subjects)),
    };
    format!(
        "{what}: {}; maximum {}, median {}{capacity}.",
        accused(&out),
        amount(figure.quantity, highest),
        amount(figure.quantity, figure.median.0),
    )
}

/// Input against memory in one sentence, for readers who cannot see the picture.
pub fn describe_scatter(figure: &Scatter) -> String {
    let subjects: Vec<Subject> = figure.clouds.iter().map(|cloud| cloud.subject).collect();
    let out: Vec<Subject> = figure.clouds.iter().filter(|cloud| cloud.accused).map(|cloud| cloud.subject).collect();
    let steps: usize = figure.clouds.iter().map(|cloud| cloud.x.len()).sum();
    let fit = figure.fit.map_or(String::new(), |fit| format!("; correlation {:.2}", fit.r));
    format!(
        "{} against {}, {} in {steps} batches: {}{fit}.",
        upper_first(figure.quantity.title()),
        figure.input.title(),
        count(&subjects),
        accused(&out),
    )
}

/// Compositions in one sentence, for readers who cannot see the picture: the accused first, then the others.
pub fn describe_composition(rows: &[Composition]) -> String {
    const TOLD: usize = 16;
    let subjects: Vec<Subject> = rows.iter().map(|row| row.subject).collect();
    let out: Vec<Subject> = rows.iter().filter(|row| row.accused).map(|row| row.subject).collect();
    let mut told: Vec<&Composition> = rows.iter().filter(|row| row.accused).collect();
    told.extend(rows.iter().filter(|row| !row.accused));
    let told: Vec<String> = told
        .iter()
        .take(TOLD)
        .map(|row| {
            let parts: Vec<String> =
                row.parts.iter().map(|part| format!("{} {}", part.kind.title(), part.bytes)).collect();
            format!("{} {} ({})", row.subject, row.used(), parts.join(", "))
        })
        .collect();
    let rest = if rows.len() > TOLD { format!("; and {} more", rows.len() - TOLD) } else { String::new() };
    format!("What fills {}: {}; {}{rest}.", count(&subjects), accused(&out), told.join("; "))
}

/// Maximum and median of some peaks, and the capacity.
fn figures(quantity: Quantity, peaks: &[u64], limit: Option<Bytes>) -> String {
    let highest = peaks.iter().max().copied().unwrap_or(0);
    let median = lower_median(peaks).unwrap_or(0);
    let capacity = capacity(limit);
    format!("maximum {}, median of the peaks {}{capacity}", amount(quantity, highest), amount(quantity, median))
}

fn capacity(limit: Option<Bytes>) -> String {
    limit.map_or(String::new(), |bytes| format!(", capacity {bytes}"))
}

fn upper_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

/// Whether the second is numbered right after the first.
pub(crate) fn is_next(first: Subject, second: Subject) -> bool {
    match (first, second) {
        (Subject::Rank(first), Subject::Rank(second)) => first.0.checked_add(1) == Some(second.0),
        (Subject::Device(first), Subject::Device(second)) => first.checked_add(1) == Some(second),
        _ => false,
    }
}

/// What neighbouring bars that stand out say on their flag, the fullest wording first; of several the furthest from the
/// median.
pub(crate) fn bar_wordings(bars: &[PeakBar], median: Bytes, scale: &ValueScale) -> Vec<String> {
    let Some(bar) = bars.iter().max_by_key(|bar| bar.peak.0.abs_diff(median.0)) else { return Vec::new() };
    let is_over = bar.peak >= median;
    let subjects: Vec<Subject> = bars.iter().map(|bar| bar.subject).collect();
    let name = group(&subjects, false);
    let reach = match bars {
        [_] => "",
        _ if is_over => "up to ",
        _ => "down to ",
    };
    let peak = format!("{reach}{}", scale.long(bar.peak.0));
    let gap = scale.long(bar.peak.0.abs_diff(median.0));
    let side = if is_over { "over" } else { "below" };
    let mut wordings = vec![format!("{name}: {peak}"), name];
    if gap != scale.long(0) {
        wordings.insert(0, format!("{}, {gap} {side} the median", wordings[0]));
    }
    wordings
}

/// Accused parts of a row in words: `other ranks 5.9 GiB`.
pub(crate) fn foreign_parts(row: &Composition) -> String {
    let parts: Vec<String> = row
        .parts
        .iter()
        .filter(|part| part.kind.accused() && part.bytes.0 > 0)
        .map(|part| format!("{} {}", part.kind.title(), part.bytes))
        .collect();
    parts.join(", ")
}

/// Words for the key beside the drawing, shorter than [`PartKind::title`].
pub(crate) fn key_word(kind: PartKind) -> &'static str {
    match kind {
        PartKind::OutsidePytorch => "outside PyTorch",
        PartKind::UnsizedProcesses => "size not printed",
        PartKind::Untold => "not told whose",
        _ => kind.title(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{GIB, Rank, TimelineLine};

    fn ranks(numbers: &[u32]) -> Vec<Subject> {
        numbers.iter().map(|number| Subject::Rank(Rank(*number))).collect()
    }

    #[test]
    fn groups_have_the_shortest_exact_name() {
        assert_eq!(group(&ranks(&[3]), true), "rank 3");
        assert_eq!(group(&ranks(&[1, 4]), true), "ranks 1 and 4");
        assert_eq!(group(&ranks(&[1, 2, 3, 4]), true), "ranks 1 to 4");
        assert_eq!(group(&ranks(&[0, 2, 3]), true), "3 other ranks");
        assert_eq!(group(&[Subject::Device(0), Subject::Device(1), Subject::Device(3)], false), "3 GPUs");
        assert_eq!(group(&[Subject::Device(0), Subject::Rank(Rank(1)), Subject::Device(2)], true), "3 others");
    }

    #[test]
    fn the_median_of_two_is_the_lower_one() {
        let line = |rank: u32, gib: u64| TimelineLine {
            subject: Subject::Rank(Rank(rank)),
            x: vec![0, 1],
            y: vec![1, gib * GIB],
            accused: false,
        };
        let figure = Timeline {
            quantity: Quantity::DeviceUsed,
            axis: SeriesAxis::Step,
            lines: vec![line(0, 30), line(1, 25)],
            capacity: None,
            phases: vec![],
            marks: vec![],
        };
        let told = describe_timeline(&figure);
        assert!(told.ends_with("maximum 30.0 GiB, median of the peaks 25.0 GiB."), "{told}");
    }

    #[test]
    fn values_of_one_step_are_not_called_highest() {
        let bar = |rank: u32, gib: u64| PeakBar {
            subject: Subject::Rank(Rank(rank)),
            peak: Bytes(gib * GIB),
            accused: rank == 1,
        };
        let figure = Peaks {
            quantity: Quantity::PeakAllocated,
            bars: vec![bar(0, 4), bar(1, 7)],
            median: Bytes(4 * GIB),
            capacity: None,
            per_node: None,
            at: Some("at step 3".to_owned()),
        };
        let told = describe_peaks(&figure);
        assert_eq!(told, "Peak allocated of 2 ranks at step 3: rank 1 stands out; maximum 7.0 GiB, median 4.0 GiB.");
        let told = describe_peaks(&Peaks { at: None, ..figure });
        assert!(told.starts_with("Highest peak allocated of 2 ranks: "), "{told}");
    }

    #[test]
    fn many_accused_are_counted() {
        assert_eq!(accused(&ranks(&[0, 4])), "rank 0 and rank 4 stand out");
        assert!(accused(&ranks(&[0, 1, 2, 3, 4, 5, 6])).ends_with("rank 4 and 2 more stand out"));
        assert_eq!(accused(&[]), "none stands out");
    }
}
