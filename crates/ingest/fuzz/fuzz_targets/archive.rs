//! `rankscope_ingest::read_upload` on archives and packed files: as they come, and with their checksums put right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::archive(bytes));
