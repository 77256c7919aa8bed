//! `rankscope_ingest::live_record::read` on any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed(
    |input, ctx| Ok(rankscope_ingest::live_record::read(input, ctx)),
    bytes
));
