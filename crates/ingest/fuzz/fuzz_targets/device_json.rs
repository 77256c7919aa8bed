//! The JSON of gpustat, `rocm-smi` and `amd-smi`.
#![no_main]

const BEGINNINGS: &[&str] = &[
    "{",
    "[\n{",
    "{\"hostname\": \"node7\", \"gpus\": [{\"index\": 0, \"memory.used\": ",
    "{\"card0\": {\"VRAM Total Memory (B)\": \"68702699520\", ",
    "[{\"gpu\": 0, \"mem_usage\": {\"total_vram\": {\"value\": 196592, \"unit\": \"MB\"}, ",
    "[{\"gpu\": 0, \"process_list\": [{\"process_info\": {",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed_behind(
    BEGINNINGS,
    rankscope_ingest::nvidia_smi::read,
    bytes
));
