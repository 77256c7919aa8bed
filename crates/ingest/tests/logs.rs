//! Lines as the tools print them (written after their sources, with figures of our own), through the whole reader:
//! who said it, which figure, which phase. And files that hold several families at once.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

mod common;

use common::read_bytes;
use proptest::prelude::*;
use rankscope_model::{ArtifactKind, Bytes, GIB, MIB, Phase, Quantity, StepRecord, Subject};

fn steps(name: &str, text: &str) -> Vec<StepRecord> {
    read_bytes(name, text.as_bytes()).steps
}

fn mib(value: f64) -> Bytes {
    Bytes::from_float(value, MIB).unwrap()
}

fn gib(value: f64) -> Bytes {
    Bytes::from_float(value, GIB).unwrap()
}

/// One line, whose rank it is, and one figure of it.
fn check(line: &str, rank: u32, quantity: Quantity, value: Bytes) {
    let found = steps("job.log", &format!("{line}\n"));
    assert_eq!(found.len(), 1, "{line}: {found:?}");
    assert_eq!(found[0].subject.rank(), Some(rank), "{line}");
    assert_eq!(found[0].bytes(quantity), Some(value), "{line}");
}

#[test]
fn launchers_put_the_rank_in_front() {
    use Quantity::PeakAllocated;
    for line in [
        "[rank3]: step=7 cur=1.0MB peak=2.5MB",
        "[rank3]:step=7 cur=1.0MB peak=2.5MB",
        "[default3]:step=7 cur=1.0MB peak=2.5MB",
        "3: step=7 cur=1.0MB peak=2.5MB",
        "[1,3]<stdout>:step=7 cur=1.0MB peak=2.5MB",
        "(Trainer rank=3 pid=9) step=7 cur=1.0MB peak=2.5MB",
        "2024-01-01 10:00:00,000 [rank3]: step=7 cur=1.0MB peak=2.5MB",
        "[rank3]:[2024-01-01 10:00:00,000] [INFO] step=7 cur=1.0MB peak=2.5MB",
        "[Rank 3] step=7 cur=1.0MB peak=2.5MB",
    ] {
        check(line, 3, PeakAllocated, mib(2.5));
    }
    // srun pads the number to the width of the largest.
    let found = steps("job.log", " 3: step=7 cur=1.0MB peak=2.5MB\n10: step=7 cur=1.0MB peak=2.5MB\n");
    assert_eq!(found.iter().filter_map(|s| s.subject.rank()).collect::<Vec<_>>(), [3, 10]);
}

#[test]
fn lines_of_training_programs() {
    use Quantity::{Allocated, PeakAllocated, PeakReserved, Reserved};
    // torchtitan: the peak that is reserved
    check(
        "[rank1]:[titan] 2024-06-01 10:00:00,000 - root - INFO - step: 11  loss: 11.6400  memory: 78.25GiB(98.93%)  tps: 4,240  mfu: 41.46%",
        1,
        PeakReserved,
        gib(78.25),
    );
    // Megatron-LM
    check(
        "[Rank 5] (after 20 iterations) memory (MB) | allocated: 10.5 | max allocated: 20.5 | reserved: 30.0 | max reserved: 40.0",
        5,
        PeakReserved,
        mib(40.0),
    );
    // DeepSpeed
    check(
        "[2024-01-01 10:00:00,000] [INFO] [utils.py:785:see_memory_usage] [Rank 0] MA 5.87 GB         Max_MA 8.11 GB         CA 8.62 GB         Max_CA 9 GB ",
        0,
        Reserved,
        gib(8.62),
    );
    check(
        "RANK=2 MEMSTATS after step device=cuda:2 current alloc=4.9000GB (delta=0.1000GB max=5.5000GB) current cache=6.0000GB (delta=0.0000GB max=6.5000GB)",
        2,
        PeakAllocated,
        gib(5.5),
    );
    // free style
    check("Rank 1 | alloc 10.2 GB", 1, Allocated, gib(10.2));
}

#[test]
fn figures_without_a_unit_are_mib_where_the_program_is_known() {
    // MMEngine, and the older form of MMCV
    let text = "Epoch(train) [1][  50/1000]  lr: 1.0e-03  eta: 1:00:00  time: 0.5  data_time: 0.1  memory: 5432  loss: 1.5\nEpoch(val) [1][100/500]    eta: 0:00:10  time: 0.1  data_time: 0.0  memory: 1234\n";
    let found = steps("log.txt.rank2", text);
    let short: Vec<_> = found.iter().map(|s| (s.phase, s.allocated)).collect();
    assert_eq!(short, [(Some(Phase::Train), Some(mib(5432.0))), (Some(Phase::Eval), Some(mib(1234.0)))]);
    // detectron2
    let found = steps(
        "log.txt.rank3",
        " eta: 1:00:00  iter: 19  total_loss: 1.5  time: 0.5  data_time: 0.1  lr: 0.001  max_mem: 3456M\n",
    );
    assert_eq!((found[0].step.map(|s| s.0), found[0].peak_allocated), (Some(19), Some(mib(3456.0))));
    // accelerate's examples
    let found = steps("rank0.log", "Total Peak Memory consumed during the train (max): 2345\n");
    assert_eq!(found[0].peak_allocated, Some(mib(2345.0)));
    // elsewhere they mean nothing
    assert_eq!(steps("rank0.log", "memory: 5432\n"), []);
}

#[test]
fn losses_of_a_trainer_are_no_memory() {
    let text = "{'loss': 1.2345, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.12}\n{'eval_loss': '1.234', 'eval_runtime': '3.5', 'epoch': '1.0'}\n";
    let evidence = read_bytes("rank0.log", text.as_bytes());
    assert!(evidence.steps.is_empty() && evidence.ooms.is_empty());
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
}

const SMI: &str = include_str!("data/smi-550-mig.txt");

#[test]
fn one_file_gives_the_evidence_of_every_family_in_it() {
    let text = format!(
        "+ CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 train.py\n***** Running training *****\n[train] rank=0 step=3 shape=(8, 512) cur=10240.0MB peak=20480.0MB\n$ nvidia-smi\n{SMI}\nOrderedDict([('allocated_bytes.all.current', 1024), ('allocated_bytes.all.peak', 2048), ('reserved_bytes.all.current', 4096), ('allocated_bytes.large_pool.current', 1)])\n[rank1]: Evaluating: 3%\n[rank1]: Traceback (most recent call last):\n[rank1]:   File \"train.py\", line 9, in evaluate\n[rank1]:     out = model(x)\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 1 has a total capacity of 79.18 GiB of which 29.69 MiB is free.\n"
    );
    let evidence = read_bytes("rank0.log", text.as_bytes());
    assert_eq!(evidence.device_tables.len(), 1);
    assert!(!evidence.device_tables[0].devices.is_empty());
    assert!(evidence.steps.iter().any(|s| s.peak_allocated == Some(mib(20480.0))));
    assert!(evidence.steps.iter().any(|s| s.reserved == Some(Bytes(4096)) && s.subject.rank() == Some(0)));
    assert_eq!(evidence.ooms.len(), 1);
    assert_eq!(evidence.ooms[0].frames[0].function, "evaluate");
    assert_eq!(evidence.phases.iter().map(|m| m.phase).collect::<Vec<_>>(), [Phase::Train, Phase::Eval]);
    assert_eq!(evidence.phases[1].rank.map(|r| r.0), Some(1));
    assert_eq!(evidence.launches.len(), 1);
    assert!(evidence.launches[0].facts.len() >= 4);
}

#[test]
fn two_ranks_glued_into_one_line_are_parted() {
    let text = "rank=0 step=1 cur=20000MiB peak=40000MiBrank=1 step=1 cur=10000MiB peak=30000MiB\n";
    let evidence = read_bytes("job.log", text.as_bytes());
    let found: Vec<_> =
        evidence.steps.iter().map(|s| (s.subject.rank(), s.step.map(|s| s.0), s.allocated, s.peak_allocated)).collect();
    assert_eq!(
        found,
        [
            (Some(0), Some(1), Some(mib(20000.0)), Some(mib(40000.0))),
            (Some(1), Some(1), Some(mib(10000.0)), Some(mib(30000.0)))
        ]
    );
    assert!(evidence.artifacts[0].warnings.is_empty(), "{:?}", evidence.artifacts[0].warnings);
}

/// What is said of figures that are nobody's must be true of their lines.
#[test]
fn figures_without_an_owner_are_told_by_their_reason() {
    let warnings = |text: &str| read_bytes("job.log", text.as_bytes()).artifacts.remove(0).warnings;
    let names = |number: &str| {
        format!(
            "line 2 names the rank {number}, which no rank can be, for memory figures; they were left out. Look at what \
             prints it"
        )
    };
    for number in ["4294967295", "99999999999", "1000000"] {
        assert_eq!(warnings(&format!("hello\nrank={number} step=1 peak=5MB\n")), [names(number)]);
    }
    let twice = warnings("rank=4294967295 peak=5MB\nrank=99999999999 peak=6MB\n");
    assert!(twice[0].starts_with("2 lines, the first is line 1, name the rank 4294967295 or another such number"));
    assert_eq!(twice.len(), 1, "{twice:?}");
    for line in ["rank=0 step=1 cur=1MiB peak=4xrank=1 step=1 cur=2MiB", "peak=5MB peak=7MB rank=1"] {
        let mixed = warnings(line);
        assert_eq!(mixed.len(), 1, "{line}: {mixed:?}");
        assert!(mixed[0].starts_with("line 1 has memory figures beside a rank that cannot be told"), "{mixed:?}");
    }
    let none = warnings("step=1 peak=5MB\ndp_rank=3 peak=6MB\n");
    assert_eq!(none.len(), 1);
    assert!(none[0].starts_with("2 lines, the first is line 1, name no rank and no device"), "{none:?}");
}

#[test]
fn counts_in_warnings_agree_with_their_words() {
    let harmless = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.59GiB. The caller indicates that this is not \
                    a failure, but this may mean that there could be performance gains if more memory were available.\n";
    let warnings = |text: &str| read_bytes("job.log", text.as_bytes()).artifacts.remove(0).warnings;
    let said = "allocator message that TensorFlow itself calls not a failure was passed over";
    assert_eq!(warnings(harmless), [format!("1 {said}")]);
    let said = "allocator messages that TensorFlow itself calls not a failure were passed over";
    assert_eq!(warnings(&harmless.repeat(2)), [format!("2 {said}")]);
}

#[test]
fn a_log_that_another_shell_went_on_writing_is_read_to_its_end() {
    let wide: Vec<u8> = "rank=1 step=1 peak=30000MiB\r\n".repeat(3).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let plain = b"rank=0 step=1 peak=20000MiB\n".repeat(3);
    for (bytes, ranks) in [([plain.as_slice(), &wide].concat(), [0, 1]), ([wide.as_slice(), &plain].concat(), [0, 1])] {
        let evidence = read_bytes("job.log", &bytes);
        let artifact = &evidence.artifacts[0];
        assert_eq!((artifact.kind, artifact.ranks.as_slice()), (ArtifactKind::StepLog, &ranks[..]));
        assert_eq!(evidence.steps.len(), 6);
        assert_eq!(artifact.warnings.len(), 1);
        let said = "in UTF-16 in a text of another encoding";
        assert!(artifact.warnings[0].starts_with("3 lines, the first is line") && artifact.warnings[0].contains(said));
    }
}

#[test]
fn a_pickle_of_an_old_protocol_is_refused_by_its_name() {
    let evidence = read_bytes("snapshot.pickle", b"(dp0\nVsegments\np1\n(lp2\nsVdevice_traces\np3\n(lp4\ns.");
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Unreadable);
    assert!(evidence.artifacts[0].warnings[0].starts_with("looks like a Python pickle of protocol 0; torch writes"));
}

#[test]
fn host_memory_is_kept_apart_from_the_card() {
    for line in [
        "[Mon Jan  1 10:00:00 2024] Out of memory: Killed process 4321 (python) total-vm:9kB, anon-rss:1048576kB, file-rss:0kB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED ... Signal 9 (SIGKILL) received by PID 4321",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 4321) of binary: /usr/bin/python",
    ] {
        let evidence = read_bytes("job.log", format!("{line}\n").as_bytes());
        assert!(evidence.ooms.iter().all(|oom| oom.host_memory), "{line}: {:?}", evidence.ooms);
        assert_eq!(evidence.ooms.len(), 1, "{line}");
    }
}

/// Pieces of tracebacks, launches and phases in any order: nothing panics, nothing grows, everything survives its
/// own format.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "Traceback (most recent call last):",
        "  File \"a.py\", line 3, in f",
        "  File \"a.py\", line 99999999999999999999, in f",
        "│ /x/a.py:3 in f │",
        "│ /x/",
        "│ ❱ 3 │",
        "╰──╯",
        "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity;",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "KeyError: 'x'",
        "[rank1]: ",
        "(A pid=7) ",
        "5: ",
        "***** Running Evaluation *****",
        "Saving checkpoint at step 99999999999999999999",
        "Evaluating",
        "+ torchrun --nproc_per_node=",
        "'unclosed \"quote",
        "\\",
        "<<EOF",
        "${A:-${B}",
        "CUDA_VISIBLE_DEVICES=0,,1",
        "export RANK=7",
        "world_size: 99999999999",
        "#SBATCH --gres=gpu:",
        "#!/bin/bash",
        "compute_environment: LOCAL_MACHINE",
        "deepspeed_config:",
        "  zero_stage: 3",
        "{\"zero_optimization\": {\"stage\": 3",
        "}}",
        "\u{0}",
        "显",
        "srun bash -c 'bash -c \"python x.py\"'",
    ]);
    let end = prop::sample::select(vec!["\n", " ", "", "\0", "\r\n"]);
    prop::collection::vec((piece, end), 0..60)
        .prop_map(|parts| parts.into_iter().flat_map(|(piece, end)| [piece, end]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_pieces_is_read(text in pieces(), name in prop::sample::select(vec!["job.log", "run.sh", "c.yaml", "d.json", "environ"])) {
        let evidence = read_bytes(name, text.as_bytes());
        prop_assert_eq!(evidence.artifacts.len(), 1);
        prop_assert!(evidence.artifacts[0].kind != ArtifactKind::Archive);
        let frames: usize = evidence.ooms.iter().map(|oom| oom.frames.len()).sum();
        prop_assert!(frames <= text.matches("File ").count() + text.matches('│').count());
        for fact in evidence.launches.iter().flat_map(|l| &l.facts) {
            prop_assert!(!fact.at.quote.contains('\n'));
        }
        let json = serde_json::to_string(&evidence).unwrap();
        prop_assert_eq!(&serde_json::from_str::<rankscope_model::Evidence>(&json).unwrap(), &evidence);
    }

    #[test]
    fn a_secret_of_any_form_never_leaves_the_file(
        name in prop::sample::select(vec!["HF_TOKEN", "WANDB_API_KEY", "MY_SECRET", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "GITHUB_AUTH", "NCCL_TOKEN"]),
        value in "[A-Za-z0-9]{12,40}",
    ) {
        let forms = [
            ("env.txt", format!("PATH=/bin\nHOME=/root\nRANK=1\n{name}={value}\n")),
            ("environ", format!("PATH=/bin\0RANK=1\0{name}={value}\0")),
            ("run.sh", format!("#!/bin/bash\nexport {name}={value}\n{name}={value} torchrun --nproc_per_node 2 train.py --{} {value}\n", name.to_ascii_lowercase())),
            ("job.log", format!("+ {name}={value} torchrun --nproc_per_node 2 train.py\n{name}={value}\nexport {name}={value} RANK=1\n")),
        ];
        for (file, text) in forms {
            let evidence = read_bytes(file, text.as_bytes());
            let json = serde_json::to_string(&evidence).unwrap();
            prop_assert!(!json.contains(&value), "{}: {}", file, json);
            prop_assert!(!evidence.launches.is_empty(), "{}", file);
        }
    }
}

#[test]
fn subjects_are_noted_for_each_file() {
    let evidence = read_bytes("job.log", b"[rank2]: ***** Running training *****\n[rank0]: world size: 4\n");
    assert_eq!(evidence.artifacts[0].ranks, [2]);
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::JobLog);
    assert!(evidence.steps.iter().all(|s| matches!(s.subject, Subject::Rank(_))));
}
