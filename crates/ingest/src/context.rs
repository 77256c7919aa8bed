//! What every reader is told and how it may fail: the budget, the context, the error.
//!
//! Knows no format.

use rankscope_model::{ArtifactId, ArtifactInfo, ArtifactKind};
use std::io;

/// The budget for one upload. Every bound exists so that a hostile or damaged file ends in a sentence, not in a
/// full disk or a stuck process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Decompressed bytes of one upload, all members of an archive together. Default 8 GiB: a memory snapshot of
    /// 2 million events is about 0.4 GB, and users report files up to a few GB.
    pub max_decompressed_bytes: u64,
    /// Decompressed bytes for each uploaded byte, beyond [`Self::ratio_free_bytes`]. Default 64: training logs reach 10
    /// to 30, snapshots 10 to 60; deflate's own maximum is 1032. Reading takes time for each byte that comes out, so
    /// this also bounds the work that a small upload can ask for.
    pub max_ratio: u64,
    /// Decompressed bytes that any upload may have, whatever its ratio. Default 1 GiB: a looped `nvidia-smi` of idle
    /// cards packs 200 to 1, and a week of it, every second, has that size.
    pub ratio_free_bytes: u64,
    /// Members read from one upload. Default 4096: two logs for each of 2048 ranks.
    pub max_members: u32,
    /// Bytes of a zip file that is itself a member or is compressed, which must be held in memory because its
    /// directory stands at its end. Default 32 MiB.
    pub max_spooled_bytes: u64,
    /// Window of a Zstandard frame, held in memory. Default 32 MiB, which covers the levels up to 20.
    pub max_zstd_window: u64,
    /// Bytes of one text line that are looked at; the rest of it is skipped. Default 64 KiB.
    pub max_line_bytes: usize,
    /// Step records kept of one file; above it, records are thinned by rank and step. Default 200 000.
    pub max_step_records: usize,
    /// Step records kept of one upload, all members of an archive together; above it, those of all files are thinned
    /// alike. Default 300 000, in some 150 MB.
    pub max_upload_step_records: usize,
    /// Bytes of all other evidence of one upload, as JSON; beyond it no further member of an archive is read. Default
    /// 192 MiB: what few files give under 1 MB each, so this is for thousands of them.
    pub max_evidence_bytes: u64,
    /// `nvidia-smi` tables kept of one file. Default 20 000: a day of one table every 5 seconds.
    pub max_tables: usize,
    /// Rows of other device tools (CSV, monitors, metrics) kept of one file; above it, readings are thinned by time.
    /// Default 60 000: two hours of 8 cards every second, in some 35 MB.
    pub max_device_rows: usize,
    /// Out-of-memory messages kept of one file; repeats of the same message are counted once. Default 4096.
    pub max_oom_events: usize,
    /// Changes of phase kept of one file. Default 20 000.
    pub max_phase_marks: usize,
    /// Settings of the launch kept of one file. Default 4096.
    pub max_launch_facts: usize,
    /// Bytes of a launch script, an environment or a configuration file. Default 2 MiB.
    pub max_launch_bytes: u64,
    /// Warnings kept of one file. Default 32.
    pub max_warnings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_decompressed_bytes: 8 << 30,
            max_ratio: 64,
            ratio_free_bytes: 1 << 30,
            max_members: 4096,
            max_spooled_bytes: 32 << 20,
            max_zstd_window: 32 << 20,
            max_line_bytes: 64 << 10,
            max_step_records: 200_000,
            max_upload_step_records: 300_000,
            max_evidence_bytes: 192 << 20,
            max_tables: 20_000,
            max_device_rows: 60_000,
            max_oom_events: 4096,
            max_phase_marks: 20_000,
            max_launch_facts: 4096,
            max_launch_bytes: 2 << 20,
            max_warnings: 32,
        }
    }
}

/// What a reader is told about the file it reads.
///
/// A reader returns an `Evidence` that describes **one** file: `artifacts` holds exactly one entry (start from
/// [`ReadContext::info`]; the caller fills `bytes`), and every provenance carries [`ReadContext::artifact`].
#[derive(Debug, Clone, Copy)]
pub struct ReadContext<'a> {
    /// The id to put into every provenance.
    pub artifact: ArtifactId,
    /// Display name of the file; only text, never a path to open. May tell the rank ([`crate::rank_from_name`]).
    pub name: &'a str,
    /// The budget.
    pub limits: &'a Limits,
}

impl ReadContext<'_> {
    /// An artifact entry of this name and `kind`, with nothing else known yet.
    pub fn info(&self, kind: ArtifactKind) -> ArtifactInfo {
        ArtifactInfo {
            name: self.name.to_owned(),
            kind,
            ranks: Vec::new(),
            devices: Vec::new(),
            bytes: 0,
            warnings: Vec::new(),
        }
    }
}

/// Why a file could not be read. The text becomes a warning of the artifact, so it says where, why and what to do,
/// and leaves the file's name to whoever shows it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes could not be had.
    #[error("reading stopped at byte {offset}: {source}")]
    Io {
        /// Offset in the decompressed content.
        offset: u64,
        /// What the source said.
        #[source]
        source: io::Error,
    },
    /// It is another format than the name or the first bytes promised.
    #[error("{why}")]
    NotThisFormat {
        /// What it is, as far as can be told, and what to upload instead.
        why: String,
    },
    /// It is the right format, but damaged.
    #[error("damaged at byte {offset}: {why}; {advice}")]
    Malformed {
        /// Offset in the decompressed content.
        offset: u64,
        /// What was found there.
        why: String,
        /// What the user can do.
        advice: String,
    },
    /// Reading on would need something that is never done here, such as running code from the file.
    #[error("refused at byte {offset}: {why}")]
    Refused {
        /// Offset in the decompressed content.
        offset: u64,
        /// What the file asked for, and what to do instead.
        why: String,
    },
    /// A bound of [`Limits`] was met.
    #[error("{what} is over the limit of {limit}; {advice}")]
    OverLimit {
        /// What is too large, with its size where known.
        what: String,
        /// The limit, with its unit.
        limit: String,
        /// What the user can do.
        advice: String,
    },
}
