//! Environments: `env`, `printenv`, `export -p`, and `/proc/PID/environ` with its NUL bytes.

use super::shell::assignment;
use super::{Facts, variables};
use rankscope_model::{LaunchSetting, Rank};

/// Names of which every environment has some.
const USUAL: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "PWD",
    "SHELL",
    "LANG",
    "HOSTNAME",
    "LD_LIBRARY_PATH",
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "CUDA_VISIBLE_DEVICES",
];

/// Whether bytes are `NAME=value` with NUL between.
pub(super) fn is_nul_separated(head: &[u8]) -> bool {
    // The last piece may be cut.
    let pieces: Vec<&[u8]> = head.split(|b| *b == 0).collect();
    let whole = pieces.get(..pieces.len().saturating_sub(1)).unwrap_or_default();
    whole.len() >= 2
        && whole.iter().all(|piece| {
            std::str::from_utf8(piece).is_ok_and(|text| assignment(text).is_some() && !text.contains('\u{1}'))
        })
}

/// Whether a text is a list of variables: nearly every line is one, and a name that is always there is among them.
pub(super) fn is_dump(head: &str) -> bool {
    let mut lines = 0usize;
    let mut variables = 0usize;
    let mut usual = false;
    for line in head.lines().filter(|line| !line.trim().is_empty()) {
        lines = lines.saturating_add(1);
        if let Some((name, value)) = variable(line) {
            // `RANK=0 MEMSTATS fwd …` is a line of a log.
            if ["RANK", "LOCAL_RANK", "WORLD_SIZE"].contains(&name) && value.trim().contains(' ') {
                return false;
            }
            variables = variables.saturating_add(1);
            usual |= USUAL.contains(&name);
        }
    }
    usual && variables >= 3 && variables.saturating_mul(10) >= lines.saturating_mul(8)
}

fn variable(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("declare -x ").or_else(|| line.strip_prefix("export ")).unwrap_or(line);
    assignment(line)
}

/// Reads the list. The rank that it names is the rank of all of it.
pub(super) fn read(text: &str, facts: &mut Facts<'_>) {
    let separator = if text.contains('\0') { '\0' } else { '\n' };
    let mut found = Vec::new();
    let mut line = 1u64;
    for piece in text.split(separator) {
        let first = line;
        line = line.saturating_add((piece.matches('\n').count() as u64).saturating_add(u64::from(separator == '\n')));
        let Some((name, value)) = variable(piece.trim_end_matches('\r')) else { continue };
        if let Some(setting) = variables::setting(name, value) {
            found.push((first, piece, setting));
        }
    }
    let own = found.iter().find_map(|(.., s)| if let LaunchSetting::Rank(rank) = s { Some(Rank(*rank)) } else { None });
    let rank = own.or(facts.file_rank);
    for (line, piece, setting) in found {
        facts.add_at(line, None, piece, rank, 0, setting);
    }
}

#[cfg(test)]
mod tests {
    use super::super::read as read_launch;
    use super::super::tests::settings;
    use super::*;
    use crate::context::{Limits, ReadContext};
    use LaunchSetting as S;
    use rankscope_model::{ArtifactId, LaunchSource};

    #[test]
    fn a_process_environment() {
        let text =
            "PATH=/usr/bin\0CUDA_VISIBLE_DEVICES=0,1\0RANK=3\0LOCAL_RANK=1\0MULTI=a\nb\0WORLD_SIZE=8\0SECRET=x\0";
        assert!(is_nul_separated(text.as_bytes()));
        assert_eq!(
            settings("environ", text),
            [S::VisibleDevices(vec!["0".into(), "1".into()]), S::Rank(3), S::LocalRank(1), S::WorldSize(8)]
        );
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "environ", limits: &limits };
        let evidence = read_launch(LaunchSource::Environment, text, &ctx).unwrap();
        assert!(evidence.launches[0].facts.iter().all(|fact| fact.rank == Some(Rank(3))));
        assert_eq!(evidence.artifacts[0].ranks, [3]);
    }

    #[test]
    fn lines_that_begin_with_a_rank_are_no_variables() {
        let log = "RANK=0 MEMSTATS fwd device=0 current alloc=19.5GB\n".repeat(4);
        assert!(!is_dump(&log));
        assert!(is_dump("RANK=0\nLOCAL_RANK=0\nWORLD_SIZE=4\n"));
    }

    #[test]
    fn other_bytes_with_nul_are_none() {
        assert!(!is_nul_separated(b"\x80\x04\x95\0\0"));
        assert!(!is_nul_separated(b"log line\0more\0"));
        assert!(!is_nul_separated(b"A=1\0"));
    }

    #[test]
    fn a_shell_dump() {
        let text = "declare -x HOME=\"/root\"\ndeclare -x CUDA_VISIBLE_DEVICES=\"4\"\ndeclare -x LOCAL_RANK=\"0\"\n";
        assert_eq!(settings("env.txt", text), [S::VisibleDevices(vec!["4".into()]), S::LocalRank(0)]);
    }
}
