//! Metrics in the text format of Prometheus.
#![no_main]

const BEGINNINGS: &[&str] = &[
    "",
    "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-5a1b2c3d-0000-4000-8000-000000000000\",Hostname=\"node7\"} 21000 1714979289000\n",
    "DCGM_FI_DEV_FB_FREE{gpu=\"1\",",
    "dcgm_fb_used{gpu=\"0\"} ",
    "nvidia_smi_memory_used_bytes{uuid=\"5a1b2c3d-0000-4000-8000-000000000000\"} ",
    "nvidia_smi_gpu_info{index=\"0\",",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed_behind(
    BEGINNINGS,
    rankscope_ingest::nvidia_smi::read,
    bytes
));
