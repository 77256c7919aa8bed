//! `nvidia-smi -q`, as text and as XML.
#![no_main]

const BEGINNINGS: &[&str] = &[
    "<nvidia_smi_log>\n<gpu id=\"00000000:1A:00.0\">\n",
    "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n<gpu>\n<processes>\n<process_info>\n",
    "==============NVSMI LOG==============\n\nGPU 00000000:1A:00.0\n",
    "==============NVSMI LOG==============\nGPU 00000000:1A:00.0\n    FB Memory Usage\n        Total                             : 40960 MiB\n",
    "==============NVSMI LOG==============\nGPU 00000000:1A:00.0\n    Processes\n        Process ID                        : 4320\n",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed_behind(
    BEGINNINGS,
    rankscope_ingest::nvidia_smi::read,
    bytes
));
