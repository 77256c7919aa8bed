//! The reader of process lists, behind the head of one of its forms.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::process_list(bytes));
