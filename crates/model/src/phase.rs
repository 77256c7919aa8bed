//! What a job was doing when: marks that a log sets where one phase gives way to another.

use crate::artifact::Provenance;
use crate::subject::Phase;
use crate::units::{Rank, Step, UnixMicros};
use serde::{Deserialize, Serialize};

/// One log line from which a phase is known to have begun, or to be under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseMark {
    /// The line; its time, where one is printed, is [`PhaseMark::time`].
    pub at: Provenance,
    /// Who said it, if a prefix or the file's name tells.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// The phase.
    pub phase: Phase,
    /// The step, if printed.
    #[serde(default)]
    pub step: Option<Step>,
}

impl PhaseMark {
    /// The time printed on the line. It has no zone: good for order and distance within one file.
    pub fn time(&self) -> Option<UnixMicros> {
        self.at.time
    }
}
