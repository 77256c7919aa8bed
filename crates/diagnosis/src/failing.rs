//! What a program was doing when memory ran out, told by the stack of the failure or by the phase of the log.
//!
//! Knows names of functions and files; knows no cause.

use rankscope_model::{ArtifactId, Evidence, Frame, OomEvent, Phase, Place, Rank};

/// What was being done, most telling first where a stack shows several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doing {
    /// Tensors of a checkpoint are put back on the GPU they were saved from.
    RestoringToGpu,
    /// Weights are loaded or the model is moved to a GPU.
    Placing,
    /// The whole state of a sharded model, or of the optimizer, is collected.
    GatheringState,
    /// A checkpoint is written.
    Saving,
    /// A graph is traced, samples or images are made for the log.
    Logging,
    /// Predictions or metrics of all ranks are collected.
    GatheringMetrics,
    /// Evaluation.
    Evaluating,
    /// `DataParallel` copies the model or gathers its output.
    Replicating,
    /// An ordinary training step.
    Training,
}

/// Where a stack fails: the frame that tells what is being done, and the user's own line that led there.
pub(crate) struct Failing<'a> {
    /// What is being done.
    pub doing: Doing,
    /// The frame that tells.
    pub sign: &'a Frame,
    /// The innermost frame of the user's own code, if it is another one.
    pub own: Option<&'a Frame>,
}

/// Words of function names, and what such a function does; the innermost frame with one decides.
const FUNCTIONS: &[(&[&str], Doing)] = &[
    (
        &[
            "load_state_dict",
            "load_checkpoint",
            "load_pretrained",
            "from_pretrained",
            "set_module_tensor_to_device",
            "load_model",
        ],
        Doing::Placing,
    ),
    (
        &["state_dict", "summon_full", "gather_16bit", "gather_fp16", "save_16bit", "save_fp16", "full_optim"],
        Doing::GatheringState,
    ),
    (&["save_checkpoint", "dump_checkpoint", "save_pretrained", "save_model", "_save_last"], Doing::Saving),
    (
        &[
            "add_graph",
            "log_img",
            "log_image",
            "sample_log",
            "p_sample",
            "ddim_sampl",
            "generate_samples",
            "log_samples",
            "log_predictions",
            "visualize",
        ],
        Doing::Logging,
    ),
    (
        &[
            "all_gather",
            "gather_object",
            "gather_for_metrics",
            "nested_gather",
            "nested_concat",
            "pad_across",
            "synchronize_between",
            "collect_results",
            "merge_results",
            "sync_dist_metric",
        ],
        Doing::GatheringMetrics,
    ),
    (
        &[
            "validat",
            "eval_step",
            "eval_loop",
            "eval_epoch",
            "evaluation",
            "prediction_step",
            "prediction_loop",
            "predict_loop",
            "test_step",
            "val_step",
            "val_epoch",
            "test_epoch",
            "run_eval",
            "inference_on",
        ],
        Doing::Evaluating,
    ),
    (
        &["backward", "training_step", "train_step", "train_one_epoch", "train_epoch", "clip_grad", "optimizer_step"],
        Doing::Training,
    ),
];

/// Whole names of functions.
const NAMES: &[(&[&str], Doing)] = &[
    (&["evaluate", "eval", "validate", "val", "test"], Doing::Evaluating),
    (&["to", "cuda", "_apply"], Doing::Placing),
    (&["train", "fit"], Doing::Training),
];

/// Ends or parts of file names.
const FILES: &[(&[&str], Doing)] = &[
    (&["torch/jit/_trace.py", "torch/onnx/"], Doing::Logging),
    (&["torchmetrics/"], Doing::GatheringMetrics),
    (
        &[
            "torch/nn/parallel/data_parallel.py",
            "torch/nn/parallel/replicate.py",
            "torch/nn/parallel/parallel_apply.py",
            "torch/nn/parallel/scatter_gather.py",
            "torch/nn/parallel/comm.py",
        ],
        Doing::Replicating,
    ),
    (&["torch/optim/"], Doing::Training),
];

/// Libraries that gather shards all the time, in training as well.
const SHARDING: [&str; 5] =
    ["/fsdp/", "deepspeed/runtime/zero", "_functional_collectives", "tensor_parallel", "/_tensor/"];

/// Reads a stack, innermost frame first; `None` when no frame tells anything.
pub(crate) fn of_stack(frames: &[Frame]) -> Option<Failing<'_>> {
    let (at, sign, doing) =
        frames.iter().enumerate().find_map(|(at, frame)| Some((at, frame, of_frame(frame, frames.get(at + 1..)?)?)))?;
    let outer = frames.get(at + 1..).unwrap_or_default();
    let own = frames.iter().find(|frame| is_own(frame)).filter(|own| *own != sign);
    // What is gathered in a forward pass (a loss over all ranks) is part of the step, unless evaluation asked for it.
    let doing = if doing == Doing::GatheringMetrics && is_within_step(outer) { Doing::Training } else { doing };
    Some(Failing { doing, sign, own })
}

fn of_frame(frame: &Frame, outer: &[Frame]) -> Option<Doing> {
    let file = frame.file.replace('\\', "/");
    let function = frame.function.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    if file.ends_with("torch/serialization.py") || file.ends_with("torch/_utils.py") && leads_to_load(outer) {
        let saves = function.contains("save");
        return Some(if saves { Doing::Saving } else { Doing::RestoringToGpu });
    }
    if SHARDING.iter().any(|part| file.contains(part)) {
        // Inside these only the collection of the whole state tells.
        let (words, doing) = FUNCTIONS.get(1)?;
        return words.iter().any(|word| function.contains(word)).then_some(*doing);
    }
    // `Module._apply`, `Module.to`: weights on their way to a GPU, while `Tensor.to` can be anything.
    let is_module = file.ends_with("torch/nn/modules/module.py");
    if let Some((_, doing)) = NAMES.iter().find(|(names, _)| names.contains(&function.as_str())) {
        let holds = *doing != Doing::Placing || is_module;
        return holds.then_some(*doing);
    }
    if function.contains("save_evaluate") {
        return None;
    }
    let named = FUNCTIONS.iter().find(|(words, _)| words.iter().any(|word| function.contains(word)));
    let filed = || FILES.iter().find(|(parts, _)| parts.iter().any(|part| file.contains(part)));
    named.or_else(filed).map(|(_, doing)| *doing)
}

fn leads_to_load(outer: &[Frame]) -> bool {
    outer.iter().take(4).any(|frame| frame.file.ends_with("torch/serialization.py"))
}

fn is_within_step(outer: &[Frame]) -> bool {
    let first = outer.iter().find_map(|frame| {
        let function = frame.function.to_ascii_lowercase();
        let steps = ["training_step", "train_step", "compute_loss", "forward", "train_one_epoch", "backward"];
        if steps.iter().any(|word| function.contains(word)) {
            return Some(true);
        }
        (of_frame(frame, &[]) == Some(Doing::Evaluating)).then_some(false)
    });
    first == Some(true)
}

fn is_own(frame: &Frame) -> bool {
    let libraries = ["site-packages", "dist-packages", "/torch/", "<frozen", "/lib/python3"];
    frame.line > 0 && !libraries.iter().any(|part| frame.file.contains(part))
}

/// `function (trainer.py:12)`.
pub(crate) fn place(frame: &Frame) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{} ({file}:{})", frame.function, frame.line)
}

/// The phase that the log had announced before a failure, by the same writer as far as ranks are known.
pub(crate) fn phase_before(evidence: &Evidence, oom: &OomEvent) -> Option<Phase> {
    let line = |place: Place| match place {
        Place::Line(line) | Place::Lines(line, _) => Some(line),
        Place::Offset(_) => None,
    };
    let at = line(oom.at.place)?;
    let before =
        |artifact: ArtifactId, place: Place| line(place).filter(|line| artifact == oom.at.artifact && *line < at);
    let is_same = |rank: Option<Rank>| rank == oom.rank || rank.is_none() || oom.rank.is_none();
    let marks = evidence.phases.iter().filter(|mark| is_same(mark.rank));
    let (from, phase) = marks.filter_map(|mark| Some((before(mark.at.artifact, mark.at.place)?, mark.phase))).max()?;
    // A step of training behind the mark: the phase is over.
    let is_over = evidence.steps.iter().any(|row| {
        row.phase == Some(Phase::Train) && before(row.at.artifact, row.at.place).is_some_and(|line| line > from)
    });
    Some(if is_over { Phase::Train } else { phase })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Vec<Frame> {
        frames
            .iter()
            .map(|(file, function)| Frame { function: (*function).to_owned(), file: (*file).to_owned(), line: 7 })
            .collect()
    }

    fn doing(frames: &[(&str, &str)]) -> Option<Doing> {
        of_stack(&stack(frames)).map(|failing| failing.doing)
    }

    #[test]
    fn the_innermost_telling_frame_decides() {
        let module = "/opt/site-packages/torch/nn/modules/module.py";
        for (frames, expected) in [
            (
                vec![
                    ("torch/_utils.py", "_cuda"),
                    ("x/torch/serialization.py", "_cuda_deserialize"),
                    ("t.py", "resume"),
                ],
                Doing::RestoringToGpu,
            ),
            (
                vec![
                    ("x/torch/distributed/fsdp/_flat_param.py", "_all_gather_flat_param"),
                    ("l/fsdp.py", "lightning_module_state_dict"),
                ],
                Doing::GatheringState,
            ),
            (
                vec![("x/torch/distributed/fsdp/_state_dict_utils.py", "_full_post_state_dict_hook"), ("t.py", "main")],
                Doing::GatheringState,
            ),
            (
                vec![
                    ("x/deepspeed/runtime/engine.py", "save_fp16_model"),
                    ("x/trainer.py", "_maybe_log_save_evaluate"),
                ],
                Doing::GatheringState,
            ),
            (
                vec![
                    ("x/conv.py", "forward"),
                    ("x/validator.py", "__call__"),
                    ("x/trainer.py", "validate"),
                    ("x/trainer.py", "train"),
                ],
                Doing::Evaluating,
            ),
            (
                vec![("x/attention.py", "forward"), ("x/ddim_hacked.py", "ddim_sampling"), ("x/cldm.py", "log_images")],
                Doing::Logging,
            ),
            (
                vec![("u/dist.py", "all_gather"), ("e.py", "synchronize_between_processes"), ("e.py", "evaluate")],
                Doing::GatheringMetrics,
            ),
            (vec![("u/dist.py", "all_gather"), ("loss.py", "forward"), ("t.py", "train_one_epoch")], Doing::Training),
            (vec![("x/torch/nn/parallel/comm.py", "broadcast_coalesced"), ("t.py", "main")], Doing::Replicating),
            (vec![(module, "convert"), (module, "_apply"), (module, "to"), ("t.py", "main")], Doing::Placing),
            (vec![("x/modeling.py", "set_module_tensor_to_device"), ("x/m.py", "from_pretrained")], Doing::Placing),
            (vec![("x/torch/autograd/graph.py", "_engine_run_backward"), ("t.py", "main")], Doing::Training),
            (
                vec![("x/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather"), ("a.py", "train")],
                Doing::Training,
            ),
            (vec![("x/torch/optim/adamw.py", "_init_group"), ("t.py", "main")], Doing::Training),
        ] {
            assert_eq!(doing(&frames), Some(expected), "{frames:?}");
        }
        assert_eq!(doing(&[("t.py", "main")]), None);
        assert_eq!(doing(&[]), None);
        assert_eq!(doing(&[("x/tensor_utils.py", "to"), ("t.py", "main")]), None);
    }

    #[test]
    fn the_users_own_line_is_named_beside_the_sign() {
        let frames = stack(&[("/x/site-packages/torch/nn/modules/module.py", "state_dict"), ("/w/train.py", "save")]);
        let failing = of_stack(&frames).unwrap();
        assert_eq!(place(failing.sign), "state_dict (module.py:7)");
        assert_eq!(failing.own.map(place).as_deref(), Some("save (train.py:7)"));
    }
}
