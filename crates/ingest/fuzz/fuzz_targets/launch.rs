//! `rankscope_ingest::launch::read` on any text, as each kind of launch text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::launch(bytes));
