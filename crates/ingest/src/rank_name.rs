//! The rank that a file's name tells: `rank3.log`, `log.txt.rank3`, `snapshot_rank_03.pickle`, `worker-3.log`.
//!
//! The word `rank` counts first; without it a few forms that hardly mean anything else. A bare number may be a date, a
//! step or a node.

use rankscope_model::Rank;

/// Words that turn `rank` into something other than the global rank when they stand right before it.
const NOT_GLOBAL: [&str; 12] =
    ["local", "node", "group", "role", "lora", "tp", "pp", "dp", "ep", "cp", "low", "tensor"];

/// The global rank in the display name of a file, if the last part that says one gives a number.
///
/// `rank3`, `rank_3`, `rank-03`, `rank=3`, `rank 3`, `RANK3` are read first, `local_rank3` is not. Where no part says
/// `rank`: `worker-3`, a last `_r3`, `snapshot_3.pickle`, and the folder in which torchrun keeps the output of a
/// process (`attempt_0/3/stderr.log`, the local rank, which on one node is the global one). A bare `3` is not read. The
/// file's own name is asked first, then the folders around it, innermost first.
pub fn rank_from_name(name: &str) -> Option<Rank> {
    let parts = || name.rsplit(['/', '\\']);
    parts().find_map(rank_in_part).or_else(|| parts().find_map(weaker)).or_else(|| torchrun_folder(name))
}

/// Endings behind which the name itself stands.
const ENDINGS: [&str; 15] =
    ["log", "txt", "out", "err", "json", "jsonl", "csv", "pickle", "pkl", "pt", "html", "gz", "zst", "zip", "trace"];

/// `worker-3`, a last `_r3`, `snapshot_3`.
fn weaker(part: &str) -> Option<Rank> {
    let lower = part.to_ascii_lowercase();
    let tokens: Vec<&str> = lower.split(['_', '-', '.', ' ', '=']).filter(|token| !token.is_empty()).collect();
    let own = tokens.iter().rposition(|token| !ENDINGS.contains(token)).map_or(0, |last| last.saturating_add(1));
    let tokens = tokens.get(..own)?;
    let number = |digits: &str| digits.parse::<u32>().ok().filter(|_| digits.len() <= 4).map(Rank);
    let (last, before) = tokens.split_last()?;
    // Of `r50` and its like the last are depths of ResNets.
    let depths = ["18", "34", "50", "101", "152"];
    let short = last.strip_prefix('r').filter(|digits| !depths.contains(digits)).and_then(number);
    let behind_snapshot = || {
        let word = before.last()?;
        if *word == "snapshot" { number(last) } else { None }
    };
    let worker = || {
        let (_, digits) = tokens.iter().zip(tokens.iter().skip(1)).find(|(word, _)| **word == "worker")?;
        number(digits)
    };
    short.or_else(behind_snapshot).or_else(worker)
}

/// `attempt_0/3/stdout.log`.
fn torchrun_folder(name: &str) -> Option<Rank> {
    let mut parts = name.rsplit(['/', '\\']);
    let file = parts.next()?;
    let number = parts.next()?;
    let attempt = parts.next()?.strip_prefix("attempt_")?;
    let is_output = file.starts_with("stdout.log") || file.starts_with("stderr.log") || file.starts_with("error.json");
    let is_number = |text: &str| !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    (is_output && is_number(number) && is_number(attempt)).then(|| number.parse().ok().map(Rank))?
}

fn rank_in_part(part: &str) -> Option<Rank> {
    let lower = part.to_ascii_lowercase();
    // The probe's own files: the job's name in front may end in any word.
    if let Some((_, after)) = lower.strip_prefix("rankscope_").and_then(|name| name.rsplit_once("_rank")) {
        return number(after);
    }
    let mut found = None;
    for (at, word) in lower.match_indices("rank") {
        let before = lower.get(..at).unwrap_or_default();
        let after = lower.get(at.saturating_add(word.len())..).unwrap_or_default();
        let before_word = before.trim_end_matches(['_', '-', '.', ' ']);
        let joined = before.ends_with(|c: char| c.is_ascii_alphabetic());
        let qualifier = before_word.rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        if (joined && qualifier != "global") || NOT_GLOBAL.contains(&qualifier) {
            continue;
        }
        found = number(after.strip_prefix(['_', '-', '=', ' ', '.']).unwrap_or(after)).or(found);
    }
    found
}

/// The rank at the beginning of `text`.
fn number(text: &str) -> Option<Rank> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok().filter(|rank| *rank < MAX_RANK).map(Rank)
}

/// Larger numbers after `rank` are dates or hashes: the largest known jobs have some 100 000 ranks.
pub(crate) const MAX_RANK: u32 = 1_000_000;

/// `Rank 3: CUDA out of memory`, `[rank=0] RuntimeError: …`; the last rank in front of the message.
pub(crate) fn rank_before(text: &str) -> Option<Rank> {
    let lower = text.to_ascii_lowercase();
    let (before, after) = lower.rsplit_once("rank")?;
    let bare = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') || before.ends_with("global_");
    let local = before.trim_end().ends_with("local");
    let digits = after.trim_start_matches(['=', ':', ' ', '-']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let rank = digits.get(..end)?.parse().ok().filter(|r| *r < MAX_RANK)?;
    (bare && !local).then_some(Rank(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_rank_tells_and_nothing_else() {
        let rank = |name| rank_from_name(name).map(|r| r.0);
        assert_eq!(rank("rank3.log"), Some(3));
        assert_eq!(rank("log.txt.rank12"), Some(12));
        assert_eq!(rank("snapshot_rank_03.pickle.gz"), Some(3));
        assert_eq!(rank("mem-RANK=7.pkl"), Some(7));
        assert_eq!(rank("logs.zip/rank-5/stdout.log"), Some(5));
        assert_eq!(rank("rank1/rank2.log"), Some(2));
        assert_eq!(rank("global_rank4.txt"), Some(4));
        assert_eq!(rank("globalrank4.txt"), Some(4));
        assert_eq!(rank("rankscope_exp-node_rank4_2.jsonl"), Some(4));
        assert_eq!(rank("logs.zip/rankscope_local_rank12_oom.pickle"), Some(12));
        assert_eq!(rank("local_rank4.txt"), None);
        assert_eq!(rank("tp_rank1.txt"), None);
        assert_eq!(rank("frank3.txt"), None);
        assert_eq!(rank("ranks.txt"), None);
        assert_eq!(rank("rank20201216104107.txt"), None);
        assert_eq!(rank("3.log"), None);
        assert_eq!(rank(""), None);
    }

    #[test]
    fn other_words_tell_where_rank_does_not() {
        let rank = |name| rank_from_name(name).map(|r| r.0);
        assert_eq!(rank("snap_r3.pickle"), Some(3));
        assert_eq!(rank("r3.log.gz"), Some(3));
        assert_eq!(rank("logs/job-worker-12.log"), Some(12));
        assert_eq!(rank("worker_2/stderr.txt"), Some(2));
        assert_eq!(rank("snapshot_3.pickle"), Some(3));
        assert_eq!(rank("memory-snapshot-03.pkl.zst"), Some(3));
        assert_eq!(rank("none_x/attempt_0/5/stderr.log"), Some(5));
        assert_eq!(rank("worker-1/rank7.log"), Some(7));
        for name in [
            "faster_rcnn_r50.log",
            "faster_rcnn_r50_fpn_1x.log",
            "snapshot_20240101.pickle",
            "snapshot_3_after.pickle",
            "step_3.log",
            "coworker-3.log",
            "attempt_0/5/train.log",
            "run_0/5/stdout.log",
            "for3.log",
        ] {
            assert_eq!(rank(name), None, "{name}");
        }
    }

    #[test]
    fn the_rank_in_front_of_a_message_counts() {
        assert_eq!(rank_before("Rank 3: "), Some(Rank(3)));
        assert_eq!(rank_before("[rank=12] RuntimeError: "), Some(Rank(12)));
        assert_eq!(rank_before("local_rank: 4 "), None);
        assert_eq!(rank_before("local rank 4 "), None);
        assert_eq!(rank_before("frank 4 "), None);
        assert_eq!(rank_before(""), None);
    }
}
