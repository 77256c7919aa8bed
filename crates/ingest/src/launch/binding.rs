//! What programs print of the GPU that their process works on: `torch.cuda.current_device()` under the usual names, and
//! the lines in which NCCL sets up a communicator.
//!
//! A device is told as the process counts the ones it sees; where two ranks name the same, they may sit on two nodes.

use crate::rank_name::MAX_RANK;
use rankscope_model::{LaunchSetting, Rank};
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// Words of which every form below has one.
pub(super) const WORDS: &str = r"current[_ ]device|current=\d|(?i:using (?:device|gpu))|nranks \d|, device:? cuda:";

/// Devices of one process beyond this are not real.
const MAX_DEVICE: u32 = 1024;

static CURRENT: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let forms = [
        // The print that the checklist recommends
        r"\bvisible=.* current=(?:cuda:)?(\d+)\b",
        // One number, not the first of several: `torch.cuda.current_device() = 0`, `current_device: cuda:0`, `current device 0`
        r#"\bcurrent[_ ]device(?:\(\))?["']?(?: ?[=:] ?| )(?:cuda:)?(\d+)(?:$|[^\d,.]|[,.](?:$|\s+[^\s\d]))"#,
        // `Using device: cuda:0`, `using GPU 3`
        r"(?i)\busing (?:device|gpu)(?: ?[=:] ?| )(?:cuda:)?(\d+)(?:$|[^\d,.]|[,.](?:$|\s+[^\s\d]))",
        // timm `Process 0, total 8, device cuda:0.`, Transformers `Process rank: 0, device: cuda:0, n_gpu: 1`
        r"\bProcess (?:rank: )?\d+, .*?\bdevice:? cuda:(\d+)\b",
    ];
    forms.into_iter().filter_map(|form| Regex::new(form).ok()).collect()
});

static RANK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)(?:^|[^\w-])(?:global[_ ])?rank["']?(?: ?[=:] ?| )(\d+)\b|\bProcess (\d+), total"#).ok()
});
static LOCAL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\blocal(?:_rank)?=(\d+)\b").ok());
static VISIBLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bvisible=([^=]*?) +\w+=").ok());

/// What one line says of one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Binding {
    /// The rank that the line itself names.
    pub(super) rank: Option<Rank>,
    pub(super) settings: Vec<LaunchSetting>,
}

/// Which device a process has made current, if the line says so.
pub(super) fn current(body: &str) -> Option<Binding> {
    // PyTorch's guess where nobody told it, which is what the line complains of.
    if body.contains("to perform barrier") {
        return None;
    }
    let device = CURRENT.iter().find_map(|form| number(&form.captures(body)?, 1)).filter(|n| *n < MAX_DEVICE)?;
    let one = |form: &LazyLock<Option<Regex>>| form.as_ref().and_then(|form| form.captures(body));
    let rank = one(&RANK).and_then(|found| number(&found, 1).or_else(|| number(&found, 2)));
    let local = one(&LOCAL).and_then(|found| number(&found, 1)).map(LaunchSetting::LocalRank);
    let seen = one(&VISIBLE).and_then(|found| Some(found.get(1)?.as_str().to_owned())).filter(|seen| seen != "None");
    let visible = seen.and_then(|seen| super::variables::visible_devices(&seen));
    Some(Binding {
        rank: rank.filter(|rank| *rank < MAX_RANK).map(Rank),
        settings: local.into_iter().chain(visible).chain([LaunchSetting::CurrentDevice(device)]).collect(),
    })
}

static COMMUNICATOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let form = r"([\w.-]+):(\d+):\d+ \[\d+\] NCCL INFO (?:ncclCommInitRank\w* )?comm 0x[0-9a-f]+ rank (\d+) nranks (\d+) cudaDev \d+ (?:nvmlDev \d+ )?busId ([0-9a-f]+)\b(?: commId (0x[0-9a-f]+))?";
    Regex::new(form).ok()
});

/// One process as it joins a communicator of NCCL:
/// `node0:15200:15610 [0] NCCL INFO ncclCommInitRank comm 0x… rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1a000 …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Joining {
    /// Host and PID, which tell processes apart.
    pub(super) process: (String, u32),
    /// Its communicator, where the line names it by its unique id.
    pub(super) communicator: Option<String>,
    /// The rank within the communicator, which is the global one if all ranks are in it.
    pub(super) rank: Rank,
    /// Ranks of the communicator.
    pub(super) size: u32,
    pub(super) bus_id: String,
}

pub(super) fn joining(text: &str) -> Option<Joining> {
    let found = COMMUNICATOR.as_ref()?.captures(text)?;
    let (rank, size) = (number(&found, 3)?, number(&found, 4)?);
    (rank < size && size < MAX_RANK).then_some(Joining {
        process: (found.get(1)?.as_str().to_owned(), number(&found, 2)?),
        rank: Rank(rank),
        size,
        bus_id: found.get(5)?.as_str().to_owned(),
        communicator: found.get(6).map(|id| id.as_str().to_owned()),
    })
}

fn number(captures: &Captures<'_>, group: usize) -> Option<u32> {
    captures.get(group)?.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use LaunchSetting as S;

    #[test]
    fn every_form_compiles() {
        assert_eq!(CURRENT.len(), 4);
        assert!(RANK.is_some() && LOCAL.is_some() && VISIBLE.is_some() && COMMUNICATOR.is_some());
        assert!(Regex::new(WORDS).is_ok());
    }

    #[test]
    fn the_device_that_a_process_names_as_its_own() {
        let words = Regex::new(WORDS).unwrap();
        let all = S::VisibleDevices(["0", "1", "2", "3"].map(str::to_owned).to_vec());
        for (line, rank, settings) in [
            (
                "pid=4711 rank=2 local=2 visible=0,1,2,3 current=0",
                Some(2),
                vec![S::LocalRank(2), all, S::CurrentDevice(0)],
            ),
            ("pid=4711 rank=2 local=2 visible=None current=2", Some(2), vec![S::LocalRank(2), S::CurrentDevice(2)]),
            (
                "pid=4711 rank=2 local=2 visible=GPU-abc10002-1a2b-3c4d current=0",
                Some(2),
                vec![S::LocalRank(2), S::VisibleDevices(vec!["GPU-abc10002-1a2b-3c4d".into()]), S::CurrentDevice(0)],
            ),
            (
                "pid=4711 rank=2 local=2 visible=0, 1, 2, 3 current=2",
                Some(2),
                vec![
                    S::LocalRank(2),
                    S::VisibleDevices(["0", "1", "2", "3"].map(str::to_owned).to_vec()),
                    S::CurrentDevice(2),
                ],
            ),
            ("torch.cuda.current_device() = 3", None, vec![S::CurrentDevice(3)]),
            ("torch.cuda.current_device()=3", None, vec![S::CurrentDevice(3)]),
            ("Rank 5: current device: cuda:1", Some(5), vec![S::CurrentDevice(1)]),
            ("rank=1 current_device 0", Some(1), vec![S::CurrentDevice(0)]),
            ("Using device: cuda:3", None, vec![S::CurrentDevice(3)]),
            ("[INFO] rank 7 using GPU 7", Some(7), vec![S::CurrentDevice(7)]),
            (
                "Training in distributed mode with multiple processes, 1 GPU per process. Process 5, total 8, device cuda:5.",
                Some(5),
                vec![S::CurrentDevice(5)],
            ),
            (
                "Process rank: 1, device: cuda:1, n_gpu: 1, distributed training: True",
                Some(1),
                vec![S::CurrentDevice(1)],
            ),
        ] {
            assert_eq!(current(line), Some(Binding { rank: rank.map(Rank), settings }), "{line}");
            assert!(words.is_match(line), "{line}");
        }
    }

    #[test]
    fn what_names_no_device() {
        for line in [
            "[rank0]:[W ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices used by this process are currently unknown.",
            "Using device: cuda",
            "device = torch.cuda.current_device()",
            "rank=0 cur=1MB current=5GB",
            "using 4 GPUs",
            "Using GPU: 0,1,2,3",
            "using device 0, 1, 2 and 3",
            "pid=1 rank=0 visible=0,1 current=99999",
        ] {
            assert_eq!(current(line), None, "{line}");
        }
    }

    #[test]
    fn a_process_that_joins_a_communicator() {
        for line in [
            "node0:15200:15610 [0] NCCL INFO ncclCommInitRank comm 0x7f2c0010a0 rank 3 nranks 8 cudaDev 0 nvmlDev 0 busId 1a000 commId 0x4be10011 - Init START",
            "node0:15200:15610 [0] NCCL INFO comm 0x7f2c0010a0 rank 3 nranks 8 cudaDev 0 busId 1a000 - Init COMPLETE",
            "[rank3]: node0:15200:15610 [0] NCCL INFO ncclCommInitRankConfig comm 0x7f2c0010a0 rank 3 nranks 8 cudaDev 0 nvmlDev 0 busId 1a000 commId 0x4be10011 - Init COMPLETE",
        ] {
            let expected = Joining {
                process: ("node0".into(), 15200),
                communicator: line.contains("commId").then(|| "0x4be10011".to_owned()),
                rank: Rank(3),
                size: 8,
                bus_id: "1a000".into(),
            };
            assert_eq!(joining(line), Some(expected), "{line}");
        }
        for line in [
            "node0:15200:15610 [0] NCCL INFO ncclCommSplit comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1a000 parent 0x2 splitCount 1 color 3 key 0 - Init COMPLETE",
            "node0:15200:15610 [0] NCCL INFO comm 0x1 rank 8 nranks 8 cudaDev 0 busId 1a000 - Init COMPLETE",
            "node0:1:2 [0] NCCL INFO Connected all rings",
        ] {
            assert_eq!(joining(line), None, "{line}");
        }
    }
}
