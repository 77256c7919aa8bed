//! Names that carry meaning: variables of launchers, words for ranks, models, evaluation and losses, known packages.
//!
//! Tables and small predicates only. Knows no syntax and no flow.

use super::value::{RankKind, Selects};
use rankscope_model::Launcher;

/// An environment variable that holds a rank, with the launcher that sets it.
pub(super) fn rank_variable(name: &str) -> Option<(RankKind, Launcher)> {
    Some(match name {
        "RANK" => (RankKind::Global, Launcher::Environment),
        "LOCAL_RANK" => (RankKind::Local, Launcher::Environment),
        "SLURM_PROCID" => (RankKind::Global, Launcher::Slurm),
        "SLURM_LOCALID" => (RankKind::Local, Launcher::Slurm),
        "OMPI_COMM_WORLD_RANK" | "PMI_RANK" | "PMIX_RANK" | "MV2_COMM_WORLD_RANK" => (RankKind::Global, Launcher::Mpi),
        "OMPI_COMM_WORLD_LOCAL_RANK" | "MPI_LOCALRANKID" | "MV2_COMM_WORLD_LOCAL_RANK" => {
            (RankKind::Local, Launcher::Mpi)
        }
        _ => return None,
    })
}

/// A variable, attribute or option that holds a rank by custom, where nothing better is known.
pub(super) fn rank_name(name: &str) -> Option<RankKind> {
    match name {
        "rank" | "global_rank" | "world_rank" | "process_index" | "proc_id" => Some(RankKind::Global),
        "local_rank" | "localrank" | "local_process_index" | "gpu" | "gpu_id" | "local_gpu" | "gpu_rank" => {
            Some(RankKind::Local)
        }
        _ => None,
    }
}

/// A function or method that gives the rank.
pub(super) fn rank_call(name: &str) -> Option<RankKind> {
    match name {
        "get_rank" | "Get_rank" | "get_global_rank" | "get_ordinal" | "process_index" => Some(RankKind::Global),
        "get_local_rank" | "local_rank" | "get_node_local_rank" | "get_local_ordinal" | "local_process_index" => {
            Some(RankKind::Local)
        }
        _ => None,
    }
}

/// A flag or function that is true on one rank only.
pub(super) fn main_process_flag(name: &str) -> Option<Selects> {
    match name {
        "is_main_process"
        | "is_master"
        | "is_master_process"
        | "is_rank_zero"
        | "is_rank_0"
        | "is_rank0"
        | "is_global_zero"
        | "is_world_process_zero"
        | "master_process"
        | "main_process"
        | "is_main"
        | "is_chief"
        | "is_master_proc"
        | "on_main_process"
        | "is_primary"
        | "is_root" => Some(Selects::RankZero),
        "is_local_main_process" | "is_local_process_zero" | "is_local_master" => Some(Selects::LocalRankZero),
        _ => None,
    }
}

/// A decorator under which a function runs on one rank only.
pub(super) fn rank_zero_decorator(name: &str) -> Option<Selects> {
    match name {
        "rank_zero_only"
        | "master_only"
        | "main_process_only"
        | "on_main_process"
        | "rank0_only"
        | "only_rank_zero"
        | "is_main_process_only" => Some(Selects::RankZero),
        "on_local_main_process" | "local_rank_zero_only" => Some(Selects::LocalRankZero),
        _ => None,
    }
}

/// A flag that says whether the job is distributed at all.
pub(super) fn is_distributed_flag(name: &str) -> bool {
    matches!(
        name,
        "distributed"
            | "is_distributed"
            | "use_ddp"
            | "ddp"
            | "is_ddp"
            | "use_distributed"
            | "multiprocessing_distributed"
            | "multi_gpu"
            | "is_initialized"
            | "parallel"
    )
}

/// A name for the number of processes.
pub(super) fn is_world_size(name: &str) -> bool {
    matches!(name, "world_size" | "world" | "n_gpus" | "num_gpus" | "ngpus" | "nprocs" | "WORLD_SIZE" | "ws" | "n_gpu")
}

/// An object that holds options.
pub(super) fn is_options(name: &str) -> bool {
    matches!(
        name,
        "args"
            | "arg"
            | "opt"
            | "opts"
            | "options"
            | "hparams"
            | "hps"
            | "hp"
            | "config"
            | "cfg"
            | "conf"
            | "FLAGS"
            | "flags"
            | "params"
            | "a"
            | "parsed"
            | "script_args"
            | "training_args"
            | "train_args"
    )
}

/// A variable that holds a model by custom.
pub(super) fn is_model(name: &str) -> bool {
    let name = name.trim_start_matches('_').trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    let stem = name.strip_suffix("_ddp").or_else(|| name.strip_suffix("_engine")).unwrap_or(name);
    let stem = stem.strip_prefix("ddp_").unwrap_or(stem);
    matches!(
        stem,
        "model"
            | "net"
            | "network"
            | "generator"
            | "discriminator"
            | "netG"
            | "netD"
            | "G"
            | "D"
            | "unet"
            | "vae"
            | "encoder"
            | "decoder"
            | "backbone"
            | "student"
            | "teacher"
            | "policy"
            | "actor"
            | "critic"
            | "transformer"
            | "text_encoder"
            | "module"
            | "llm"
            | "raw_model"
            | "base_model"
            | "module_engine"
    ) || stem.ends_with("_model")
        || stem.ends_with("_net")
        || stem.starts_with("model_")
}

/// A function, variable or data set that is about evaluation.
pub(super) fn is_eval(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphabetic()).any(|word| {
        matches!(
            word,
            "eval"
                | "evaluate"
                | "evaluation"
                | "val"
                | "valid"
                | "validate"
                | "validation"
                | "test"
                | "dev"
                | "predict"
                | "prediction"
                | "inference"
                | "infer"
                | "evaluator"
                | "vl"
        )
    }) || ["validloader", "valloader", "testloader", "evalloader", "valset", "testset"].contains(&name.as_str())
}

/// A variable or data set that is about training.
pub(super) fn is_train(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphabetic()).any(|word| matches!(word, "train" | "training" | "tr" | "trn"))
        || name.starts_with("train")
}

/// A variable that holds a loader by custom.
pub(super) fn is_loader(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("loader")
        || matches!(name.as_str(), "dl" | "train_dl" | "val_dl" | "test_dl" | "batches" | "prefetcher")
}

/// A name that speaks of epochs.
pub(super) fn is_epoch(name: &str) -> bool {
    name.to_ascii_lowercase().contains("epoch")
}

/// A variable that holds a loss by custom.
pub(super) fn is_loss(name: &str) -> bool {
    name.to_ascii_lowercase().split('_').any(|word| matches!(word, "loss" | "losses" | "cost"))
}

/// A call of this name evaluates the model.
pub(super) fn is_eval_call(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    matches!(
        name,
        "evaluate"
            | "validate"
            | "validation"
            | "evaluation"
            | "eval_epoch"
            | "val_epoch"
            | "test_epoch"
            | "run_validation"
            | "run_eval"
            | "run_evaluation"
            | "do_eval"
            | "do_validation"
            | "eval_model"
            | "test_model"
            | "validate_model"
            | "evaluate_model"
            | "eval_one_epoch"
            | "validate_one_epoch"
            | "val_one_epoch"
            | "validate_epoch"
            | "run_test"
            | "inference_on_dataset"
            | "predict_dataset"
    ) || name.starts_with("evaluate_")
        || name.starts_with("validate_")
        || name.starts_with("eval_on")
}

/// A call of this name draws samples or shows them.
pub(super) fn is_sampling_call(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    matches!(
        name,
        "generate"
            | "sample"
            | "p_sample_loop"
            | "ddim_sample"
            | "ddim_sample_loop"
            | "sample_images"
            | "sample_and_log"
            | "log_images"
            | "log_image"
            | "log_samples"
            | "log_img"
            | "generate_samples"
            | "generate_images"
            | "save_samples"
            | "log_validation"
            | "visualize"
            | "sample_loop"
    )
}

/// A call of this name traces, exports or measures the model.
pub(super) fn is_trace_call(name: &str) -> bool {
    matches!(
        name,
        "add_graph"
            | "trace"
            | "trace_module"
            | "FlopCountAnalysis"
            | "get_model_complexity_info"
            | "torchsummary"
            | "log_graph"
            | "export_onnx"
    )
}

/// Packages that are not files of the project.
pub(super) fn is_package(root: &str) -> bool {
    const PACKAGES: [&str; 105] = [
        "PIL",
        "__future__",
        "abc",
        "absl",
        "accelerate",
        "addict",
        "albumentations",
        "apex",
        "argparse",
        "ast",
        "asyncio",
        "bitsandbytes",
        "builtins",
        "click",
        "collections",
        "colossalai",
        "concurrent",
        "contextlib",
        "copy",
        "csv",
        "cv2",
        "dataclasses",
        "datasets",
        "datetime",
        "deepspeed",
        "diffusers",
        "einops",
        "enum",
        "evaluate",
        "fairscale",
        "ffcv",
        "fire",
        "flash_attn",
        "flax",
        "functools",
        "gc",
        "glob",
        "gym",
        "h5py",
        "horovod",
        "hydra",
        "importlib",
        "inspect",
        "io",
        "itertools",
        "jax",
        "json",
        "keras",
        "lightning",
        "logging",
        "math",
        "matplotlib",
        "megatron",
        "mmcv",
        "mmdet",
        "mmengine",
        "mmseg",
        "monai",
        "mpi4py",
        "multiprocessing",
        "nemo",
        "numpy",
        "nvidia",
        "omegaconf",
        "openai",
        "operator",
        "optax",
        "os",
        "pandas",
        "pathlib",
        "peft",
        "pickle",
        "platform",
        "pprint",
        "psutil",
        "pynvml",
        "pytorch_lightning",
        "queue",
        "random",
        "ray",
        "re",
        "safetensors",
        "scipy",
        "sentence_transformers",
        "shutil",
        "signal",
        "sklearn",
        "socket",
        "string",
        "subprocess",
        "sys",
        "tempfile",
        "tensorboardX",
        "tensorflow",
        "threading",
        "time",
        "timm",
        "torch",
        "torchaudio",
        "torchmetrics",
        "torchrec",
        "torchvision",
        "tqdm",
        "transformers",
        "trl",
    ];
    PACKAGES.binary_search(&root).is_ok()
        || matches!(
            root,
            "types" | "typing" | "uuid" | "vllm" | "wandb" | "warnings" | "webdataset" | "xformers" | "yaml"
        )
}

/// The last part of a dotted name.
pub(super) fn tail(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The first part of a dotted name.
pub(super) fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// A name in the way of classes: `AdamW`, `_Net`.
pub(super) fn is_class_name(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.contains(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_whole() {
        assert!(is_eval("val_loader") && is_eval("test_step") && is_eval("Evaluate") && is_eval("valLoader_val"));
        assert!(!is_eval("value") && !is_eval("latest") && !is_eval("interval") && !is_eval("retrieval_head"));
        assert!(is_model("model") && is_model("self_model") && is_model("generator_ddp") && is_model("ref_model"));
        assert!(!is_model("modeling") && !is_model("dataset"));
        assert!(is_loss("loss_d") && is_loss("total_loss") && !is_loss("glossary"));
        assert!(is_class_name("AdamW") && !is_class_name("MB") && !is_class_name("resnet50"));
        assert!(is_package("torch") && is_package("pathlib") && is_package("PIL") && !is_package("models"));
    }
}
