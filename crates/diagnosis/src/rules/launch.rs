//! How the job was launched: engines beside the training, batch and ZeRO settings. Shown
//! under `device_visibility` and `batch_divisibility`.

mod binding;

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::words;
use rankscope_model::{
    CauseLabel, Item, ItemStatus, LaunchEvidence, LaunchFact, LaunchSetting, LaunchSource, Severity, Starter, Subject,
};
use std::collections::BTreeSet;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    for launch in &case.evidence.launches {
        engine_beside(case, launch, ledger);
        more_processes_than_devices(case, launch, ledger);
    }
    binding::apply(case, ledger);
    engine_in_log(case, ledger);
    one_process_or_many(case, ledger);
    left_alone(case, ledger);
    unequal(case, ledger);
    gathers_on_save(case, ledger);
    batch(case, ledger);
}

fn facts<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a LaunchFact> {
    case.evidence.launches.iter().flat_map(|launch| &launch.facts)
}

/// The devices that a command sees, as numbers; `None` when it is not told or not by numbers.
fn devices(launch: &LaunchEvidence, command: u32) -> Option<(BTreeSet<u32>, &LaunchFact)> {
    let of = |wanted: u32| launch.facts.iter().rev().filter(move |fact| fact.command == wanted);
    let mut visible = of(command).chain(of(0)).filter_map(|fact| match &fact.what {
        LaunchSetting::VisibleDevices(list) => Some((list, fact)),
        _ => None,
    });
    let (list, fact) = visible.next()?;
    let numbers: Option<BTreeSet<u32>> = list.iter().map(|device| device.parse().ok()).collect();
    Some((numbers?, fact))
}

/// An inference engine gets a GPU that the training sees as well.
fn engine_beside(case: &Case, launch: &LaunchEvidence, ledger: &mut Ledger) {
    let trains = |command: u32| {
        let mut of = launch.facts.iter().filter(|fact| fact.command == command);
        of.any(|fact| matches!(fact.what, LaunchSetting::Starter(_)))
    };
    let engine = launch.facts.iter().find_map(|fact| match &fact.what {
        LaunchSetting::InferenceEngine(name) if fact.command > 0 && !trains(fact.command) => Some((fact, name)),
        _ => None,
    });
    let Some((engine, name)) = engine else { return };
    let training = launch.facts.iter().find(|fact| fact.command != engine.command && trains(fact.command));
    let (Some(training), Some((own, _))) = (training, devices(launch, engine.command)) else { return };
    let shares = devices(launch, training.command).is_none_or(|(seen, _)| !seen.is_disjoint(&own));
    if !shares {
        return;
    }
    let places: Vec<Subject> = own.iter().map(|device| Subject::Device(*device)).collect();
    let heavy = |subject: &Subject| case.gap_on(*subject).is_some();
    let fails = case.evidence.ooms.iter().any(|oom| !oom.host_memory && oom.device.is_some_and(|d| own.contains(&d)));
    let gain = if fails || places.iter().any(heavy) { weight::STRONG } else { weight::FAIR };
    let refs = case.refs([&engine.at, &training.at]);
    let text = format!("The launch starts {name} on {}, and the training sees that GPU too.", words::subjects(&places));
    let label = CauseLabel::ColocatedEngineOrDeviceMap;
    ledger.signal(&[label], gain, &text, &refs);
    ledger.signal(
        &[CauseLabel::OtherTenant, CauseLabel::ZombieLeftover],
        -weight::FAIR,
        "The engine is of the same launch, not a stranger.",
        &refs,
    );
    let mechanism = Mechanism {
        because: format!("{name} of the same launch holds memory on it"),
        alone: text.clone(),
        explained: None,
    };
    ledger.mechanism(&[label], &mechanism);
    suspect(ledger, ItemStatus::Suspect, Some(label), text, refs);
}

/// Four processes on two visible GPUs.
fn more_processes_than_devices(case: &Case, launch: &LaunchEvidence, ledger: &mut Ledger) {
    for fact in &launch.facts {
        let LaunchSetting::ProcessesPerNode(processes) = fact.what else { continue };
        let Some((visible, told)) = devices(launch, fact.command) else { continue };
        let seen = u32::try_from(visible.len()).unwrap_or(u32::MAX);
        // An environment is of one process: what it sees may be its own card alone.
        if processes <= seen || seen == 0 || launch.source == LaunchSource::Environment {
            continue;
        }
        let refs = case.refs([&fact.at, &told.at]);
        let text = format!("The launch starts {processes} processes on each node and shows them {seen} GPUs.");
        let label = CauseLabel::RankGpuMapping;
        ledger.signal(&[label], weight::STRONG, &text, &refs);
        let because = "more processes are started than GPUs are visible".to_owned();
        ledger.mechanism(&[label], &Mechanism { because, alone: text.clone(), explained: None });
        suspect(ledger, ItemStatus::Fail, Some(label), text, refs);
        return;
    }
}

/// Words in the paths of trainers that generate with an engine while they train.
const GENERATING_TRAINERS: &[&str] = &["grpo", "online_dpo", "rloo", "ppo", "/verl/", "/openrlhf/"];

/// The log shows an inference server, and another process holds the larger part of the card that ran out.
fn engine_in_log(case: &Case, ledger: &mut Ledger) {
    let printed = case.evidence.launches.iter().filter(|launch| launch.source == LaunchSource::Log);
    let engine = printed.flat_map(|launch| &launch.facts).find_map(|fact| match &fact.what {
        LaunchSetting::InferenceEngine(name) => Some((fact, name)),
        _ => None,
    });
    let Some((fact, name)) = engine else { return };
    let beside = case.evidence.ooms.iter().filter(|oom| !oom.host_memory).find_map(|oom| match oom.others.as_slice() {
        [other] if oom.total.is_some_and(|total| other.used.0 >= total.0 / 2) => Some((oom, other)),
        _ => None,
    });
    let Some((oom, other)) = beside else { return };
    let refs = case.refs([&fact.at, &oom.at]);
    let text =
        format!("The log shows {name}, and PID {} holds {} of the card that ran out of memory.", other.pid, other.used);
    let label = CauseLabel::ColocatedEngineOrDeviceMap;
    ledger.signal(&[label], weight::GOOD, &text, &refs);
    let generates = oom.frames.iter().any(|frame| {
        let file = frame.file.to_ascii_lowercase();
        GENERATING_TRAINERS.iter().any(|word| file.contains(word))
    });
    if generates {
        let reason = "The trainer that failed generates with an inference engine while it trains.";
        ledger.signal(&[label], weight::FAIR, reason, &refs);
    }
    let against = "A server of the same log is of this job, not a stranger.";
    ledger.signal(&[CauseLabel::OtherTenant, CauseLabel::ZombieLeftover], -weight::FAINT, against, &refs);
    let because = format!("{name} of the same job holds memory on it");
    ledger.mechanism(&[label], &Mechanism { because, alone: text.clone(), explained: Some(other.used.0) });
    suspect(ledger, ItemStatus::Suspect, Some(label), text, refs);
}

/// A launcher of many processes speaks against one process on all cards, and the other way round.
fn one_process_or_many(case: &Case, ledger: &mut Ledger) {
    let several = facts(case).find(|fact| match fact.what {
        LaunchSetting::WorldSize(n) | LaunchSetting::ProcessesPerNode(n) => n >= 2,
        LaunchSetting::ProcessPerGpu => true,
        _ => false,
    });
    let drives = facts(case).find(|fact| matches!(fact.what, LaunchSetting::GpusPerProcess(n) if n >= 2));
    let alone = facts(case).find(|fact| fact.what == LaunchSetting::Starter(Starter::Python));
    match (several, drives, alone) {
        (Some(fact), ..) => {
            let labels = [CauseLabel::DataparallelMaster, CauseLabel::SingleGpuJobIdleContexts];
            ledger.signal(&labels, -weight::FAIR, "The launch starts several processes.", &case.refs([&fact.at]));
        }
        (None, Some(fact), _) if fact.at.quote.contains("n_gpu") => {
            let text = "The program says that one process drives several GPUs.";
            ledger.signal(&[CauseLabel::DataparallelMaster], weight::GOOD, text, &case.refs([&fact.at]));
        }
        (None, _, Some(fact)) => {
            let text = "The launch starts one process, without a launcher for several.";
            let refs = case.refs([&fact.at]);
            ledger.signal(&[CauseLabel::DataparallelMaster], weight::FAINT, text, &refs);
        }
        _ => {}
    }
}

/// Ray told to leave the visible devices alone.
fn left_alone(case: &Case, ledger: &mut Ledger) {
    if let Some(fact) = facts(case).find(|fact| fact.what == LaunchSetting::VisibleDevicesLeftAlone) {
        let text =
            "Ray is told to leave CUDA_VISIBLE_DEVICES alone: every actor sees every GPU and must choose itself.";
        ledger.signal(&[CauseLabel::RankGpuMapping], weight::FAIR, text, &case.refs([&fact.at]));
    }
}

/// PyTorch's own warning.
fn unequal(case: &Case, ledger: &mut Ledger) {
    let warned = facts(case).find_map(|fact| match fact.what {
        LaunchSetting::UnequalGpus { lesser, other } => Some((fact, lesser, other)),
        _ => None,
    });
    let Some((fact, lesser, other)) = warned else { return };
    let refs = case.refs([&fact.at]);
    let text = format!(
        "PyTorch warns that {} has less than three quarters of the memory or cores of {}.",
        Subject::Device(lesser),
        Subject::Device(other)
    );
    let label = CauseLabel::HeterogeneousOrDisplayGpu;
    ledger.signal(&[label], weight::STRONG, &text, &refs);
    let because = "the cards are not equal".to_owned();
    ledger.mechanism(&[label], &Mechanism { because, alone: text.clone(), explained: None });
    suspect(ledger, ItemStatus::Suspect, Some(label), text, refs);
}

/// ZeRO stage 3 that collects the weights when it saves.
fn gathers_on_save(case: &Case, ledger: &mut Ledger) {
    let on = |fact: &&LaunchFact| match &fact.what {
        LaunchSetting::GathersWeightsOnSave(on) => *on,
        LaunchSetting::StateDictType(kind) => kind.contains("FULL_STATE"),
        _ => false,
    };
    if let Some(fact) = facts(case).find(on) {
        let label = CauseLabel::CkptStateGather;
        let gain = if ledger.speaks_for(label) { weight::FAIR } else { weight::FAINT };
        ledger.signal(
            &[label],
            gain,
            "The configuration gathers the full weights when it saves.",
            &case.refs([&fact.at]),
        );
    }
}

/// Global batch, micro batch, accumulation and world size must fit together.
fn batch(case: &Case, ledger: &mut Ledger) {
    let one = |pick: fn(&LaunchSetting) -> Option<u32>| -> Option<(u64, &LaunchFact)> {
        let found: Vec<_> = facts(case).filter_map(|fact| Some((pick(&fact.what)?, fact))).collect();
        let (first, fact) = found.first()?;
        found.iter().all(|(n, _)| n == first).then_some((u64::from(*first), *fact))
    };
    let global = one(|s| if let LaunchSetting::GlobalBatch(n) = s { Some(*n) } else { None });
    let world = one(|s| if let LaunchSetting::WorldSize(n) = s { Some(*n) } else { None });
    let (Some((global, at)), Some((world, told))) = (global, world) else { return };
    // Ranks of one model replica get the same samples.
    let replicas = facts(case).any(
        |fact| matches!(fact.what, LaunchSetting::TensorParallel(n) | LaunchSetting::PipelineParallel(n) if n > 1),
    );
    if world < 2 || replicas {
        return;
    }
    let refs = case.refs([&at.at, &told.at]);
    let is_even = global.is_multiple_of(world);
    let (text, severity) = if is_even {
        (format!("A global batch of {global} divides evenly over {world} ranks, in samples."), Severity::Info)
    } else {
        (format!("A global batch of {global} does not divide evenly over {world} ranks."), Severity::Warning)
    };
    if !is_even {
        ledger.signal(&[CauseLabel::UnevenBatchSplit], weight::GOOD, &text, &refs);
        ledger.status(Item::BatchDivisibility, ItemStatus::Suspect);
    }
    ledger.claim(Claim {
        item: Item::BatchDivisibility,
        label: (!is_even).then_some(CauseLabel::UnevenBatchSplit),
        severity,
        confidence: 0.9,
        text,
        ranks: vec![],
        refs,
    });
}

fn suspect(
    ledger: &mut Ledger,
    status: ItemStatus,
    label: Option<CauseLabel>,
    text: String,
    refs: Vec<rankscope_model::EvidenceRef>,
) {
    ledger.status(Item::DeviceVisibility, status);
    let severity = if status == ItemStatus::Pass { Severity::Info } else { Severity::Warning };
    ledger.claim(Claim { item: Item::DeviceVisibility, label, severity, confidence: 0.9, text, ranks: vec![], refs });
}
