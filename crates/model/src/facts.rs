//! What two runs are held against each other by: the pressure of each rank by phase, what the ranks were fed, and on
//! which cards. Reduced from evidence and frozen with the report, so that an old report can still be compared.

use crate::script::Framework;
use crate::subject::{Phase, Quantity, Subject};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// Facts of a run beside its charts. Empty in reports that were frozen before these facts were kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunFacts {
    /// Peaks of all subjects, one entry per quantity and phase.
    #[serde(default)]
    pub peaks: Vec<PhasePeaks>,
    /// What the ranks were fed in training, where the evidence says.
    #[serde(default)]
    pub input: Option<InputFacts>,
    /// The distinct cards, by name and capacity.
    #[serde(default)]
    pub cards: Vec<CardFacts>,
    /// Frameworks that the scripts use.
    #[serde(default)]
    pub frameworks: Vec<Framework>,
}

impl RunFacts {
    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The entry of a quantity in a phase.
    pub fn peaks_of(&self, quantity: Quantity, phase: Option<Phase>) -> Option<&PhasePeaks> {
        self.peaks.iter().find(|entry| entry.quantity == quantity && entry.phase == phase)
    }
}

/// The peak of each subject in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhasePeaks {
    /// What is measured.
    pub quantity: Quantity,
    /// The phase; `None` where the evidence names none.
    pub phase: Option<Phase>,
    /// Moments (steps, tables) at which at least one subject has a figure.
    pub moments: u64,
    /// Largest value per subject, in subject order.
    pub peaks: Vec<(Subject, Bytes)>,
    /// The moment at which the subjects are furthest apart; only moments at which all of them have a figure count.
    /// Ranks that take turns show here and not in the peaks.
    #[serde(default)]
    pub widest: Option<Moment>,
}

/// Values of all subjects at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The step, where steps are printed.
    pub step: Option<u64>,
    /// Value per subject, in subject order.
    pub values: Vec<(Subject, Bytes)>,
}

/// Batches of all ranks side by side, training only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFacts {
    /// Steps at which every rank that speaks of its input has a figure.
    pub steps: u64,
    /// Of those, steps with unequal numbers of samples.
    pub uneven_samples: u64,
    /// Of those, steps with unequal numbers of tokens (or of elements of the batch, padding included).
    pub uneven_tokens: u64,
    /// Most tokens of a rank at the step that is furthest apart.
    pub worst_most: u64,
    /// Fewest tokens of a rank at that step.
    pub worst_fewest: u64,
    /// Largest shapes or counts per rank, in subject order.
    pub ranks: Vec<RankInput>,
}

impl InputFacts {
    /// Most to fewest tokens at the step that is furthest apart; 1 where all are equal.
    pub fn worst_ratio(&self) -> f64 {
        if self.worst_most == self.worst_fewest {
            return 1.0;
        }
        self.worst_most as f64 / self.worst_fewest.max(1) as f64
    }
}

/// What one rank was fed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInput {
    /// Whose.
    pub subject: Subject,
    /// Batches with a figure.
    pub batches: u64,
    /// Tokens (or elements) over all batches.
    pub tokens: u64,
    /// Most tokens (or elements) in one batch.
    pub largest: u64,
    /// The shape of that batch, where shapes are printed.
    #[serde(default)]
    pub shape: Option<Vec<u64>>,
}

/// One kind of card.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CardFacts {
    /// Name as printed.
    pub name: Option<String>,
    /// Capacity.
    pub capacity: Option<Bytes>,
}
