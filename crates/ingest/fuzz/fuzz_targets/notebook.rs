//! `rankscope_ingest::python_script::read` on a notebook: any bytes, and any cells.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::notebook(bytes));
