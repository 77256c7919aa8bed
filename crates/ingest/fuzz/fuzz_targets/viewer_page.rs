//! `rankscope_ingest::viewer_page::each_file` on any bytes: base64 out of a page that is not ours.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::page(bytes));
