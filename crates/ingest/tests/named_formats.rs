//! Every format that the readers promise, by name: a small sample as its program prints it (written after the program's
//! source, with figures of our own), what kind the file becomes, and one figure.
//!
//! Real files stand behind most of them in `every_real_file.rs`; here is what has no real file, and the list as a whole.
#![allow(clippy::unwrap_used, clippy::enum_glob_use, reason = "a test that fails should say so at once, and briefly")]

mod common;

use common::read_bytes;
use rankscope_model::ArtifactKind::{self, *};
use rankscope_model::{Evidence, LaunchSetting, MIB};
use std::fmt::Write;

/// Program, file, kind, sample, and a figure of it as text.
type Sample = (&'static str, &'static str, ArtifactKind, &'static str, &'static str);

const SAMPLES: &[Sample] = &[
    // Step lines
    ("torchrun --tee", "job.log", StepLog, "[default3]:step=7 cur=1.0MB peak=2.0MB\n", "3 step 7 peak 2"),
    ("PyTorch's hook", "job.log", StepLog, "[rank3]: step=7 cur=1.0MB peak=2.0MB\n", "3 step 7 peak 2"),
    ("srun --label", "job.log", StepLog, "3: step=7 cur=1.0MB peak=2.0MB\n", "3 step 7 peak 2"),
    ("mpirun --tag-output", "job.log", StepLog, "[1,3]<stdout>:step=7 peak=2.0MB\n", "3 step 7 peak 2"),
    (
        "Megatron-LM",
        "job.log",
        StepLog,
        "[Rank 5] (after 20 iterations) memory (MB) | allocated: 10.5 | max allocated: 20.0 | reserved: 30.0 | max reserved: 40.0\n",
        "5 step 20 peak 20 reserved 40",
    ),
    (
        "DeepSpeed see_memory_usage",
        "job.log",
        StepLog,
        "[2024-01-01 10:00:00,000] [INFO] [utils.py:785:see_memory_usage] [Rank 0] MA 5.0 GB         Max_MA 8.0 GB         CA 8.0 GB         Max_CA 9 GB \n",
        "0 peak 8192 reserved 9216",
    ),
    (
        "DeepSpeed memory_status",
        "job.log",
        StepLog,
        "RANK=2 MEMSTATS after step device=cuda:2 current alloc=4.0000GB (delta=0.1000GB max=5.0000GB) current cache=6.0000GB (delta=0.0000GB max=7.0000GB)\n",
        "2 peak 5120 reserved 7168",
    ),
    (
        "DeepSpeed throughput timer",
        "rank0.log",
        StepLog,
        "epoch=1/micro_step=2/global_step=3, RunningAvgSamplesPerSec=1.5, CurrSamplesPerSec=1.4, MemAllocated=4.0GB, MaxMemAllocated=5.0GB\n",
        "0 step 3 peak 5120",
    ),
    (
        "DeepSpeed timers",
        "rank0.log",
        StepLog,
        "time (ms) | mem_allocated: 1.0000 GB | max_mem_allocated: 2.0000 GB | cache_allocated: 3.0000 GB | max_cache_allocated: 4.0000 GB\n",
        "0 peak 2048 reserved 4096",
    ),
    (
        "torchtitan",
        "job.log",
        StepLog,
        "[rank1]:[titan] 2024-06-01 10:00:00,000 - root - INFO - step: 11  loss: 11.6400  grad_norm: 1.2  memory: 78.00GiB(98.93%)  tps: 4,240  tflops: 10.0  mfu: 41.46%\n",
        "1 step 11 reserved 79872",
    ),
    (
        "torchtune",
        "rank0.log",
        StepLog,
        "Memory stats after model init:\n\tCUDA peak memory allocation: 2.00 GiB\n\tCUDA peak memory reserved: 3.00 GiB\n\tCUDA peak memory active: 2.50 GiB\n",
        "0 peak 2048 reserved 3072",
    ),
    (
        "detectron2",
        "log.txt.rank3",
        StepLog,
        "[01/01 10:00:00 d2.utils.events]:  eta: 1:00:00  iter: 19  total_loss: 1.5  time: 0.5  data_time: 0.1  lr: 0.001  max_mem: 3456M\n",
        "3 step 19 peak 3456",
    ),
    (
        "MMEngine",
        "rank2.log",
        StepLog,
        "2024/01/01 10:00:00 - mmengine - INFO - Epoch(train) [1][  50/1000]  lr: 1.0e-03  eta: 1:00:00  time: 0.5  data_time: 0.1  memory: 5432  loss: 1.5\n",
        "2 allocated 5432",
    ),
    (
        "MMCV",
        "rank2.log",
        StepLog,
        "2021-01-01 10:00:00,000 - mmdet - INFO - Epoch [1][50/1000] lr: 1.0e-03, eta: 1:00:00, time: 0.5, data_time: 0.1, memory: 5432, loss: 1.5\n",
        "2 allocated 5432",
    ),
    (
        "fairseq",
        "train.log",
        StepLog,
        "2020-07-01 12:00:00 | INFO | fairseq.utils | rank   0: capabilities =  7.0  ; total memory = 32.000 GB ; name = Tesla V100-SXM2-32GB\n2020-07-01 12:01:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=10.5, bsz=32, num_updates=100, lr=1e-05, gb_free=20.0, wall=20\n",
        "0 step 100 peak 12288",
    ),
    (
        "accelerate's examples",
        "rank0.log",
        StepLog,
        "Memory before entering the train : 10\nTotal Peak Memory consumed during the train (max): 2345\n",
        "0 peak 2345",
    ),
    (
        "Lightning DeviceStatsMonitor",
        "rank1.log",
        MemoryStats,
        "DeviceStatsMonitor.on_train_batch_start/allocated_bytes.all.peak: 2097152\nDeviceStatsMonitor.on_train_batch_start/reserved_bytes.all.peak: 4194304\n",
        "1 peak 2 reserved 4",
    ),
    (
        "axolotl",
        "rank0.log",
        StepLog,
        "{'loss': 1.2, 'memory/max_allocated (GiB)': 2.0, 'memory/device_reserved (GiB)': 3.0, 'epoch': 0.1}\n",
        "0 peak 2048",
    ),
    (
        "verl",
        "job.log",
        StepLog,
        "[rank2] step 11 after forward, memory allocated (GB): 57.0, memory reserved (GB): 113.0, device memory used/total (GB): 139.0/140.0\n",
        "2 step 11 allocated 58368",
    ),
    (
        "ml-engineering",
        "job.log",
        StepLog,
        "[7] mp: after forward: MA 1.00 GiB | Max_MA 2.00 GiB | CA 3.00 GiB | Max_CA 4.00 GiB | NV 5.00 GiB | CPU mem: 9.00 GiB\n",
        "7 peak 2048 reserved 4096",
    ),
    (
        "RETURNN",
        "job.log",
        StepLog,
        "ep 13 train, step 95, ctc_4 4.363, num_seqs 10, max_size:time 225760, mem_usage:cuda:2 8.0GB, 0.750 sec/step\n",
        "GPU 2 step 95 peak 8192",
    ),
    (
        "icefall",
        "job.log",
        StepLog,
        "2021-11-12 23:01:49,990 INFO [train.py:430] (1/4) Epoch 0, batch 50, utts 3, loss 1.5643, max_mem 11405MB\n",
        "1 step 50 peak 11405",
    ),
    (
        "DETR",
        "rank4.log",
        StepLog,
        "Test:  [ 400/2478]  eta: 0:24:14  loss: 20.8  time: 0.70  data: 0.0118  max mem: 6121\n",
        "4 peak 6121",
    ),
    // Allocator statistics
    (
        "memory_stats() of Python 3.11",
        "rank0.log",
        MemoryStats,
        "OrderedDict([('allocated_bytes.all.current', 1048576), ('allocated_bytes.all.peak', 2097152), ('allocated_bytes.large_pool.peak', 7), ('reserved_bytes.all.peak', 3145728)])\n",
        "0 peak 2 reserved 3",
    ),
    (
        "memory_stats() of Python 3.12",
        "rank0.log",
        MemoryStats,
        "OrderedDict({'allocated_bytes.all.peak': 2097152, 'allocated_bytes.large_pool.peak': 7, 'reserved_bytes.all.peak': 3145728})\n",
        "0 peak 2 reserved 3",
    ),
    (
        "memory_stats_as_nested_dict()",
        "rank0.log",
        MemoryStats,
        "{'active': {'all': {'allocated': 1, 'current': 1, 'freed': 0, 'peak': 1}},\n 'allocated_bytes': {'all': {'allocated': 9, 'current': 1048576, 'freed': 0, 'peak': 2097152},\n                     'large_pool': {'allocated': 0, 'current': 7, 'freed': 0, 'peak': 7}},\n 'num_ooms': 0,\n 'reserved_bytes': {'all': {'allocated': 9, 'current': 0, 'freed': 0, 'peak': 3145728}}}\n",
        "0 peak 2 reserved 3",
    ),
    (
        "memory_summary()",
        "a.log",
        MemoryStats,
        "|===========================================================================|\n|                  PyTorch CUDA memory summary, device ID 1                 |\n|---------------------------------------------------------------------------|\n| Allocated memory      |    1000 MiB |    2000 MiB |    9000 MiB |    8000 MiB |\n| GPU reserved memory   |    3000 MiB |    4000 MiB |    9000 MiB |    5000 MiB |\n|===========================================================================|\n",
        "GPU 1 peak 2000 reserved 4000",
    ),
    ("memory_allocated prints", "rank0.log", StepLog, "max_memory_allocated: 2147483648\n", "0 peak 2048"),
    // Out of memory
    (
        "CUDA, torch 1.4",
        "a.log",
        OomMessage,
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 15.78 GiB total capacity; 12.00 GiB already allocated; 1.00 GiB free; 13.00 GiB reserved in total by PyTorch)\n",
        "oom F2 tried 2048",
    ),
    (
        "CUDA, torch 2.10",
        "a.log",
        OomMessage,
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 79.18 GiB of which 29.69 MiB is free. Including non-PyTorch memory, this process has 79.14 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n",
        "oom F7 tried 1536",
    ),
    (
        "HIP",
        "a.log",
        OomMessage,
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 191.98 GiB of which 1.00 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n",
        "oom tried 1024",
    ),
    (
        "NCCL",
        "a.log",
        OomMessage,
        "node1:123:456 [0] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n",
        "oom",
    ),
    (
        "cuBLAS",
        "a.log",
        OomMessage,
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n",
        "oom",
    ),
    ("cuDNN", "a.log", OomMessage, "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED\n", "oom"),
    (
        "TensorFlow",
        "a.log",
        OomMessage,
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,64,224,224] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n",
        "oom",
    ),
    (
        "JAX",
        "a.log",
        OomMessage,
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.\n",
        "oom tried 1024",
    ),
    // Launches
    ("torchrun", "run.sh", LaunchScript, "#!/bin/bash\ntorchrun --nproc_per_node=8 train.py\n", "processes 8"),
    (
        "accelerate launch",
        "run.sh",
        LaunchScript,
        "#!/bin/bash\naccelerate launch --num_processes 8 train.py\n",
        "launch",
    ),
    (
        "deepspeed",
        "run.sh",
        LaunchScript,
        "#!/bin/bash\ndeepspeed --num_gpus 8 train.py --deepspeed ds.json\n",
        "launch",
    ),
    (
        "sbatch",
        "job.sbatch",
        LaunchScript,
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun python train.py\n",
        "launch",
    ),
    (
        "env",
        "env.txt",
        Environment,
        "PATH=/bin\nHOME=/root\nRANK=3\nWORLD_SIZE=8\nCUDA_VISIBLE_DEVICES=0,1\n",
        "launch",
    ),
    ("/proc/PID/environ", "environ", Environment, "PATH=/bin\0RANK=3\0WORLD_SIZE=8\0", "launch"),
    (
        "accelerate config",
        "c.yaml",
        AccelerateConfig,
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 8\n",
        "launch",
    ),
    (
        "DeepSpeed config",
        "ds.json",
        DeepspeedConfig,
        "{\"zero_optimization\": {\"stage\": 3}, \"train_micro_batch_size_per_gpu\": 4}",
        "launch",
    ),
    (
        "Transformers' banner",
        "a.log",
        JobLog,
        "***** Running training *****\n  Instantaneous batch size per device = 8\n",
        "launch",
    ),
    // Others
    ("Python", "train.py", PythonScript, "import torch\n\n\ndef main():\n    torch.cuda.set_device(0)\n", ""),
    (
        "notebook",
        "a.ipynb",
        PythonScript,
        "{\"cells\": [{\"cell_type\": \"code\", \"source\": [\"import torch\\n\", \"torch.cuda.set_device(0)\"]}], \"nbformat\": 4, \"nbformat_minor\": 5, \"metadata\": {}}",
        "",
    ),
];

/// What the sample is checked for, in the words of the list.
fn figure(evidence: &Evidence, wanted: &str) -> String {
    let Some(first) = wanted.split(' ').next().filter(|word| !word.is_empty()) else { return String::new() };
    match first {
        "launch" => if evidence.launches.is_empty() { "nothing" } else { "launch" }.to_owned(),
        "processes" => evidence
            .launches
            .iter()
            .flat_map(|launch| &launch.facts)
            .find_map(|fact| match fact.what {
                LaunchSetting::ProcessesPerNode(processes) => Some(format!("processes {processes}")),
                _ => None,
            })
            .unwrap_or_default(),
        "oom" => {
            let [oom] = evidence.ooms.as_slice() else { return format!("{} messages", evidence.ooms.len()) };
            let mut shown = String::from("oom");
            if wanted.contains(" F") {
                let _ = write!(shown, " {}", oom.family);
            }
            if wanted.contains("tried") {
                let _ = write!(shown, " tried {}", oom.tried.unwrap_or_default().0 / MIB);
            }
            shown
        }
        _ => {
            let of = |step: &rankscope_model::StepRecord| {
                let mut shown = step.subject.to_string().replace("rank ", "");
                let mut add = |word: &str, value: Option<u64>| {
                    if let Some(value) = value.filter(|_| wanted.contains(word)) {
                        let _ = write!(shown, " {word} {value}");
                    }
                };
                add("step", step.step.map(|step| step.0));
                add("allocated", step.allocated.map(|bytes| bytes.0 / MIB));
                add("peak", step.peak_allocated.map(|bytes| bytes.0 / MIB));
                add("reserved", step.peak_reserved.map(|bytes| bytes.0 / MIB));
                shown
            };
            // Programs that spread a print over lines may leave one record each: they are one figure of a subject.
            let mut steps = evidence.steps.clone();
            let Some(mut one) = steps.pop() else { return "no record".to_owned() };
            for step in steps {
                one.peak_allocated = one.peak_allocated.or(step.peak_allocated);
                one.peak_reserved = one.peak_reserved.or(step.peak_reserved);
            }
            of(&one)
        }
    }
}

#[test]
fn every_named_format_is_read() {
    let mut wrong = Vec::new();
    for (program, file, kind, sample, wanted) in SAMPLES {
        let evidence = read_bytes(file, sample.as_bytes());
        let got = (evidence.artifacts[0].kind, figure(&evidence, wanted));
        if got != (*kind, (*wanted).to_owned()) {
            wrong.push(format!("{program}: {got:?}, not {:?} {:?}", (kind, wanted), evidence.artifacts[0].warnings));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SAMPLES.len(), wrong.join("\n"));
    println!("{} formats", SAMPLES.len());
}

/// Differences, losses and settings that look like figures are none.
#[test]
fn what_is_no_figure_of_a_moment_stays_out() {
    for text in [
        // HF Trainer: losses, and its memory metrics, which are differences of one process.
        "{'loss': 1.2345, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.12}\n",
        "{'loss': '1.234', 'grad_norm': '0.5', 'learning_rate': '5e-05', 'epoch': '0.12'}\n",
        "***** train metrics *****\n  train_mem_gpu_alloc_delta  =     1234MB\n  train_mem_gpu_peaked_delta =     5678MB\n",
        "{\"train_mem_gpu_alloc_delta\": 1234567890, \"train_mem_gpu_peaked_delta\": 2345678901}\n",
        // fairseq without its list of workers, Megatron-LM's estimate, Composer's numbers without a unit.
        "epoch 001:    100 / 1000 loss=10.5, num_updates=100, gb_free=20.0, wall=20\n",
        "Theoretical memory footprints: weight and optimizer=12345.0 MB, activation=678.0 MB, total=13023.0 MB\n",
        "memory/peak_allocated_mem: 12.345\n",
    ] {
        let evidence = read_bytes("rank0.log", text.as_bytes());
        assert_eq!(evidence.steps, [], "{text}");
        let warnings = evidence.artifacts[0].warnings.join("; ");
        let is_said = warnings.contains("how memory changed, or what is free");
        assert_eq!(is_said, text.contains("_delta") || text.contains("gb_free"), "{text}: {warnings}");
    }
}
