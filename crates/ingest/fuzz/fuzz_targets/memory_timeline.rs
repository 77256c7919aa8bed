//! `rankscope_ingest::memory_timeline::read` on any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed(rankscope_ingest::memory_timeline::read, bytes));
