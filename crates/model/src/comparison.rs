//! Two runs side by side: is the fix proven?
//!
//! Made by the diagnosis from two reports, shown by pages, exports and the API.

use crate::cause::CauseLabel;
use crate::checklist::{Item, ItemStatus};
use crate::diagnosis::{ChecklistEntry, Collect, Finding, Severity};
use crate::subject::{Phase, Quantity, Subject};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// Value of [`Comparison::format`].
pub const COMPARISON_FORMAT: &str = "rankscope.comparison/1";

/// What became of a run's imbalance in the run after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`COMPARISON_FORMAT`].
    pub format: String,
    /// The answer.
    pub outcome: Outcome,
    /// The answer as one or two sentences that can be pasted into a chat.
    pub sentence: String,
    /// What is compared; `None` when the runs share no quantity.
    pub quantity: Option<Quantity>,
    /// Peaks of the two runs side by side, in subject order.
    pub rows: Vec<ComparedRow>,
    /// Figures of the run before.
    pub base: Option<SpreadFigures>,
    /// Figures of the run after.
    pub head: Option<SpreadFigures>,
    /// The same for each phase that one of the runs shows.
    pub phases: Vec<ComparedPhase>,
    /// Batches of the two runs.
    pub input: ComparedInput,
    /// Causes of either run, those that matter first.
    pub causes: Vec<ComparedCause>,
    /// What weakens or forbids the answer, the gravest first.
    pub doubts: Vec<Doubt>,
    /// What would settle what is open, most telling first.
    pub collect: Vec<Collect>,
    /// The item to go back to, while the fix is not proven.
    pub back_to: Option<Item>,
}

impl Comparison {
    /// The checklist's closing item as the comparison decides it, with its finding.
    pub fn verified(&self) -> (ChecklistEntry, Finding) {
        let severity = match self.outcome {
            Outcome::NotFixed => Severity::Critical,
            Outcome::Partly => Severity::Warning,
            Outcome::Fixed | Outcome::CannotTell => Severity::Info,
        };
        let mut ranks: Vec<u32> =
            self.head.iter().flat_map(|head| &head.heaviest).filter_map(|subject| subject.rank()).collect();
        ranks.sort_unstable();
        let finding = Finding {
            id: "verified".to_owned(),
            item: Item::Verified,
            label: None,
            severity,
            // Figures were compared, not guessed; a doubt leaves room for a moment that was not seen.
            confidence: if self.doubts.is_empty() { 0.95 } else { 0.8 },
            claim: self.sentence.clone(),
            ranks,
            evidence: Vec::new(),
        };
        let entry = ChecklistEntry {
            stage: Item::Verified.stage().number(),
            item: Item::Verified,
            status: self.outcome.status(),
            findings: vec![finding.id.clone()],
            collect: self.collect.clone(),
        };
        (entry, finding)
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The difference is gone, wherever the run before showed it.
    Fixed,
    /// It is smaller, or gone in some places only.
    Partly,
    /// It is still there, or a new one has come.
    NotFixed,
    /// The two runs do not tell.
    CannotTell,
}

impl Outcome {
    /// A word or two for readers.
    pub fn title(self) -> &'static str {
        match self {
            Self::Fixed => "Fixed",
            Self::Partly => "Partly fixed",
            Self::NotFixed => "Not fixed",
            Self::CannotTell => "Cannot tell",
        }
    }

    /// The state of the checklist's closing item.
    pub fn status(self) -> ItemStatus {
        match self {
            Self::Fixed => ItemStatus::Pass,
            Self::Partly => ItemStatus::Suspect,
            Self::NotFixed => ItemStatus::Fail,
            Self::CannotTell => ItemStatus::Unknown,
        }
    }
}

/// One rank or device in both runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRow {
    /// Whose.
    pub subject: Subject,
    /// Peak in the run before.
    pub base: Option<Bytes>,
    /// Peak in the run after.
    pub head: Option<Bytes>,
    /// Stood out before.
    pub base_accused: bool,
    /// Stands out after.
    pub head_accused: bool,
}

impl ComparedRow {
    /// After minus before, where both are known.
    pub fn difference(&self) -> Option<i64> {
        let signed = |bytes: Bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX);
        Some(signed(self.head?).saturating_sub(signed(self.base?)))
    }
}

/// How far apart the subjects of one run are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadFigures {
    /// Largest peak.
    pub max: Bytes,
    /// Median peak.
    pub median: Bytes,
    /// Smallest peak.
    pub min: Bytes,
    /// By how much those who stand out are above the others; else largest minus median.
    pub gap: Bytes,
    /// Who stands out, heaviest first.
    pub heaviest: Vec<Subject>,
    /// Ranks or devices compared.
    pub compared: u32,
    /// Steps or tables behind it.
    pub moments: u64,
    /// The subjects are near each other over the run and far apart at one moment: the figures are of that moment.
    #[serde(default)]
    pub at_one_moment: bool,
}

impl SpreadFigures {
    /// Nobody stands out.
    pub fn is_even(&self) -> bool {
        self.heaviest.is_empty()
    }
}

/// One phase in both runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedPhase {
    /// Which; `None` where the evidence names none.
    pub phase: Option<Phase>,
    /// What is compared in it.
    pub quantity: Quantity,
    /// Before.
    pub base: Option<SpreadFigures>,
    /// After.
    pub head: Option<SpreadFigures>,
    /// The answer for this phase alone; `None` where one of the runs does not show it.
    pub outcome: Option<Outcome>,
}

/// What can be said of the batches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct ComparedInput {
    /// Most to fewest tokens at the worst step before; `None` when not printed.
    pub base_ratio: Option<f64>,
    /// The same after.
    pub head_ratio: Option<f64>,
    /// Steps with figures of all ranks before.
    pub base_steps: u64,
    /// The same after.
    pub head_steps: u64,
    /// Shapes and tokens are equal over ranks now, or nearly; `None` when the run after does not say.
    pub is_even_now: Option<bool>,
}

/// A cause in both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedCause {
    /// Which.
    pub label: CauseLabel,
    /// What became of it.
    pub fate: CauseFate,
    /// Confidence before, 0 when not named.
    pub base_confidence: f64,
    /// Confidence after, 0 when not named.
    pub head_confidence: f64,
}

/// What became of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseFate {
    /// Named in both runs.
    Remains,
    /// Named after only.
    New,
    /// Named before; the evidence after speaks against it.
    Gone,
    /// Named before; the run after has no evidence of it either way.
    NotSeen,
}

impl CauseFate {
    /// A word or two for readers.
    pub fn title(self) -> &'static str {
        match self {
            Self::Remains => "remains",
            Self::New => "new",
            Self::Gone => "gone",
            Self::NotSeen => "not seen",
        }
    }
}

/// Something that weakens the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// In a sentence.
    pub text: String,
    /// With it no proof is accepted.
    pub forbids_proof: bool,
}
