//! What a key in a training log means: `max_mem`, `peak allocated`, `global_step`, `Rank`, `bs`.
//!
//! Keys are judged by their words, so that `max_mem`, `MaxMem` and `max mem` are one. Knows no line and no record.

use rankscope_model::{GIB, KIB, MIB, Phase};

/// Which memory figure a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    Allocated,
    PeakAllocated,
    Reserved,
    PeakReserved,
    Active,
    DeviceUsed,
}

impl Figure {
    /// The peak of the same counter, where that is kept.
    pub(super) fn peak(self) -> Self {
        match self {
            Self::Allocated | Self::PeakAllocated => Self::PeakAllocated,
            Self::Reserved | Self::PeakReserved => Self::PeakReserved,
            Self::Active | Self::DeviceUsed => self,
        }
    }
}

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Rank,
    LocalRank,
    Device,
    Step,
    Epoch,
    Phase,
    /// A batch: its index where a bare number follows, its size behind `=`, its shape where a tuple follows.
    Batch,
    Shape,
    Tokens,
    /// Tokens that a router sent to the rank.
    RoutedTokens,
    Samples,
    Memory(Figure),
    /// `max` alone: the peak of the figure before it.
    Max,
}

/// A key's words in lower case, with the unit that the key carries.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    words: Vec<String>,
    pub(super) unit: Option<u64>,
}

/// Words of a key that matter, counted from its end.
const MAX_WORDS: usize = 6;

impl Parts {
    /// Splits at underscores and at capitals.
    pub(super) fn of(words: &[&str]) -> Self {
        let mut parts = Self::default();
        let from = words.len().saturating_sub(MAX_WORDS);
        for word in words.iter().skip(from) {
            // DeepSpeed's names, which are ordinary words in lower case.
            let fixed: &[&str] = match *word {
                "MA" => &["alloc"],
                "Max_MA" => &["max", "alloc"],
                "CA" => &["reserved"],
                "Max_CA" => &["max", "reserved"],
                "NV" => &["device", "used"],
                _ => &[],
            };
            if fixed.is_empty() {
                parts.split(word);
            } else {
                parts.words.extend(fixed.iter().map(|w| (*w).to_owned()));
            }
        }
        while let Some(unit) = parts.words.last().and_then(|word| key_unit(word)) {
            parts.unit = Some(unit);
            parts.words.pop();
        }
        let from = parts.words.len().saturating_sub(MAX_WORDS);
        parts.words.drain(..from);
        parts
    }

    fn split(&mut self, word: &str) {
        for part in word.split('_').filter(|part| !part.is_empty()) {
            let mut current = String::new();
            let mut after_small = false;
            for c in part.chars().take(64) {
                if c.is_ascii_uppercase() && after_small {
                    self.words.push(std::mem::take(&mut current));
                }
                after_small = c.is_ascii_lowercase();
                current.push(c.to_ascii_lowercase());
            }
            self.words.push(current);
        }
    }

    fn last(&self) -> &str {
        self.words.last().map_or("", String::as_str)
    }

    fn before_last(&self) -> &str {
        self.words.len().checked_sub(2).and_then(|i| self.words.get(i)).map_or("", String::as_str)
    }

    fn is(&self, words: &[&str]) -> bool {
        self.words.iter().map(String::as_str).eq(words.iter().copied())
    }

    pub(super) fn is_memory_alone(&self) -> bool {
        self.is(&["memory"])
    }

    pub(super) fn is_usage_alone(&self) -> bool {
        self.is(&["mem", "usage"])
    }

    pub(super) fn is_max_mem(&self) -> bool {
        self.is(&["max", "mem"])
    }

    /// Whether a word says that the model is only being built.
    pub(super) fn says_init(&self) -> bool {
        self.words.iter().any(|w| matches!(w.as_str(), "init" | "initialization" | "built" | "wrap" | "wrapped"))
    }

    /// Whether what follows is memory of the host.
    pub(super) fn says_host(&self) -> bool {
        self.words.iter().any(|w| matches!(w.as_str(), "cpu" | "host" | "ram" | "virtual" | "disk" | "swap"))
    }

    /// Whether what follows is memory of a card.
    pub(super) fn says_card(&self) -> bool {
        self.words.iter().any(|w| matches!(w.as_str(), "gpu" | "cuda" | "vram"))
    }

    /// `memory before`: the first of two figures of one line, where `after` gives the second.
    pub(super) fn ends_in_before(&self) -> bool {
        self.last() == "before"
    }

    pub(super) fn is_after_alone(&self) -> bool {
        self.is(&["after"])
    }

    /// The phase, if the only word is one: `train`, `[eval]`.
    pub(super) fn phase(&self) -> Option<Phase> {
        if self.words.len() == 1 { phase(self.last()) } else { None }
    }

    /// The phase before `step`: `validate step`.
    pub(super) fn phase_of_step(&self) -> Option<Phase> {
        phase(self.before_last())
    }

    /// `after 20 iterations`.
    pub(super) fn ends_in_after(&self) -> bool {
        self.last() == "after"
    }

    /// What the key means, if anything that matters here.
    pub(super) fn key(&self) -> Option<Key> {
        let key = match self.last() {
            "rank" => return self.rank(),
            "step" | "steps" | "iter" | "iteration" | "iterations" | "it" => {
                let counts_other = matches!(self.before_last(), "micro" | "accumulation" | "warmup" | "per" | "total");
                return (!counts_other && !self.has("per") && !self.has("max")).then_some(Key::Step);
            }
            "epoch" | "ep" => Key::Epoch,
            "phase" | "mode" | "stage" | "split" => Key::Phase,
            "batch" => Key::Batch,
            "idx" if self.before_last() == "batch" => Key::Step,
            "shape" | "input" | "inputs" | "ids" => Key::Shape,
            "tokens" if matches!(self.before_last(), "recv" | "received" | "routed") => {
                return (!self.has("per") && !self.has("total")).then_some(Key::RoutedTokens);
            }
            "tokens" | "ntokens" => return self.batch_count().then_some(Key::Tokens),
            "samples" | "seqs" | "nseqs" | "utts" | "bs" | "bsz" => return self.batch_count().then_some(Key::Samples),
            "size" if self.before_last() == "batch" && self.batch_count() => Key::Samples,
            "device" | "gpu" if self.words.len() == 1 || self.before_last() == "cuda" => Key::Device,
            "max" if self.words.len() == 1 => Key::Max,
            _ => return self.figure().map(Key::Memory),
        };
        Some(key)
    }

    /// Other ranks than the global one, and ranks of matrices, are none here.
    fn rank(&self) -> Option<Key> {
        match self.before_last() {
            "local" => Some(Key::LocalRank),
            "dp" | "tp" | "pp" | "ep" | "cp" | "sp" | "mp" | "node" | "group" | "role" | "lora" | "low" | "matrix"
            | "tensor" | "pipeline" | "data" | "expert" | "modifier" | "adapter" | "machine" | "shard" => None,
            _ => Some(Key::Rank),
        }
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    /// A count of one batch, not a rate, a total or one of the counts inside a mixture of experts.
    fn batch_count(&self) -> bool {
        !self.words.iter().any(|w| {
            matches!(
                w.as_str(),
                "per"
                    | "total"
                    | "consumed"
                    | "seen"
                    | "processed"
                    | "skipped"
                    | "max"
                    | "min"
                    | "avg"
                    | "mean"
                    | "recv"
                    | "received"
                    | "sent"
                    | "routed"
                    | "dropped"
                    | "expert"
                    | "new"
                    | "generated"
                    | "global"
                    | "train"
                    | "val"
                    | "eval"
                    | "test"
                    | "dataset"
            )
        })
    }

    fn figure(&self) -> Option<Figure> {
        let from = self.words.len().saturating_sub(4);
        let near: Vec<&str> = self.words.iter().skip(from).map(String::as_str).collect();
        let any = |set: &[&str]| near.iter().any(|w| set.contains(w));
        let used = any(&["used"]);
        if any(&NO_FIGURE) || (any(&["total", "capacity"]) && !used) {
            return None;
        }
        let peak = any(&["max", "peak", "maximum", "highest"]);
        let memory = any(&["mem", "memory", "vram"]);
        let current = if any(&["reserved", "cached", "cache"]) {
            Figure::Reserved
        } else if any(&["alloc", "allocated", "allocation"]) {
            Figure::Allocated
        } else if any(&["active"]) {
            return None;
        } else if used && (memory || self.words.len() == 1 || any(&["device", "gpu", "nvml"])) {
            Figure::DeviceUsed
        } else if memory || matches!(self.last(), "cur" | "current" | "peak") {
            Figure::Allocated
        } else {
            return None;
        };
        Some(if peak { current.peak() } else { current })
    }
}

/// Words that make a size something else than device memory held by this process.
const NO_FIGURE: [&str; 37] = [
    "free",
    "avail",
    "available",
    "limit",
    "cpu",
    "host",
    "ram",
    "virtual",
    "disk",
    "swap",
    "shm",
    "file",
    "params",
    "param",
    "parameters",
    "weights",
    "weight",
    "delta",
    "fraction",
    "ratio",
    "percent",
    "util",
    "theoretical",
    "estimated",
    "expected",
    "saved",
    "pinned",
    "bandwidth",
    "retries",
    "count",
    "num",
    "per",
    "min",
    "avg",
    "mean",
    "time",
    "kv",
];

fn phase(word: &str) -> Option<Phase> {
    Some(match word {
        "train" | "training" => Phase::Train,
        "eval" | "evaluation" | "evaluate" | "val" | "valid" | "validation" | "validate" | "test" | "dev"
        | "sample" | "predict" => Phase::Eval,
        "save" | "saving" | "ckpt" | "checkpoint" => Phase::Save,
        "resume" | "resuming" | "load" | "loading" | "restore" => Phase::Resume,
        "init" => Phase::Init,
        _ => return None,
    })
}

/// The phase that a value names: `phase=eval`.
pub(crate) fn phase_value(word: &str) -> Option<Phase> {
    phase(&word.to_ascii_lowercase())
}

/// Bytes per unit behind a number. Nearly every training log prints MiB under the name MB.
pub(super) fn unit(word: &str, tight: bool) -> Option<u64> {
    Some(match word {
        "MB" | "MiB" | "Mb" | "mb" | "mib" | "Mi" => MIB,
        "GB" | "GiB" | "Gb" | "gb" | "gib" | "Gi" => GIB,
        "KB" | "KiB" | "kB" | "kb" | "kib" => KIB,
        "TB" | "TiB" => GIB << 10,
        "bytes" | "byte" | "Bytes" => 1,
        "M" if tight => MIB,
        "G" if tight => GIB,
        "B" if tight => 1,
        _ => return None,
    })
}

fn key_unit(word: &str) -> Option<u64> {
    match word {
        "mb" | "mib" => Some(MIB),
        "gb" | "gib" => Some(GIB),
        "kb" | "kib" => Some(KIB),
        "bytes" => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<Key> {
        Parts::of(&text.split(' ').collect::<Vec<_>>()).key()
    }

    #[test]
    fn memory_keys_of_many_programs() {
        use Figure::{Allocated, DeviceUsed, PeakAllocated, PeakReserved, Reserved};
        let cases = [
            ("cur", Allocated),
            ("alloc", Allocated),
            ("allocated", Allocated),
            ("mem", Allocated),
            ("MA", Allocated),
            ("memory allocated", Allocated),
            ("MemAllocated", Allocated),
            ("current alloc", Allocated),
            ("peak", PeakAllocated),
            ("max_mem", PeakAllocated),
            ("max mem", PeakAllocated),
            ("Max_MA", PeakAllocated),
            ("max_alloc", PeakAllocated),
            ("MaxMemAllocated", PeakAllocated),
            ("peak_mb", PeakAllocated),
            ("max_mem_allocated", PeakAllocated),
            ("peak memory allocation", PeakAllocated),
            ("reserved", Reserved),
            ("CA", Reserved),
            ("current cache", Reserved),
            ("cache_allocated", Reserved),
            ("max reserved", PeakReserved),
            ("Max_CA", PeakReserved),
            ("max_cache_allocated", PeakReserved),
            ("used", DeviceUsed),
            ("NV", DeviceUsed),
            ("total device memory used", DeviceUsed),
            ("device memory used total", DeviceUsed),
            ("gpu_mem_used", DeviceUsed),
        ];
        for (text, figure) in cases {
            assert_eq!(key(text), Some(Key::Memory(figure)), "{text}");
        }
        for text in [
            "avail mem",
            "free memory",
            "total memory",
            "CPU mem",
            "delta",
            "active",
            "mem_fraction_static",
            "host memory",
            "loss",
            "time used",
            "num_alloc_retries",
            "memory_util",
            "Theoretical memory",
        ] {
            assert_eq!(key(text), None, "{text}");
        }
    }

    #[test]
    fn ranks_steps_and_batches() {
        for text in ["rank", "Rank", "RANK", "global_rank", "GLOBAL_RANK", "on rank"] {
            assert_eq!(key(text), Some(Key::Rank), "{text}");
        }
        for text in ["dp_rank", "node rank", "lora rank", "modifier_rank", "tp_rank"] {
            assert_eq!(key(text), None, "{text}");
        }
        assert_eq!(key("local_rank"), Some(Key::LocalRank));
        for text in ["step", "iter", "it", "global_step", "iteration", "train step"] {
            assert_eq!(key(text), Some(Key::Step), "{text}");
        }
        for text in ["micro_step", "seconds per step", "max_steps", "total steps"] {
            assert_eq!(key(text), None, "{text}");
        }
        assert_eq!(key("recv_tokens"), Some(Key::RoutedTokens));
        assert_eq!(key("total_routed_tokens"), None);
        assert_eq!(key("dropped_tokens"), None);
        assert_eq!(key("tokens"), Some(Key::Tokens));
        assert_eq!(key("batch_size"), Some(Key::Samples));
        assert_eq!(key("samples_per_second"), None);
    }

    #[test]
    fn a_key_may_carry_its_unit() {
        assert_eq!(Parts::of(&["peak_mb"]).unit, Some(MIB));
        assert_eq!(Parts::of(&["max_memory_allocated_gb"]).unit, Some(GIB));
        assert_eq!(Parts::of(&["peak"]).unit, None);
    }
}
