//! `nvidia-smi dmon` and `pmon`.
#![no_main]

const BEGINNINGS: &[&str] = &[
    "",
    "# gpu         pid   type     fb   ccpm    command\n# Idx           #    C/G     MB     MB    name\n",
    "#Date       Time        gpu     fb   bar1   ccpm\n#YYYYMMDD   HH:MM:SS    Idx     MB     MB     MB\n",
    "# gpu   pwr gtemp mtemp    sm   mem    fb\n",
    "# gpu        pid  type    sm   mem   enc   dec    fb   command\n",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed_behind(
    BEGINNINGS,
    rankscope_ingest::nvidia_smi::read,
    bytes
));
