//! What people say of a checklist item, beside the machine's own view.

use crate::checklist::Item;
use crate::units::UnixMicros;
use serde::{Deserialize, Serialize};

/// A person's own state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnStatus {
    /// To be looked at.
    Open,
    /// It holds.
    Holds,
    /// It does not hold.
    Fails,
    /// It did not hold and was mended; the proof is still to come.
    Mended,
    /// It cannot apply to this job.
    DoesNotApply,
}

impl OwnStatus {
    /// In the order in which they are offered.
    pub const ALL: &'static [Self] = &[Self::Open, Self::Holds, Self::Fails, Self::Mended, Self::DoesNotApply];

    /// Public slug.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Mended => "mended",
            Self::DoesNotApply => "does_not_apply",
        }
    }

    /// The status with this slug.
    pub fn from_slug(slug: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.slug() == slug)
    }

    /// A few words for readers.
    pub fn title(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Holds => "holds",
            Self::Fails => "does not hold",
            Self::Mended => "mended, proof to come",
            Self::DoesNotApply => "does not apply",
        }
    }

    /// Nothing is left to do for the item itself.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Holds | Self::Mended | Self::DoesNotApply)
    }
}

/// One entry of an item's history. Entries are added, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemNote {
    /// Opaque id.
    pub id: String,
    /// The item.
    pub item: Item,
    /// The person's state from this moment on; `None` for a note alone.
    pub status: Option<OwnStatus>,
    /// What the person wrote; may be empty beside a status.
    pub note: String,
    /// The name that the person gave.
    pub author: String,
    /// When.
    pub created_at: UnixMicros,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_those_of_the_json() {
        for status in OwnStatus::ALL {
            assert_eq!(serde_json::to_string(status).unwrap(), format!("\"{}\"", status.slug()));
            assert_eq!(OwnStatus::from_slug(status.slug()), Some(*status));
        }
        assert_eq!(OwnStatus::from_slug("fixed"), None);
    }
}
