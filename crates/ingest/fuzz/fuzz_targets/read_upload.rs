//! `rankscope_ingest::read_upload` on any bytes: sniffing, unpacking, and whichever reader is picked.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::upload(bytes));
