//! The rank that a file's name tells: `rank3.log`, `log.txt.rank3`, `snapshot_rank_03.pickle`.
//!
//! Only the word `rank` counts, because a bare number may be a date, a step or a node.

use rankscope_model::Rank;

/// Words that turn `rank` into something other than the global rank when they stand right before it.
const NOT_GLOBAL: [&str; 12] =
    ["local", "node", "group", "role", "lora", "tp", "pp", "dp", "ep", "cp", "low", "tensor"];

/// The global rank in the display name of a file, if the last part that says `rank` gives a number.
///
/// `rank3`, `rank_3`, `rank-03`, `rank=3`, `rank 3`, `RANK3` are read; a bare `r3` or `3` is not, and neither is
/// `local_rank3`. The file's own name is asked first, then the folders around it, innermost first.
pub fn rank_from_name(name: &str) -> Option<Rank> {
    name.rsplit(['/', '\\']).find_map(rank_in_part)
}

fn rank_in_part(part: &str) -> Option<Rank> {
    let lower = part.to_ascii_lowercase();
    let mut found = None;
    for (at, word) in lower.match_indices("rank") {
        let before = lower.get(..at).unwrap_or_default();
        let after = lower.get(at + word.len()..).unwrap_or_default();
        let before_word = before.trim_end_matches(['_', '-', '.', ' ']);
        let joined = before.ends_with(|c: char| c.is_ascii_alphabetic());
        let qualifier = before_word.rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        if (joined && qualifier != "global") || NOT_GLOBAL.contains(&qualifier) {
            continue;
        }
        let digits = after.strip_prefix(['_', '-', '=', ' ', '.']).unwrap_or(after);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if let Some(rank) = digits.get(..end).and_then(|d| d.parse::<u32>().ok()).filter(|r| *r < MAX_RANK) {
            found = Some(Rank(rank));
        }
    }
    found
}

/// Larger numbers after `rank` are dates or hashes: the largest known jobs have some 100 000 ranks.
pub(crate) const MAX_RANK: u32 = 1_000_000;

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
        assert_eq!(rank("local_rank4.txt"), None);
        assert_eq!(rank("tp_rank1.txt"), None);
        assert_eq!(rank("frank3.txt"), None);
        assert_eq!(rank("ranks.txt"), None);
        assert_eq!(rank("rank20201216104107.txt"), None);
        assert_eq!(rank("3.log"), None);
        assert_eq!(rank(""), None);
    }
}
