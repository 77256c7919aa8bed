//! Which words tell nothing of a person, a machine or a project: those that our own documentation uses, and those that
//! may stand where a name stands.

use super::patterns::ENDINGS;
use std::{collections::HashSet, sync::LazyLock};

/// Words that are no names, also where a name is expected.
const COMMON: [&str; 24] = [
    "root",
    "user",
    "users",
    "ubuntu",
    "admin",
    "home",
    "local",
    "localhost",
    "worker",
    "master",
    "node",
    "host",
    "gpu",
    "cuda",
    "rank",
    "train",
    "none",
    "null",
    "true",
    "false",
    "data",
    "work",
    "the",
    "static",
];
/// What files, folders and programs of training jobs are called everywhere, beside the words of the documentation.
const USUAL: [&str; 65] = [
    "actor",
    "archive",
    "attention",
    "bert",
    "bin",
    "ckpt",
    "com",
    "conda",
    "config",
    "configs",
    "decoder",
    "edu",
    "encoder",
    "engine",
    "env",
    "envs",
    "err",
    "etc",
    "experiment",
    "experiments",
    "finetune",
    "gnome",
    "gpt",
    "http",
    "https",
    "ipykernel",
    "iter",
    "jupyter",
    "kernel",
    "lab",
    "layers",
    "lib",
    "llama",
    "llm",
    "logs",
    "main",
    "models",
    "modules",
    "net",
    "notebook",
    "ollama",
    "opt",
    "org",
    "output",
    "outputs",
    "project",
    "python3",
    "ray",
    "runs",
    "scheduler",
    "scripts",
    "sglang",
    "shell",
    "slurm",
    "src",
    "tensorboard",
    "test",
    "tmp",
    "triton",
    "usr",
    "utils",
    "var",
    "vllm",
    "www",
    "xorg",
];
/// Words that are counted: `rank3`, `v100`, `bf16`. Others with a number behind them are names of machines: `node07`.
const COUNTED: [&str; 24] = [
    "rank", "step", "steps", "epoch", "iter", "stage", "cuda", "local", "tp", "pp", "dp", "ep", "fp", "bf", "int", "v",
    "a", "h", "b", "l", "t", "python", "py", "sha",
];

static KNOWN: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let told = rankscope_app::documentation().flat_map(|text| text.split(|sign: char| !sign.is_alphanumeric()));
    told.chain(USUAL).chain(COMMON).chain(ENDINGS).map(str::to_lowercase).collect()
});

/// No name even where its place says that it is one.
pub fn is_common(word: &str) -> bool {
    COMMON.contains(&word.to_lowercase().as_str())
}

/// Tells nothing of who and where: may stay as it is in the name of a file. One word, without separators.
pub fn is_known(word: &str) -> bool {
    let word = word.to_lowercase();
    if !word.chars().any(char::is_alphabetic) || KNOWN.contains(&word) {
        return true;
    }
    let counted = word.trim_end_matches(|sign: char| sign.is_ascii_digit());
    counted.len() < word.len() && COUNTED.contains(&counted) || is_figure(&word)
}

/// `80gb`, `7b`, `2x`: a number with its unit.
fn is_figure(word: &str) -> bool {
    let unit = word.trim_start_matches(|sign: char| sign.is_ascii_digit());
    unit.len() < word.len() && unit.len() <= 3 && unit.chars().all(|sign| sign.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_field_are_no_names_and_those_of_people_and_machines_are() {
        for known in ["train", "nvidia", "smi", "snapshot", "Optimizer", "rank3", "v100", "bf16", "80gb", "2024"] {
            assert!(is_known(known), "{known}");
        }
        for name in ["alice", "bob", "node07", "gpu7", "dgx01", "müller", "acmecorp", "李雷"] {
            assert!(!is_known(name), "{name}");
        }
    }
}
