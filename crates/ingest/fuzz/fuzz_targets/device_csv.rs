//! The tables of commas: `--query-gpu`, `--query-compute-apps`, `rocm-smi --csv`.
#![no_main]

const BEGINNINGS: &[&str] = &[
    "",
    "index, uuid, name, pci.bus_id, memory.total [MiB], memory.used [MiB], utilization.gpu [%], timestamp\n",
    "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n",
    "timestamp, gpu_bus_id, pid, process_name, used_memory\n",
    "nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv,noheader,nounits\n",
    "device,VRAM Total Memory (B),VRAM Total Used Memory (B)\n",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed_behind(
    BEGINNINGS,
    rankscope_ingest::nvidia_smi::read,
    bytes
));
