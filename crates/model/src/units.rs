//! Newtypes for the units that must never be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One kibibyte in bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte in bytes. `nvidia-smi` and nearly every training log print MiB under the name MB.
pub const MIB: u64 = 1 << 20;
/// One gibibyte in bytes.
pub const GIB: u64 = 1 << 30;

/// An exact number of bytes. Shown as binary units ([`fmt::Display`]); kept exact everywhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// From a whole number of MiB; saturates.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB))
    }

    /// From a fractional number of `unit` bytes (for instance `10240.5` MiB); `None` if negative or not finite.
    pub fn from_float(value: f64, unit: u64) -> Option<Self> {
        if !value.is_finite() || value < 0.0 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = (value * unit as f64).round() as u64; // `as` saturates
        Some(Self(bytes))
    }

    /// In GiB, for drawing.
    pub fn gib(self) -> f64 {
        self.0 as f64 / GIB as f64
    }

    /// `self - other`, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self + other`, saturating.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), Self::saturating_add)
    }
}

/// `31.5 GiB`, `871 MiB`, `4.8 KiB`, `17 B`: GiB with one decimal, KiB with one where it is not zero, the rest whole.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        if n >= GIB {
            write!(f, "{:.1} GiB", self.gib())
        } else if n >= MIB {
            // Rounding must not print 1024 MiB.
            let mib = (n as f64 / MIB as f64).round();
            if mib >= 1024.0 { write!(f, "1.0 GiB") } else { write!(f, "{mib:.0} MiB") }
        } else if n >= KIB {
            let kib = (n as f64 * 10.0 / KIB as f64).round() / 10.0;
            if kib >= 1024.0 { write!(f, "1 MiB") } else { write!(f, "{kib} KiB") }
        } else {
            write!(f, "{n} B")
        }
    }
}

/// A process of the job by its global rank (`RANK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// A training step as the job counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u64);

/// Microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMicros(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_binary_units() {
        assert_eq!(Bytes(17).to_string(), "17 B");
        assert_eq!(Bytes(12 * KIB).to_string(), "12 KiB");
        assert_eq!(Bytes(4912).to_string(), "4.8 KiB");
        assert_eq!(Bytes(MIB - 1).to_string(), "1 MiB");
        assert_eq!(Bytes::from_mib(871).to_string(), "871 MiB");
        assert_eq!(Bytes::from_mib(32268).to_string(), "31.5 GiB");
        assert_eq!(Bytes(GIB - 1).to_string(), "1.0 GiB");
    }

    #[test]
    fn floats_become_bytes_only_when_they_can() {
        assert_eq!(Bytes::from_float(10240.0, MIB), Some(Bytes(10 * GIB)));
        assert_eq!(Bytes::from_float(-1.0, MIB), None);
        assert_eq!(Bytes::from_float(f64::NAN, MIB), None);
        assert_eq!(Bytes::from_float(1e300, GIB), Some(Bytes(u64::MAX)));
    }
}
