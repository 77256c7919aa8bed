//! `rankscope_ingest::query_range::read` on any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed(rankscope_ingest::query_range::read, bytes));
