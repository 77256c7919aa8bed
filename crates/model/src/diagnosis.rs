//! The diagnosis: a public JSON contract, `rankscope.diagnosis/1`. Change it only with a new version.

use crate::artifact::{ArtifactInfo, EvidenceRef};
use crate::cause::CauseLabel;
use crate::checklist::{Item, ItemStatus};
use crate::live::LiveStateKind;
use crate::subject::{Phase, Quantity, Subject};
use crate::units::{Bytes, UnixMicros};
use serde::{Deserialize, Serialize};

/// Value of [`Diagnosis::format`].
pub const DIAGNOSIS_FORMAT: &str = "rankscope.diagnosis/1";

/// What was found, why, and what would settle the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`DIAGNOSIS_FORMAT`].
    pub format: String,
    /// The answer to the first question: everyone full, or one card full?
    pub verdict: Verdict,
    /// One or two sentences that can be pasted into a chat.
    pub summary: String,
    /// Figures of the imbalance; `None` when no quantity is known for at least two comparable ranks or devices.
    pub imbalance: Option<Imbalance>,
    /// Best first.
    pub causes: Vec<Cause>,
    /// Every item, in order.
    pub checklist: Vec<ChecklistEntry>,
    /// Claims that causes and items refer to.
    pub findings: Vec<Finding>,
    /// What was read.
    pub artifacts: Vec<ArtifactInfo>,
    /// What happened to cards, drivers and ranks while they were watched, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<RunEvent>,
}

impl Diagnosis {
    /// The ranks differ because they are meant to.
    pub fn is_by_design(&self) -> bool {
        self.imbalance.as_ref().is_some_and(|imbalance| imbalance.by_design)
    }

    /// The verdict in a few words; what is meant to be is no imbalance without a word.
    pub fn verdict_title(&self) -> &'static str {
        if self.is_by_design() { "Different by design" } else { self.verdict.title() }
    }
}

/// Something that happened while a job was watched: a GPU was lost, an Xid, a rank that ended before the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// When.
    pub at: UnixMicros,
    /// What it was from then on.
    pub kind: LiveStateKind,
    /// In a sentence, with the node where there are several.
    pub text: String,
    /// How often the same was told.
    pub times: u32,
    /// When it was told last, if more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<UnixMicros>,
    /// Where it stands.
    pub evidence: EvidenceRef,
}

impl RunEvent {
    /// `3 times, last at 14:05:12`, of what was told more than once.
    pub fn repeated(&self) -> Option<String> {
        let last = self.last.map_or_else(String::new, |last| format!(", last at {}", last.clock()));
        (self.times > 1).then(|| format!("{} times{last}", self.times))
    }
}

/// The first question answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Some ranks or devices use more than the others.
    Imbalance,
    /// All are equally full: the model or the batch is too big.
    UniformPressure,
    /// No difference worth a finding, and no pressure.
    Balanced,
    /// The evidence does not tell.
    Inconclusive,
}

impl Verdict {
    /// A few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Imbalance => "Imbalance",
            Self::UniformPressure => "All ranks equally full",
            Self::Balanced => "Balanced",
            Self::Inconclusive => "Not settled",
        }
    }
}

/// How far apart the ranks (or devices) are in one quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Imbalance {
    /// What is compared.
    pub quantity: Quantity,
    /// `max / mean - 1`, at least 0.
    pub ratio: f64,
    /// The largest peak.
    pub max_bytes: Bytes,
    /// The median of all peaks; of an even count the lower of the two middle ones, so that it is a value some card
    /// really has, and of two cards the emptier one.
    pub median_bytes: Bytes,
    /// The mean of all peaks.
    pub mean_bytes: Bytes,
    /// Who stands out, heaviest first; empty when nobody does.
    pub heaviest: Vec<Subject>,
    /// How many ranks or devices were compared.
    pub compared: u32,
    /// Capacity of the heaviest device, where known.
    pub capacity_bytes: Option<Bytes>,
    /// When the gap opens, where the evidence has a time or step axis.
    pub opens_at: Option<OpensAt>,
    /// The one step that the figures are of, where they are no peaks over the record: the log has no other, or ranks
    /// take turns, so that they are near each other over the whole and apart at each step. Nothing opens then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<OpensAt>,
    /// Bytes of `max - median` that the first cause accounts for, where that can be counted.
    pub explained_bytes: Option<Bytes>,
    /// The ranks are meant to differ so, as the first cause says: `heaviest` names them and accuses nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_design: bool,
}

/// A moment of the record: the one at which the heaviest leaves the others, or the one that figures are of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpensAt {
    /// Step, where the evidence counts steps.
    pub step: Option<u64>,
    /// Phase at that moment.
    pub phase: Option<Phase>,
    /// In words: `before the first step`, `at step 12 (eval)`.
    pub text: String,
}

/// One cause with its reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Which.
    pub label: CauseLabel,
    /// 0 to 1.
    pub confidence: f64,
    /// Ranks concerned, ascending; empty when only devices or PIDs are known.
    pub ranks: Vec<u32>,
    /// Reasons for it.
    pub why: Vec<String>,
    /// Reasons against it, and what would look the same.
    pub against: Vec<String>,
    /// What to do, as text and, after a blank line, code lines that start with a space, `+` or `-`.
    pub remedy: String,
    /// References; [`EvidenceRef::reason`] says which reason each supports.
    pub evidence: Vec<EvidenceRef>,
}

/// The state of one checklist item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChecklistEntry {
    /// 1 to 4.
    pub stage: u8,
    /// Which.
    pub item: Item,
    /// What the evidence says.
    pub status: ItemStatus,
    /// Ids of findings.
    pub findings: Vec<String>,
    /// What would decide it, most telling first; never empty for `unknown`.
    pub collect: Vec<Collect>,
}

/// Something to collect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collect {
    /// What it would show.
    pub what: String,
    /// The exact command or code line.
    pub command: String,
}

/// One claim about one item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Unique in this diagnosis: `f1`, `f2`, ...
    pub id: String,
    /// The item it belongs to.
    pub item: Item,
    /// The cause it speaks for, if one.
    pub label: Option<CauseLabel>,
    /// How bad.
    pub severity: Severity,
    /// 0 to 1: that the claim itself is true.
    pub confidence: f64,
    /// One sentence.
    pub claim: String,
    /// Ranks concerned.
    pub ranks: Vec<u32>,
    /// Where it was read.
    pub evidence: Vec<EvidenceRef>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; speaks for an item or explains a figure.
    Info,
    /// Likely part of the problem.
    Warning,
    /// The problem, or memory that runs out.
    Critical,
}
