//! A run, and a report of it frozen at a moment.

use crate::checklist::Item;
use crate::diagnosis::{Collect, Diagnosis, Verdict};
use crate::figures::Figures;
use crate::units::UnixMicros;
use serde::{Deserialize, Serialize};

/// One training job under investigation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Opaque id; part of the page's address.
    pub id: String,
    /// Title given by a person, or made from the files.
    pub title: String,
    /// When the run was created.
    pub created_at: UnixMicros,
}

/// A line of the list of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The run.
    #[serde(flatten)]
    pub run: RunInfo,
    /// Verdict of the newest diagnosis.
    pub verdict: Verdict,
    /// Its summary.
    pub summary: String,
    /// How many artifacts.
    pub artifacts: u32,
}

/// A diagnosis with its figures, frozen at a moment; what pages, exports and shares show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run.
    pub run: RunInfo,
    /// 1 for the first diagnosis of the run, then counting up.
    pub version: u32,
    /// When this version was made.
    pub diagnosed_at: UnixMicros,
    /// The diagnosis.
    pub diagnosis: Diagnosis,
    /// The charts' numbers.
    pub figures: Figures,
    /// The one most telling next step.
    pub next: Option<(Item, Collect)>,
}

/// A share as its owner sees it. The token itself is shown once and never stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShareInfo {
    /// Opaque id for revoking.
    pub id: String,
    /// Version of the report it shows.
    pub version: u32,
    /// When it was made.
    pub created_at: UnixMicros,
    /// When it stops working; `None` for never.
    pub expires_at: Option<UnixMicros>,
    /// When it was revoked.
    pub revoked_at: Option<UnixMicros>,
    /// Visitors are asked for a password.
    #[serde(default)]
    pub password: bool,
    /// Visitors may download the files as they were uploaded.
    #[serde(default)]
    pub raw_files: bool,
    /// Host names, user names and paths are replaced.
    #[serde(default)]
    pub masked: bool,
    /// When its page was last opened; `None` for never.
    #[serde(default)]
    pub last_seen_at: Option<UnixMicros>,
}
