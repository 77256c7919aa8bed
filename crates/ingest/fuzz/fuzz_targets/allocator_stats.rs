//! `rankscope_ingest::step_log::read` behind the beginning of a printed table or dictionary of the allocator.
#![no_main]

const BEGINNINGS: &[&str] = &[
    "|                  PyTorch CUDA memory summary, device ID 1                 |\n",
    "| Allocated memory      |   1062 MB |   4877 MB |  905 GB |  904 GB |\n",
    "OrderedDict([('active.all.allocated', 3), ('allocated_bytes.all.peak', ",
    "{'active_bytes.all.current': 512, 'reserved_bytes.all.current': ",
    "{'allocated_bytes': {'all': {'current': 512, 'peak': ",
    "[rank3]: {\n 'reserved_bytes': {\n  'all': {\n",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed_behind(
    BEGINNINGS,
    rankscope_ingest::step_log::read,
    bytes
));
