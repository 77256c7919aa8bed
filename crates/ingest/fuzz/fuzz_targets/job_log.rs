//! `rankscope_ingest::read_upload` on a job log: all readers of text at once.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::job_log(bytes));
