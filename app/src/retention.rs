//! How long the runs of a project are kept, as its page shows it. Plain data; the server fills it in.

use crate::accounts::ProjectChoice;
use rankscope_model::UnixMicros;

/// Limits as they were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptFor {
    /// Days since a run's last change.
    pub days: Option<u32>,
    /// Bytes of all files of the project.
    pub bytes: Option<u64>,
}

/// Limits as somebody wrote them to see what they would do. Empty for no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AskedLimits {
    /// A number of days.
    pub days: String,
    /// A size such as `20GiB`.
    pub size: String,
}

/// A run past the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiringRun {
    /// Its id.
    pub run: String,
    /// Its title.
    pub title: String,
    /// When it was changed last.
    pub changed_at: UnixMicros,
    /// Bytes of its files.
    pub bytes: u64,
    /// Why it goes, or why it is spared.
    pub why: &'static str,
}

/// What limits mean for a project at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Consequences {
    /// All runs of the project, and the bytes of their files.
    pub all: (u64, u64),
    /// What goes, in that order.
    pub going: Vec<ExpiringRun>,
    /// What is past the limits and stays all the same.
    pub spared: Vec<ExpiringRun>,
}

/// The page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Whose runs.
    pub project: ProjectChoice,
    /// The limits that hold.
    pub kept: KeptFor,
    /// When they are looked at next; never where there are none.
    pub next_look: Option<UnixMicros>,
    /// The limits that were asked about: what they are, or why they are none.
    pub asked: Option<(AskedLimits, Result<KeptFor, String>)>,
    /// Of the limits that were asked about, or else of those that hold.
    pub consequences: Consequences,
}
