//! Every input of the rebuilt cases is recognised.
#![allow(
    clippy::unwrap_used,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test that fails should say so at once"
)]

mod common;

use common::{files, read_bytes, shared};
use rankscope_model::{ArtifactKind, Evidence, Phase};
use std::path::Path;

fn read(path: &Path) -> Evidence {
    read_bytes(&path.file_name().unwrap().to_string_lossy(), &std::fs::read(path).unwrap())
}

#[test]
fn every_input_of_the_cases_is_recognised() {
    let Some(folder) = shared("cases") else { return };
    let inputs: Vec<_> = files(&folder, &|name| name != "case.json")
        .into_iter()
        .filter(|path| path.parent().is_some_and(|dir| dir.ends_with("full") || dir.ends_with("given")))
        .collect();
    assert!(inputs.len() >= 180, "{}", inputs.len());
    let mut missed = Vec::new();
    for path in &inputs {
        let evidence = read(path);
        let [artifact] = evidence.artifacts.as_slice() else { panic!("{} is one file", path.display()) };
        if matches!(artifact.kind, ArtifactKind::Text | ArtifactKind::Unreadable) {
            missed.push(format!("{}: {:?} {:?}", path.display(), artifact.kind, artifact.warnings));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Rank, number of frames, innermost function.
type Stack<'a> = (Option<u32>, usize, &'a str);

/// Worked out by reading the files: message for message, the innermost function and how many frames stand there.
#[test]
fn the_stack_in_front_of_each_message_is_kept() {
    let Some(folder) = shared("cases") else { return };
    let expected: [(&str, &str, &[Stack]); 14] = [
        ("C19", "resume.log", &[(Some(5), 9, "_cuda"), (Some(3), 9, "_cuda"), (Some(6), 9, "_cuda")]),
        (
            "C31",
            "job.log",
            &[
                (Some(4), 6, "set_module_tensor_to_device"),
                (Some(6), 6, "set_module_tensor_to_device"),
                (Some(1), 6, "set_module_tensor_to_device"),
            ],
        ),
        ("C39", "ray_job.log", &[(None, 1, "load_model")]),
        ("C41", "oom.txt", &[(None, 4, "backward")]),
        ("C60", "train.log", &[(Some(0), 6, "forward")]),
        ("C64", "job.log", &[(Some(1), 7, "_full_post_state_dict_hook")]),
        ("C66", "train.log", &[(None, 6, "get_layer_state_dict")]),
        ("C68", "train.log", &[(Some(0), 7, "forward")]),
        ("C69", "eval.log", &[(None, 6, "all_gather")]),
        ("C72", "train.log", &[(None, 3, "prediction_loop")]),
        ("C91", "ray_job.log", &[(None, 3, "foreach_all_gather")]),
        ("C99", "oom_rank5.txt", &[(Some(5), 4, "_rebuild_full_params")]),
        ("C114", "rerun.log", &[(None, 2, "forward_track_train")]),
        ("C123", "train.log", &[(None, 3, "parallel_apply")]),
    ];
    for (case, file, messages) in expected {
        let evidence = read(&folder.join(case).join("full").join(file));
        let found: Vec<_> = evidence
            .ooms
            .iter()
            .map(|oom| {
                let innermost = oom.frames.first().map_or("", |frame| frame.function.as_str());
                (oom.rank.map(|rank| rank.0), oom.frames.len(), innermost)
            })
            .collect();
        assert_eq!(found, messages, "{case}/{file}");
    }
}

#[test]
fn every_traceback_that_ends_in_a_message_is_attached() {
    let Some(folder) = shared("cases") else { return };
    let out_of_memory = regex::Regex::new(r"^\S*(?:Error|Exception): CUDA out of memory").unwrap();
    let prefix = regex::Regex::new(r"^(?:\[\w+=?\d+\]:? ?|\d+: |\(\w+ pid=\d+\) )").unwrap();
    let mut seen = 0;
    for path in files(&folder, &|name| name.ends_with(".log") || name.ends_with(".txt")) {
        let text = std::fs::read_to_string(&path).unwrap();
        // Messages right behind the source line of a frame.
        let lines: Vec<String> = text.lines().map(|line| prefix.replace(line, "").into_owned()).collect();
        let behind = (2..lines.len())
            .filter(|n| out_of_memory.is_match(&lines[*n]) && lines[n - 2].trim_start().starts_with("File \""));
        let behind: Vec<u64> = behind.map(|n| n as u64 + 1).collect();
        let evidence = read(&path);
        for line in behind {
            let oom = evidence.ooms.iter().find(|oom| oom.at.place == rankscope_model::Place::Line(line));
            // A repeat of a message is counted once.
            if let Some(oom) = oom {
                assert!(!oom.frames.is_empty(), "{}:{line}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn launches_of_the_cases_are_read() {
    use rankscope_model::{LaunchSetting as S, Starter};
    let Some(folder) = shared("cases") else { return };
    let devices = |ids: &[&str]| S::VisibleDevices(ids.iter().map(|id| (*id).to_owned()).collect());
    let program = |name: &str| S::Program(name.to_owned());
    let expected: Vec<(&str, &str, ArtifactKind, Vec<S>)> = vec![
        (
            "C05",
            "run.sh",
            ArtifactKind::LaunchScript,
            vec![S::Starter(Starter::Torchrun), S::ProcessesPerNode(4), program("train.py")],
        ),
        (
            "C07",
            "run.sh",
            ArtifactKind::LaunchScript,
            vec![S::Starter(Starter::Horovod), S::WorldSize(8), program("train_hvd.py")],
        ),
        (
            "C19",
            "job.sh",
            ArtifactKind::LaunchScript,
            vec![
                S::ProcessesPerNode(8),
                S::GpusPerNode(8),
                S::WorldSize(8),
                S::Starter(Starter::Srun),
                program("run_language_modeling.py"),
                S::MicroBatch(1),
                S::Accumulation(4),
            ],
        ),
        (
            "C21",
            "run.sh",
            ArtifactKind::LaunchScript,
            vec![devices(&["2", "3"]), S::Starter(Starter::Torchrun), S::ProcessesPerNode(2), program("train.py")],
        ),
        (
            "C37",
            "run.sh",
            ArtifactKind::LaunchScript,
            vec![S::Starter(Starter::Mpi), S::WorldSize(8), program("-m procgen_train.train")],
        ),
        (
            "C66",
            "ds_config.json",
            ArtifactKind::DeepspeedConfig,
            vec![
                S::MicroBatch(1),
                S::Accumulation(4),
                S::MixedPrecision("fp16".to_owned()),
                S::ZeroStage(3),
                S::OffloadOptimizer("cpu".to_owned()),
                S::OffloadParameters("cpu".to_owned()),
                S::GathersWeightsOnSave(true),
            ],
        ),
        (
            "C89",
            "run.sh",
            ArtifactKind::LaunchScript,
            vec![
                devices(&["1"]),
                S::InferenceEngine("vllm".to_owned()),
                S::MemoryShare(0.9),
                S::Starter(Starter::Python),
                program("train_grpo.py"),
                S::InferenceEngine("vllm".to_owned()),
                S::MicroBatch(4),
            ],
        ),
        (
            "U11",
            "run.sh",
            ArtifactKind::LaunchScript,
            vec![devices(&["5", "3", "4"]), S::Starter(Starter::Accelerate), S::WorldSize(3), program("train.py")],
        ),
        ("C62", "run_a.log", ArtifactKind::StepLog, vec![S::WorldSize(4)]),
    ];
    for (case, file, kind, settings) in expected {
        let evidence = read(&folder.join(case).join("full").join(file));
        assert_eq!(evidence.artifacts[0].kind, kind, "{case}/{file}");
        let found: Vec<S> = evidence.launches.iter().flat_map(|l| &l.facts).map(|f| f.what.clone()).collect();
        let launched: Vec<S> =
            found.into_iter().filter(|s| kind != ArtifactKind::StepLog || matches!(s, S::WorldSize(_))).collect();
        assert_eq!(launched, settings, "{case}/{file}");
    }
}

#[test]
fn phases_of_the_cases_are_read() {
    let Some(folder) = shared("cases") else { return };
    for (case, file, phase) in
        [("C60", "train.log", Phase::Eval), ("C69", "eval.log", Phase::Eval), ("C68", "train.log", Phase::Eval)]
    {
        let evidence = read(&folder.join(case).join("full").join(file));
        let last = evidence.phases.last().map(|mark| mark.phase);
        assert_eq!(last, Some(phase), "{case}/{file}: {:?}", evidence.phases);
    }
}
