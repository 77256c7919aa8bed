//! Masks what looks like a key, a token or a password in a text that is going to be quoted.
//!
//! Rather a word too many than one too few: the quote is there to find the line again.

use regex::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;

const MASK: &str = "***";

/// Patterns, and what stays in front of the mask.
static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let name = r"[a-z0-9_.-]*(?:token|key|passwor[dt]|passwd|pwd|pass|secret|credentials?|auth|authorization|cookie)";
    let value = r#"(?:"[^"]*"|'[^']*'|(?:bearer|basic) +[^\s"']+|[^\s"',;&|)]+)"#;
    [
        // `HF_TOKEN=…`, `"api_key": "…"`
        (format!(r#"(?i)(\b{name}["']?\s*[=:]\s*){value}"#), "${1}***"),
        // `--api-key …`
        (format!(r"(?i)(--?{name}\s+){value}"), "${1}***"),
        // `https://user:password@host`
        (r"://[^/\s@]+@".to_owned(), "://***@"),
        // Forms that services give to their keys.
        (r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|eyJ)[A-Za-z0-9_./+=-]{12,}".to_owned(), MASK),
    ]
    .into_iter()
    .filter_map(|(pattern, with)| Some((Regex::new(&pattern).ok()?, with)))
    .collect()
});

/// The text with its secrets masked.
pub(super) fn masked(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for (pattern, with) in PATTERNS.iter() {
        if let Cow::Owned(changed) = pattern.replace_all(&text, *with) {
            text = Cow::Owned(changed);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(PATTERNS.len(), 4);
    }

    #[test]
    fn secrets_go_and_the_rest_stays() {
        for (text, expected) in [
            ("export HF_TOKEN=hf_1234567890abcdef", "export HF_TOKEN=***"),
            ("WANDB_API_KEY='a b' torchrun x.py", "WANDB_API_KEY=*** torchrun x.py"),
            ("run --api-key abc --lr 1", "run --api-key *** --lr 1"),
            ("\"password\": \"abc\", \"stage\": 3", "\"password\": ***, \"stage\": 3"),
            ("Authorization: Bearer abc.def next", "Authorization: *** next"),
            ("pip install git+https://me:pw@host/x", "pip install git+https://***@host/x"),
            ("echo ghp_1234567890abcdef12", "echo ***"),
            ("AWS_SECRET_ACCESS_KEY=abc/def+1 a", "AWS_SECRET_ACCESS_KEY=*** a"),
        ] {
            assert_eq!(masked(text), expected);
        }
        for text in ["torchrun --max-tokens 512 --tokenizer t", "CUDA_VISIBLE_DEVICES=0,1", "NCCL_BUFFSIZE=4194304"] {
            assert_eq!(masked(text), text);
        }
    }
}
