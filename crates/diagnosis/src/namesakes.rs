//! Files of different folders that name the same rank: ranks of two nodes that were numbered anew on each, two runs, or two
//! moments of one. Which of these nobody says, so the files are told, not guessed apart.

use rankscope_model::{ArtifactInfo, ArtifactKind};
use std::collections::BTreeMap;

/// Adds a warning to each file whose rank another one of its kind, of the same name and of another folder, names too.
pub(crate) fn note(artifacts: &mut [ArtifactInfo]) {
    let mut first: BTreeMap<(u32, &'static str, String), (usize, String)> = BTreeMap::new();
    let mut told: Vec<(usize, String)> = Vec::new();
    let mut snapshots: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, artifact) in artifacts.iter().enumerate() {
        let ([rank], true) = (artifact.ranks.as_slice(), is_of_one_process(artifact.kind)) else { continue };
        if artifact.kind == ArtifactKind::TorchSnapshot {
            match snapshots.get(rank) {
                None => drop(snapshots.insert(*rank, at)),
                Some(other) => {
                    let other = artifacts.get(*other).map_or("", |other| &other.name);
                    let text = format!(
                        "{other} is a snapshot of rank {rank} too, and of each figure the larger one counts; if they are of \
                         two runs, upload each as its own"
                    );
                    told.push((at, text));
                }
            }
            continue;
        }
        let (folder, name) = artifact.name.rsplit_once('/').unwrap_or(("", &artifact.name));
        let folder = without_attempt(folder);
        let known =
            first.entry((*rank, artifact.kind.title(), name.to_owned())).or_insert_with(|| (at, folder.clone()));
        if known.1 != folder
            && let Some(other) = artifacts.get(known.0)
        {
            told.push((
                at,
                format!(
                    "{} also is of rank {rank}, and both count as one rank; if they are of two nodes, number the ranks \
                     through (RANK, not LOCAL_RANK), and if they are of two runs, upload each as its own",
                    other.name
                ),
            ));
        }
    }
    for (at, text) in told {
        if let Some(artifact) = artifacts.get_mut(at) {
            artifact.warnings.push(text);
        }
    }
}

/// What one process writes of itself.
fn is_of_one_process(kind: ArtifactKind) -> bool {
    use ArtifactKind::{JobLog, MemoryStats, OomMessage, ProfilerTrace, StepLog, TorchSnapshot};
    matches!(kind, JobLog | MemoryStats | OomMessage | ProfilerTrace | StepLog | TorchSnapshot)
}

/// torchrun writes a restarted job into the next `attempt_N`: that is the same rank.
fn without_attempt(folder: &str) -> String {
    folder.split('/').filter(|part| !part.starts_with("attempt_")).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(names: &[&str]) -> Vec<usize> {
        let artifact = |name: &&str| ArtifactInfo {
            name: (*name).to_owned(),
            kind: ArtifactKind::StepLog,
            ranks: vec![2],
            devices: vec![],
            bytes: 1,
            warnings: vec![],
        };
        let mut artifacts: Vec<ArtifactInfo> = names.iter().map(artifact).collect();
        note(&mut artifacts);
        artifacts.iter().map(|artifact| artifact.warnings.len()).collect()
    }

    #[test]
    fn one_rank_in_two_folders_is_told() {
        assert_eq!(warned(&["node0/a_1/attempt_0/2/stdout.log", "node1/a_1/attempt_0/2/stdout.log"]), [0, 1]);
        assert_eq!(warned(&["early/snapshot_rank2.pickle", "late/snapshot_rank2.pickle"]), [0, 1]);
        assert_eq!(warned(&["a/attempt_0/2/stdout.log", "a/attempt_1/2/stdout.log"]), [0, 0], "started again");
        assert_eq!(warned(&["a/2/stdout.log", "a/2/stderr.log"]), [0, 0]);
        assert_eq!(warned(&["rank2.log"]), [0]);
    }
}
