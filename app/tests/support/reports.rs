//! Reports of our own making, in the shapes that real runs have.

use rankscope_model::{
    ArtifactInfo, ArtifactKind, Bytes, Cause, CauseLabel, ChecklistEntry, Collect, Composition, DIAGNOSIS_FORMAT,
    Diagnosis, EvidenceRef, Figures, Finding, Imbalance, Item, ItemStatus, OpensAt, Part, PartKind, PeakBar, Peaks,
    Phase, PhaseSpan, Quantity, Rank, Report, RunInfo, SeriesAxis, Severity, Subject, Timeline, TimelineLine,
    TimelineMark, UnixMicros, Verdict,
};

/// 16 Dec 2024, 10:41:07 UTC.
pub const MADE_AT: UnixMicros = UnixMicros(1_734_345_667_000_000);

pub fn lines(artifact: &str, from: u64, to: u64, quote: &str, reason: Option<&str>) -> EvidenceRef {
    EvidenceRef {
        artifact: artifact.into(),
        line: Some(from),
        line_end: (to > from).then_some(to),
        quote: quote.into(),
        reason: reason.map(Into::into),
        ..EvidenceRef::default()
    }
}

pub fn file(
    name: &str,
    kind: ArtifactKind,
    ranks: &[u32],
    devices: &[u32],
    bytes: u64,
    warnings: &[&str],
) -> ArtifactInfo {
    ArtifactInfo {
        name: name.into(),
        kind,
        ranks: ranks.to_vec(),
        devices: devices.to_vec(),
        bytes,
        warnings: warnings.iter().map(|warning| (*warning).to_owned()).collect(),
    }
}

fn collect(what: &str, command: &str) -> Vec<Collect> {
    vec![Collect { what: what.into(), command: command.into() }]
}

/// Every item with a status; what is unknown says what would decide it.
fn checklist(statuses: [(ItemStatus, &[&str]); 10]) -> Vec<ChecklistEntry> {
    Item::ALL
        .iter()
        .zip(statuses)
        .map(|(&item, (status, findings))| ChecklistEntry {
            stage: item.stage().number(),
            item,
            status,
            findings: findings.iter().map(|id| (*id).to_owned()).collect(),
            collect: match (status, item) {
                (ItemStatus::Unknown, Item::Verified) => collect(
                    "The same picture from a run with the fix: the rows of the other ranks on GPU 0 should be gone.",
                    "nvidia-smi > after.txt",
                ),
                (ItemStatus::Unknown, Item::UnsyncedBuffers) => collect(
                    "Blocks that one rank holds and the others do not, with the line that made them.",
                    "torch.cuda.memory._dump_snapshot(f\"snap_rank{rank}.pickle\")",
                ),
                (ItemStatus::Unknown, Item::DistributedSampler | Item::DistributedInit | Item::OptimizerState) => {
                    collect("The order of calls in the training script.", "train.py")
                }
                (ItemStatus::Unknown, _) => collect(
                    "One line per rank and step, put side by side.",
                    "print(f\"rank={rank} step={step} allocated={torch.cuda.memory_allocated()/2**20:.0f}MiB\", flush=True)",
                ),
                _ => Vec::new(),
            },
        })
        .collect()
}

const SMI_ROW: &str = "|    0   N/A  N/A     41873      C   /opt/conda/bin/python             871MiB |";

/// Eight cards, one of which also carries the contexts of the seven other ranks.
pub fn eight_gpus() -> Report {
    use ItemStatus::{Fail, Pass, Suspect, Unknown};
    let devices: Vec<u32> = (0..8).collect();
    let artifacts = vec![
        file("nvidia-smi.txt", ArtifactKind::NvidiaSmi, &[], &devices, 4_712, &[]),
        file("train.py", ArtifactKind::PythonScript, &[], &[], 9_310, &[]),
        file(
            "job.log.gz",
            ArtifactKind::Text,
            &[],
            &[],
            1_204_551,
            &[
                "No line holds a memory figure with a rank. Print allocated, reserved and peak per rank and step, then add the log here.",
            ],
        ),
    ];
    let why = [
        "Seven processes on GPU 0 (871 MiB each) also own GPUs 1 to 7",
        "No torch.cuda.set_device before init_process_group",
        "Every foreign process holds the same amount, the size of a bare CUDA context",
    ];
    let first = Cause {
        label: CauseLabel::CtxNoSetDevice,
        confidence: 0.86,
        ranks: (1..8).collect(),
        why: why.iter().map(|why| (*why).to_owned()).collect(),
        against: vec!["A checkpoint loaded without map_location would look the same, but the script loads none".into()],
        remedy: "Bind each process to its own card before anything touches CUDA.\n\n  local_rank = int(os.environ[\"LOCAL_RANK\"])\n\
                 + torch.cuda.set_device(local_rank)\n  dist.init_process_group(\"nccl\")\n- model = Net().cuda()\n\
                 + model = Net().to(torch.device(\"cuda\", local_rank))"
            .into(),
        evidence: vec![
            lines("nvidia-smi.txt", 41, 47, SMI_ROW, Some("why.0")),
            lines("train.py", 56, 56, "    dist.init_process_group(\"nccl\")", Some("why.1")),
            lines("train.py", 61, 61, "    model = Net().cuda()", Some("why.1")),
            lines("nvidia-smi.txt", 41, 41, SMI_ROW, Some("why.2")),
            lines("train.py", 12, 12, "import torch.distributed as dist", None),
        ],
    };
    let second = Cause {
        label: CauseLabel::CkptNoMapLocation,
        confidence: 0.09,
        ranks: vec![],
        why: vec!["Contexts of other ranks on GPU 0".into()],
        against: vec!["The script calls no torch.load".into()],
        remedy: "Load with map_location.\n\n- torch.load(path)\n+ torch.load(path, map_location=\"cpu\")".into(),
        evidence: vec![lines("nvidia-smi.txt", 41, 47, SMI_ROW, Some("why.0"))],
    };
    let third = Cause {
        label: CauseLabel::HelperThreadOrLibCtx,
        confidence: 0.04,
        ranks: vec![],
        why: vec!["A library may open the contexts".into()],
        against: vec!["Nothing in the script starts a thread".into()],
        remedy: String::new(),
        evidence: vec![],
    };
    let findings = vec![
        Finding {
            id: "f1".into(),
            item: Item::DeviceVisibility,
            label: Some(CauseLabel::CtxNoSetDevice),
            severity: Severity::Critical,
            confidence: 0.97,
            claim: "Seven PIDs of GPUs 1 to 7 also hold 871 MiB each on GPU 0".into(),
            ranks: (1..8).collect(),
            evidence: vec![lines("nvidia-smi.txt", 41, 47, SMI_ROW, None)],
        },
        Finding {
            id: "f2".into(),
            item: Item::DistributedInit,
            label: None,
            severity: Severity::Info,
            confidence: 0.9,
            claim: "init_process_group precedes every CUDA call".into(),
            ranks: vec![],
            evidence: vec![lines("train.py", 56, 56, "    dist.init_process_group(\"nccl\")", None)],
        },
        Finding {
            id: "f3".into(),
            item: Item::MemoryStats,
            label: None,
            severity: Severity::Warning,
            confidence: 0.6,
            claim: "5.9 GiB on GPU 0 lie outside the allocator of its own rank".into(),
            ranks: vec![0],
            evidence: vec![lines("nvidia-smi.txt", 9, 45, "", None)],
        },
    ];
    let own = [25_905, 25_905, 25_601, 26_012, 25_604, 26_001, 25_398, 25_702];
    let composition: Vec<Composition> = devices
        .iter()
        .zip(own)
        .map(|(&device, own)| {
            let mut parts = vec![Part { kind: PartKind::OwnProcess, bytes: Bytes::from_mib(own) }];
            if device == 0 {
                parts.push(Part { kind: PartKind::OtherRanks, bytes: Bytes::from_mib(871 * 7) });
            }
            parts.push(Part { kind: PartKind::Unaccounted, bytes: Bytes::from_mib(149) });
            Composition {
                subject: Subject::Device(device),
                capacity: Some(Bytes::from_mib(32_510)),
                parts,
                source: "nvidia-smi.txt:9-45".into(),
                accused: device == 0,
            }
        })
        .collect();
    let bars = composition
        .iter()
        .map(|device| PeakBar { subject: device.subject, peak: device.used(), accused: device.accused })
        .collect();
    let diagnosis = Diagnosis {
        events: vec![],
        format: DIAGNOSIS_FORMAT.into(),
        verdict: Verdict::Imbalance,
        summary: "GPU 0 is 24 % fuller than the mean because the other seven ranks also opened a CUDA context on it."
            .into(),
        imbalance: Some(Imbalance {
            quantity: Quantity::DeviceUsed,
            ratio: 0.237,
            max_bytes: Bytes::from_mib(32_151),
            median_bytes: Bytes::from_mib(26_002),
            mean_bytes: Bytes::from_mib(26_553),
            heaviest: vec![Subject::Device(0)],
            compared: 8,
            capacity_bytes: Some(Bytes::from_mib(32_510)),
            opens_at: None,
            at: None,
            explained_bytes: Some(Bytes::from_mib(871 * 7)),
            by_design: false,
        }),
        causes: vec![first, second, third],
        checklist: checklist([
            (Fail, &["f1"]),
            (Pass, &["f2"]),
            (Pass, &[]),
            (Pass, &[]),
            (Pass, &[]),
            (Unknown, &[]),
            (Pass, &[]),
            (Suspect, &["f3"]),
            (Unknown, &[]),
            (Unknown, &[]),
        ]),
        findings,
        artifacts,
    };
    Report {
        run: RunInfo { id: "01939f0a7e2b".into(), title: "dlrm-criteo".into(), created_at: MADE_AT },
        version: 2,
        diagnosed_at: MADE_AT,
        diagnosis,
        figures: Figures {
            timeline: None,
            peaks: Some(Peaks {
                quantity: Quantity::DeviceUsed,
                bars,
                median: Bytes::from_mib(26_002),
                capacity: Some(Bytes::from_mib(32_510)),
                per_node: None,
                at: None,
            }),
            composition,
            ..Figures::default()
        },
        next: Some((
            Item::Verified,
            Collect {
                what: "Run with the fix and add the new table here: the seven rows on GPU 0 should be gone.".into(),
                command: "nvidia-smi > after.txt".into(),
            },
        )),
    }
}

/// The same job with every process bound to its own card.
pub fn eight_gpus_bound() -> Report {
    let mut report = eight_gpus();
    report.run = RunInfo {
        id: "01939f1c33cc".into(),
        title: "dlrm-criteo, bound".into(),
        created_at: UnixMicros(MADE_AT.0 + 3_600_000_000),
    };
    report.version = 1;
    report.diagnosis.verdict = Verdict::Balanced;
    report.diagnosis.summary =
        "Balanced in what was read: all eight cards are between 25.0 GiB and 25.6 GiB device used.".into();
    report.diagnosis.causes.clear();
    report.diagnosis.findings.clear();
    if let Some(imbalance) = &mut report.diagnosis.imbalance {
        imbalance.heaviest.clear();
        imbalance.max_bytes = Bytes::from_mib(26_161);
        imbalance.ratio = 0.01;
    }
    for entry in &mut report.diagnosis.checklist {
        entry.findings.clear();
        if entry.item == Item::DeviceVisibility {
            entry.status = ItemStatus::Pass;
        }
    }
    let peaks = report.figures.peaks.iter_mut().flat_map(|peaks| &mut peaks.bars);
    for bar in peaks.filter(|bar| bar.accused) {
        (bar.peak, bar.accused) = (Bytes::from_mib(26_054), false);
    }
    report
}

/// A number between 0 and 1 that looks random and is always the same.
fn noise(seed: u64) -> f64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// Four ranks with a log line per step; rank 3 peaks whenever it draws long samples.
pub fn step_log() -> Report {
    use ItemStatus::{Fail, Pass, Unknown};
    let ranks: Vec<u32> = (0..4).collect();
    let steps = 400_u64;
    let timeline_lines: Vec<TimelineLine> = ranks
        .iter()
        .map(|&rank| {
            let value = |step: u64| {
                let base =
                    if step < 12 { 2.0 + step as f64 * 1.4 } else { 19.4 + 1.1 * noise(step * 7 + u64::from(rank)) };
                let long = rank == 3 && step > 60 && noise(step * 13 + 5) > 0.72;
                let gib = if long { base + 9.5 + noise(step) } else { base };
                Bytes::from_float(gib * 1024.0, 1 << 20).map_or(0, |bytes| bytes.0)
            };
            TimelineLine {
                subject: Subject::Rank(Rank(rank)),
                x: (0..steps).map(|step| i64::try_from(step).unwrap()).collect(),
                y: (0..steps).map(value).collect(),
                accused: rank == 3,
            }
        })
        .collect();
    let peak = |n: usize| Bytes(timeline_lines[n].y.iter().copied().max().unwrap());
    let bars: Vec<PeakBar> = ranks
        .iter()
        .map(|&rank| PeakBar { subject: Subject::Rank(Rank(rank)), peak: peak(rank as usize), accused: rank == 3 })
        .collect();
    let long_line = "rank=3 step=77 batch=8x934 tokens=59776 allocated=30902MiB reserved=31744MiB peak=30951MiB";
    let diagnosis = Diagnosis {
        events: vec![],
        format: DIAGNOSIS_FORMAT.into(),
        verdict: Verdict::Imbalance,
        summary: "Rank 3 peaks 10.4 GiB above the others whenever it draws a batch of long samples. Sample counts are equal, \
                  token counts are not."
            .into(),
        imbalance: Some(Imbalance {
            quantity: Quantity::PeakAllocated,
            ratio: 0.381,
            max_bytes: peak(3),
            median_bytes: peak(1),
            mean_bytes: Bytes::from_mib(23_700),
            heaviest: vec![Subject::Rank(Rank(3))],
            compared: 4,
            capacity_bytes: Some(Bytes::from_mib(40_536)),
            opens_at: Some(OpensAt { step: Some(64), phase: Some(Phase::Train), text: "at step 64 (train)".into() }),
            at: None,
            explained_bytes: Some(Bytes(peak(3).0 - peak(1).0 - (400 << 20))),
            by_design: false,
        }),
        causes: vec![Cause {
            label: CauseLabel::VariableShapeBatches,
            confidence: 0.93,
            ranks: vec![3],
            why: vec![
                "The peak follows the tokens in the batch: r = 0.98 over 400 steps".into(),
                "All ranks draw 8 samples a step, rank 3 up to 59,776 tokens, the others at most 33,000".into(),
            ],
            against: vec!["A leak would grow with every step; this falls back after each long batch".into()],
            remedy: "Pack batches by tokens and deal them round-robin over the ranks. A smaller batch would hide this, not cure it.\n\n\
                     - sampler = DistributedSampler(data)\n\
                     + sampler = TokenBatchSampler(lengths, max_tokens=32768, num_replicas=world, rank=rank)"
                .into(),
            evidence: vec![
                lines("job.log", 118, 517, long_line, Some("why.0")),
                lines("job.log", 311, 311, long_line, Some("why.1")),
                lines("job.log", 310, 310, "rank=2 step=77 batch=8x505 tokens=32320 allocated=20312MiB", Some("why.1")),
            ],
        }],
        checklist: checklist([
            (Pass, &[]),
            (Unknown, &[]),
            (Unknown, &[]),
            (Fail, &["f1"]),
            (Unknown, &[]),
            (Unknown, &[]),
            (Pass, &[]),
            (Pass, &[]),
            (Unknown, &[]),
            (Unknown, &[]),
        ]),
        findings: vec![Finding {
            id: "f1".into(),
            item: Item::BatchDivisibility,
            label: Some(CauseLabel::VariableShapeBatches),
            severity: Severity::Critical,
            confidence: 0.95,
            claim: "Tokens per step differ by up to 1.9 times between ranks".into(),
            ranks: vec![3],
            evidence: vec![lines("job.log", 311, 311, long_line, None)],
        }],
        artifacts: vec![file("job.log", ArtifactKind::StepLog, &ranks, &[], 181_224, &[])],
    };
    Report {
        run: RunInfo { id: "01939f0b11aa".into(), title: "bert-varlen, 4 ranks".into(), created_at: MADE_AT },
        version: 1,
        diagnosed_at: MADE_AT,
        figures: Figures {
            timeline: Some(Timeline {
                quantity: Quantity::Allocated,
                axis: SeriesAxis::Step,
                lines: timeline_lines,
                capacity: Some(Bytes::from_mib(40_536)),
                phases: vec![
                    PhaseSpan { phase: Phase::Train, from: 0, to: 290 },
                    PhaseSpan { phase: Phase::Eval, from: 291, to: 340 },
                    PhaseSpan { phase: Phase::Train, from: 341, to: 399 },
                ],
                marks: vec![TimelineMark { x: 64, text: "gap opens".into() }],
            }),
            peaks: Some(Peaks {
                quantity: Quantity::PeakAllocated,
                median: bars[1].peak,
                bars,
                capacity: Some(Bytes::from_mib(40_536)),
                per_node: None,
                at: None,
            }),
            composition: vec![],
            ..Figures::default()
        },
        next: Some((
            Item::DistributedSampler,
            Collect { what: "The sampler and the loader in the training script.".into(), command: "train.py".into() },
        )),
        diagnosis,
    }
}

/// One out-of-memory text and nothing to compare it with.
pub fn inconclusive() -> Report {
    let quote = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 31.74 GiB";
    Report {
        run: RunInfo { id: "01939f0c22bb".into(), title: "pasted text".into(), created_at: MADE_AT },
        version: 1,
        diagnosed_at: MADE_AT,
        diagnosis: Diagnosis {
            events: vec![],
            format: DIAGNOSIS_FORMAT.into(),
            verdict: Verdict::Inconclusive,
            summary: "GPU 0 ran out of memory, but no other rank or GPU is known to compare it with. A table of all GPUs would tell \
                      whether one card or every card is full."
                .into(),
            imbalance: None,
            causes: vec![Cause {
                label: CauseLabel::Unresolved,
                confidence: 1.0,
                ranks: vec![],
                why: vec!["One GPU, one moment: nothing to compare".into()],
                against: vec![],
                remedy: String::new(),
                evidence: vec![lines("pasted.txt", 3, 3, quote, Some("why.0"))],
            }],
            checklist: checklist([(ItemStatus::Unknown, &[]); 10]),
            findings: vec![],
            artifacts: vec![file("pasted.txt", ArtifactKind::OomMessage, &[], &[0], 412, &[])],
        },
        figures: Figures::default(),
        next: Some((
            Item::DeviceVisibility,
            Collect {
                what: "Which process holds how much on which GPU, all cards in one picture.".into(),
                command: "nvidia-smi > smi.txt".into(),
            },
        )),
    }
}

/// Every foreign text tries to become markup, an attribute or a misleading line.
pub fn hostile() -> Report {
    const EVIL: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u{202e}gnp.exe";
    let mut report = step_log();
    report.run.title = EVIL.into();
    report.diagnosis.summary = format!("Because {EVIL}");
    report.diagnosis.artifacts[0].name = EVIL.into();
    report.diagnosis.artifacts[0].warnings = vec![EVIL.into()];
    for cause in &mut report.diagnosis.causes {
        cause.why = vec![EVIL.into()];
        cause.against = vec![EVIL.into()];
        cause.remedy = format!("{EVIL}\n\n+ {EVIL}\n- {EVIL}");
        for reference in &mut cause.evidence {
            reference.artifact = EVIL.into();
            reference.quote = EVIL.into();
            reference.reason = Some("why.0".into());
        }
    }
    for finding in &mut report.diagnosis.findings {
        finding.claim = EVIL.into();
        finding.evidence[0].artifact = EVIL.into();
    }
    for entry in &mut report.diagnosis.checklist {
        entry.collect = collect(EVIL, EVIL);
    }
    if let Some(opens) = report.diagnosis.imbalance.as_mut().and_then(|imbalance| imbalance.opens_at.as_mut()) {
        opens.text = EVIL.into();
    }
    if let Some(timeline) = &mut report.figures.timeline {
        timeline.marks = vec![TimelineMark { x: 64, text: EVIL.into() }];
    }
    report.figures.composition = vec![Composition {
        subject: Subject::Rank(Rank(0)),
        capacity: None,
        parts: vec![Part { kind: PartKind::Allocated, bytes: Bytes(1 << 30) }],
        source: EVIL.into(),
        accused: false,
    }];
    report.next = Some((Item::Verified, Collect { what: EVIL.into(), command: EVIL.into() }));
    report
}
