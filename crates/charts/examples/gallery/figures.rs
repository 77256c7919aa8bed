//! Figures in many situations, made up and repeatable: what the gallery shows and the tests check.

use rankscope_model::{
    Bytes, Collect, Composition, Diagnosis, Figures, Frame, GIB, Item, MIB, Part, PartKind, PeakBar, Peaks, Phase,
    PhaseSpan, Quantity, Rank, Report, RunInfo, Scatter, ScatterCloud, ScatterFit, SegmentFill, SegmentMap, SeriesAxis,
    SiteBand, SiteBands, Subject, Timeline, TimelineLine, TimelineMark, UnixMicros, Verdict,
};

const V100: Bytes = Bytes(31 * GIB + 768 * MIB);
const A100: Bytes = Bytes(79 * GIB + 156 * MIB);

/// Repeatable noise between -1 and 1.
fn noise(seed: u64) -> f64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed >> 7);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

fn gib(value: f64) -> u64 {
    Bytes::from_float(value.max(0.0), GIB).map_or(0, |bytes| bytes.0)
}

fn rank(number: u32) -> Subject {
    Subject::Rank(Rank(number))
}

/// A run that fills up in its first steps, with one heavy rank.
fn run(ranks: u32, heavy: &[u32], points: i64, axis: SeriesAxis, per_point: i64) -> Timeline {
    let start = if axis == SeriesAxis::UnixMicros { 1_702_723_267_000_000 } else { 0 };
    let lines = (0..ranks)
        .map(|number| {
            let is_heavy = heavy.contains(&number);
            let y = (0..points)
                .map(|point| {
                    let share = point as f64 / points as f64;
                    let seed = u64::from(number) * 1_000_003 + point.unsigned_abs();
                    let base = if share < 0.08 {
                        0.4
                    } else if share < 0.13 {
                        4.0 + (share - 0.08) * 400.0
                    } else {
                        24.6 + 0.8 * (point as f64 * 1.3 + f64::from(number)).sin() + 0.15 * noise(seed)
                    };
                    let extra = if is_heavy && share > 0.11 { 5.95 + 0.1 * f64::from(number % 5) } else { 0.0 };
                    gib((base + extra).min(31.6))
                })
                .collect();
            let x = (0..points).map(|point| start + point * per_point).collect();
            TimelineLine { subject: rank(number), x, y, accused: is_heavy }
        })
        .collect();
    let at =
        |share: f64| start + Bytes::from_float(points as f64 * share, 1).map_or(0, |b| b.0.cast_signed()) * per_point;
    Timeline {
        quantity: Quantity::DeviceUsed,
        axis,
        lines,
        capacity: Some(V100),
        phases: vec![
            PhaseSpan { phase: Phase::Init, from: at(0.0), to: at(0.13) },
            PhaseSpan { phase: Phase::Train, from: at(0.13), to: at(0.74) },
            PhaseSpan { phase: Phase::Eval, from: at(0.74), to: at(0.88) },
            PhaseSpan { phase: Phase::Train, from: at(0.88), to: at(1.0) },
        ],
        marks: if heavy.is_empty() {
            Vec::new()
        } else {
            vec![TimelineMark { x: at(0.11), text: "gap opens at DDP(), +5.95 GiB".to_owned() }]
        },
    }
}

pub fn v100_run() -> Timeline {
    run(8, &[0], 160, SeriesAxis::UnixMicros, 2_500_000)
}

/// 200 000 points on 8 lines.
pub fn long_run() -> Timeline {
    run(8, &[0], 25_000, SeriesAxis::UnixMicros, 100_000)
}

pub fn timelines() -> Vec<(&'static str, Timeline)> {
    let mut two = run(8, &[2, 3], 300, SeriesAxis::Step, 10);
    two.marks.push(TimelineMark { x: 2100, text: "rank 3 alone from here".to_owned() });
    two.marks.push(TimelineMark { x: 2990, text: "out of memory, rank 3".to_owned() });
    if let Some(line) = two.lines.get_mut(3) {
        line.x.truncate(270);
        line.y.truncate(270);
    }
    let mut steps = run(4, &[1], 12, SeriesAxis::Step, 1);
    steps.capacity = None;
    steps.phases.clear();
    for (place, line) in steps.lines.iter_mut().enumerate() {
        line.y = line.y.iter().map(|y| y * (place as u64 + 2) / 4).collect();
    }
    let mut small = run(2, &[], 50, SeriesAxis::Index, 1);
    small.capacity = None;
    for line in &mut small.lines {
        line.y = line.y.iter().map(|y| y / 40).collect();
    }
    let mut empty_card = small.clone();
    empty_card.capacity = Some(A100);
    let mut one_point = run(8, &[0], 1, SeriesAxis::Step, 1);
    for (place, line) in one_point.lines.iter_mut().enumerate() {
        line.y = vec![gib(if place == 0 { 31.3 } else { 25.0 + place as f64 * 0.1 })];
    }
    one_point.marks.clear();
    let mut evals = run(8, &[], 2000, SeriesAxis::UnixMicros, 20_000_000);
    let first = 1_702_723_267_000_000;
    evals.phases = (0..16)
        .map(|number| {
            let from = first + number * 2_500_000_000;
            let phase = if number % 4 == 3 { Phase::Save } else { Phase::Eval };
            PhaseSpan { phase, from, to: from + 400_000_000 }
        })
        .collect();
    let zeros = Timeline {
        lines: vec![TimelineLine { subject: Subject::Device(0), x: vec![0, 1, 2], y: vec![0; 3], accused: false }],
        marks: Vec::new(),
        ..steps.clone()
    };
    let mut worst = run(40, &(0..24).collect::<Vec<_>>(), 200, SeriesAxis::Step, 1);
    worst.marks = (0..9).map(|n| TimelineMark { x: 20 + n * 22, text: format!("out of memory, rank {n}") }).collect();
    vec![
        ("8 ranks, one heavy", v100_run()),
        ("two heavy, one ends early, three marks", two),
        ("64 ranks, one heavy", run(64, &[17], 400, SeriesAxis::Step, 25)),
        ("1000 ranks, three heavy", run(1000, &[17, 500, 999], 200, SeriesAxis::UnixMicros, 400_000_000)),
        ("few steps, no capacity", steps),
        ("small, MiB", small),
        ("nearly empty card", empty_card),
        ("one point", one_point),
        ("balanced, many evaluations", evals),
        ("24 of 40 stand out, nine marks", worst),
        ("zeros", zeros),
    ]
}

/// Ranks by step: heavy where `is_heavy` says so.
fn by_step(ranks: u32, steps: i64, is_heavy: impl Fn(u32, i64) -> bool) -> Timeline {
    let lines = (0..ranks).map(|number| {
        let y = (0..steps).map(|step| {
            let seed = u64::from(number) * 1_000_003 + step.unsigned_abs();
            let extra = if is_heavy(number, step) { 8.0 + noise(seed) } else { 0.0 };
            gib(20.0 + 0.4 * noise(seed + 7) + extra)
        });
        TimelineLine { subject: rank(number), x: (0..steps).map(|x| x * 10).collect(), y: y.collect(), accused: false }
    });
    Timeline {
        quantity: Quantity::PeakAllocated,
        axis: SeriesAxis::Step,
        lines: lines.collect(),
        capacity: Some(V100),
        phases: Vec::new(),
        marks: Vec::new(),
    }
}

pub fn heatmaps() -> Vec<(&'static str, Timeline)> {
    let accusing = |mut figure: Timeline, heavy: &[u32]| {
        for line in &mut figure.lines {
            line.accused = line.subject.rank().is_some_and(|rank| heavy.contains(&rank));
        }
        figure
    };
    vec![
        ("heatmap: one always heavy", accusing(by_step(8, 60, |rank, _| rank == 3), &[3])),
        ("heatmap: heavy in turns", by_step(8, 60, |rank, step| i64::from(rank) == step * 5 % 8)),
        ("heatmap: heavy once", by_step(8, 60, |rank, step| rank == 5 && step == 40)),
        ("heatmap: two ranks", by_step(2, 6, |rank, _| rank == 1)),
        ("heatmap: run over time", v100_run()),
        ("heatmap: 40 ranks, some end early", {
            let mut figure = run(40, &[7], 300, SeriesAxis::Step, 10);
            for line in figure.lines.iter_mut().step_by(5) {
                line.x.truncate(200);
            }
            figure
        }),
        ("heatmap: 64, first stage differs", by_step(64, 30, |rank, _| rank < 4)),
        ("heatmap: 1000, noise", by_step(1000, 100, |rank, step| (i64::from(rank) * 31 + step * 17) % 97 == 0)),
        ("heatmap: 1000, one heavy", accusing(by_step(1000, 100, |rank, _| rank == 517), &[517])),
    ]
}

/// Batches of different lengths; memory follows them.
pub fn scatters() -> Vec<(&'static str, Scatter)> {
    let clouds = |ranks: u32, steps: u64, long: u32| {
        let cloud = |number: u32| {
            let tokens = |step: u64| {
                let share = f64::midpoint(noise(u64::from(number) * 7919 + step), 1.0);
                let most = if number == long { 60_000.0 } else { 33_000.0 };
                Bytes::from_float(8_000.0 + most * share * share, 1).map_or(0, |bytes| bytes.0)
            };
            let used = |step: u64| gib(6.0 + tokens(step) as f64 / 2600.0 + 0.3 * noise(step * 31 + 5));
            ScatterCloud {
                subject: rank(number),
                x: (0..steps).map(tokens).collect(),
                y: (0..steps).map(used).collect(),
                accused: number == long,
            }
        };
        (0..ranks).map(cloud).collect::<Vec<_>>()
    };
    let fit = Some(ScatterFit { r: 0.98, intercept: gib(6.0) as f64, slope: GIB as f64 / 2600.0 });
    let figure = |clouds, capacity, fit| Scatter {
        input: Quantity::BatchTokens,
        quantity: Quantity::PeakAllocated,
        clouds,
        capacity,
        fit,
    };
    let samples = Scatter {
        input: Quantity::BatchSamples,
        clouds: vec![
            ScatterCloud {
                subject: rank(0),
                x: vec![32, 32, 48],
                y: vec![gib(12.0), gib(12.1), gib(17.0)],
                accused: false,
            },
            ScatterCloud {
                subject: rank(1),
                x: vec![32, 16, 32],
                y: vec![gib(12.0), gib(7.1), gib(12.0)],
                accused: false,
            },
        ],
        ..figure(Vec::new(), None, None)
    };
    vec![
        ("scatter: memory follows tokens", figure(clouds(4, 300, 3), Some(Bytes(40 * GIB)), fit)),
        ("scatter: 1000 ranks", figure(clouds(1000, 4, 3), None, fit)),
        ("scatter: samples", samples),
    ]
}

/// A recording of some steps: weights that stay, activations that come and go, and a copy from the middle on.
pub fn bands(sites: u32, moments: i64) -> SiteBands {
    let bytes = |site: u32, moment: i64| match site {
        0 => gib(6.0),
        1 if moment > moments / 2 => gib(3.0),
        1 => 0,
        _ => gib((2.0 + f64::from(site % 5)) * (moment as f64 * 0.4).sin().max(0.0) * 0.4),
    };
    let band = |site: u32| SiteBand {
        frame: Some(Frame { function: "forward".to_owned(), file: "/job/model.py".to_owned(), line: 10 + site }),
        bytes: (0..moments).map(|moment| bytes(site, moment)).collect(),
    };
    SiteBands {
        axis: Some(SeriesAxis::UnixMicros),
        x: (0..moments).map(|moment| 1_702_723_267_000_000 + moment * 40_000).collect(),
        sites: (0..sites).map(band).collect(),
        rest: vec![gib(0.4); usize::try_from(moments).unwrap_or(0)],
    }
}

pub fn all_bands() -> Vec<(&'static str, SiteBands, Vec<bool>)> {
    vec![
        ("bands: twelve lines, the second on this rank only", bands(12, 240), vec![false, true]),
        ("bands: two lines, three moments", bands(2, 3), vec![]),
        ("bands: no line told apart", bands(0, 50), vec![]),
    ]
}

/// Segments of many sizes, with gaps.
pub fn segments(count: u64) -> SegmentMap {
    let fill = |number: u64| SegmentFill {
        size: Bytes((2048 >> (number % 7)) * MIB),
        active: Bytes((1024 >> (number % 7)) * MIB),
        largest_free: Bytes(64 * MIB),
        private: number % 9 == 4,
        parts: (0..64u8).map(|part| if part.is_multiple_of(3) { 0 } else { 40 + part }).collect(),
    };
    SegmentMap {
        free: Bytes(GIB),
        pieces: 40,
        largest_free: Bytes(64 * MIB),
        releasable: Bytes(0),
        segments: (0..count).map(fill).collect(),
        left_out: 0,
    }
}

pub fn peaks(count: u32, heavy: &[u32]) -> Peaks {
    let bars: Vec<PeakBar> = (0..count)
        .map(|number| {
            let accused = heavy.contains(&number);
            let value = 25.3 + 0.3 * noise(u64::from(number) + 11) + if accused { 5.95 } else { 0.0 };
            PeakBar { subject: Subject::Device(number), peak: Bytes(gib(value)), accused }
        })
        .collect();
    let mut values: Vec<Bytes> = bars.iter().map(|bar| bar.peak).collect();
    values.sort_unstable();
    let median = values.get(values.len() / 2).copied().unwrap_or_default();
    Peaks { quantity: Quantity::DeviceUsed, bars, median, capacity: Some(V100), per_node: None, at: None }
}

pub fn all_peaks() -> Vec<(&'static str, Peaks)> {
    let mut slices = peaks(7, &[3]);
    for (bar, slice) in slices.bars.iter_mut().zip(7..) {
        bar.subject = Subject::MigSlice { device: 0, gpu_instance: slice, compute_instance: 0 };
        bar.peak = Bytes(bar.peak.0 / 6);
    }
    slices.median = Bytes(slices.median.0 / 6);
    slices.capacity = Some(Bytes(5 * GIB));
    let mut no_capacity = peaks(2, &[1]);
    no_capacity.capacity = None;
    no_capacity.quantity = Quantity::PeakAllocated;
    let mut full = peaks(8, &[]);
    for bar in &mut full.bars {
        bar.peak = Bytes(bar.peak.0 + gib(6.0));
    }
    full.median = Bytes(full.median.0 + gib(6.0));
    let mut tokens = peaks(8, &[3]);
    tokens.quantity = Quantity::BatchTokens;
    tokens.capacity = None;
    for bar in &mut tokens.bars {
        bar.subject = rank(bar.subject.device().unwrap_or(0));
        bar.peak = Bytes(bar.peak.0 >> 20);
    }
    tokens.median = Bytes(tokens.median.0 >> 20);
    vec![
        ("peaks of 8, one heavy", peaks(8, &[0])),
        ("peaks of 16, three heavy", peaks(16, &[0, 8, 9])),
        ("peaks of 64, two heavy", peaks(64, &[8, 40])),
        ("peaks of 1000, three heavy", peaks(1000, &[17, 500, 999])),
        ("peaks of 256, nodes of 4", Peaks { per_node: Some(4), ..peaks(256, &[130]) }),
        ("peaks of 16384, nodes of 8", Peaks { per_node: Some(8), ..peaks(16_384, &[9000]) }),
        ("12 of 64 heavy", peaks(64, &(0..12).map(|n| n * 5).collect::<Vec<_>>())),
        ("MIG slices", slices),
        ("two bars, no capacity", no_capacity),
        ("all full", full),
        ("tokens", tokens),
        ("one bar", peaks(1, &[])),
    ]
}

fn card(number: u32, parts: &[(PartKind, f64)], capacity: Option<Bytes>, accused: bool) -> Composition {
    let parts = parts.iter().map(|(kind, value)| Part { kind: *kind, bytes: Bytes(gib(*value)) }).collect();
    Composition { subject: Subject::Device(number), capacity, parts, source: "nvidia-smi.txt:9-45".to_owned(), accused }
}

pub fn v100_cards() -> Vec<Composition> {
    many_cards(8)
}

fn many_cards(count: u32) -> Vec<Composition> {
    (0..count)
        .map(|number| {
            let wobble = |seed: u32| 0.2 * noise(u64::from(number * 3 + seed));
            let mut parts = vec![
                (PartKind::Allocated, 21.9 + wobble(0)),
                (PartKind::Cached, 2.6 + wobble(1)),
                (PartKind::OutsidePytorch, 0.85),
            ];
            if number == 0 {
                parts.push((PartKind::OtherRanks, 5.95));
            }
            card(number, &parts, Some(V100), number == 0)
        })
        .collect()
}

pub fn every_kind() -> Vec<Composition> {
    vec![
        card(
            0,
            &[
                (PartKind::Allocated, 16.0),
                (PartKind::Waiting, 4.0),
                (PartKind::Cached, 9.0),
                (PartKind::OutsidePytorch, 1.5),
                (PartKind::OtherRanks, 6.0),
                (PartKind::OtherProcesses, 11.0),
                (PartKind::UnsizedProcesses, 2.0),
                (PartKind::Unaccounted, 3.0),
            ],
            Some(A100),
            true,
        ),
        card(1, &[(PartKind::OwnProcess, 33.0), (PartKind::Unaccounted, 2.5)], Some(A100), false),
        card(
            2,
            &[(PartKind::OwnProcess, 0.01), (PartKind::OtherProcesses, 0.3), (PartKind::Untold, 4.0)],
            Some(A100),
            false,
        ),
        card(3, &[], Some(A100), false),
        card(4, &[(PartKind::Allocated, 30.0), (PartKind::Cached, 4.0)], Some(Bytes(40 * GIB)), false),
    ]
}

pub fn compositions() -> Vec<(&'static str, Vec<Composition>)> {
    let no_capacity = vec![
        card(0, &[(PartKind::Allocated, 12.0), (PartKind::Cached, 9.0)], None, true),
        card(1, &[(PartKind::Allocated, 12.0), (PartKind::Cached, 1.0)], None, false),
    ];
    vec![
        ("what fills 8 cards", v100_cards()),
        ("every kind of part, unequal cards", every_kind()),
        ("no capacity", no_capacity),
        ("32 cards", many_cards(32)),
        ("1000 cards", many_cards(1000)),
    ]
}

pub fn report() -> Report {
    Report {
        run: RunInfo {
            id: "r1".to_owned(),
            title: "dlrm-criteo, 8 × V100 32 GB".to_owned(),
            created_at: UnixMicros(1_702_723_267_000_000),
        },
        version: 1,
        diagnosed_at: UnixMicros(1_702_723_267_000_000),
        diagnosis: Diagnosis {
            events: vec![],
            format: rankscope_model::DIAGNOSIS_FORMAT.to_owned(),
            verdict: Verdict::Imbalance,
            summary: "GPU 0 is 24 % fuller than the median card because the other seven ranks also opened a CUDA \
                      context on it."
                .to_owned(),
            imbalance: None,
            causes: Vec::new(),
            checklist: Vec::new(),
            findings: Vec::new(),
            artifacts: Vec::new(),
        },
        figures: Figures {
            timeline: Some(v100_run()),
            peaks: Some(peaks(8, &[0])),
            composition: v100_cards(),
            ..Figures::default()
        },
        next: None::<(Item, Collect)>,
    }
}
