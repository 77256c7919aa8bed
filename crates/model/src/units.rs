//! Newtypes for the units that must never be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One kibibyte in bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte in bytes. `nvidia-smi` and nearly every training log print MiB under the name MB.
pub const MIB: u64 = 1 << 20;
/// One gibibyte in bytes.
pub const GIB: u64 = 1 << 30;

/// 64 TiB. No card and no host of a job has as much: a figure beyond it is damage.
pub const MOST_BYTES: Bytes = Bytes(1 << 46);

/// An exact number of bytes. Shown as binary units ([`fmt::Display`]); kept exact everywhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// From a whole number of MiB; saturates.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB))
    }

    /// From a fractional number of `unit` bytes (for instance `10240.5` MiB); `None` if negative, not finite, or more than
    /// any machine has ([`MOST_BYTES`]).
    pub fn from_float(value: f64, unit: u64) -> Option<Self> {
        let bytes = value * unit as f64;
        if !(0.0..MOST_BYTES.0 as f64).contains(&bytes) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds above")]
        Some(Self(bytes.round() as u64))
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
        // Whole numbers only: the tables for printing floats would be a tenth of what a browser loads.
        let n = self.0;
        if n >= GIB {
            let (whole, tenth) = tenths(n, GIB);
            write!(f, "{whole}.{tenth} GiB")
        } else if n >= MIB {
            // Rounding must not print 1024 MiB.
            let mib = (n + MIB / 2) / MIB;
            if mib >= 1024 { write!(f, "1.0 GiB") } else { write!(f, "{mib} MiB") }
        } else if n >= KIB {
            match tenths(n, KIB) {
                (1024.., _) => write!(f, "1 MiB"),
                (whole, 0) => write!(f, "{whole} KiB"),
                (whole, tenth) => write!(f, "{whole}.{tenth} KiB"),
            }
        } else {
            write!(f, "{n} B")
        }
    }
}

/// `n / unit` as whole and tenths, the nearest; of two as near the even one, as floats are printed.
const fn tenths(n: u64, unit: u64) -> (u64, u64) {
    let (whole, rest) = (n / unit, n % unit * 10);
    let (tenth, left) = (rest / unit, rest % unit);
    let up = left * 2 > unit || (left * 2 == unit && tenth % 2 == 1);
    let tenth = tenth + up as u64;
    if tenth == 10 { (whole + 1, 0) } else { (whole, tenth) }
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

impl UnixMicros {
    /// The time of day in UTC, `14:03:10`.
    pub fn clock(self) -> String {
        let of_day = self.0.div_euclid(1_000_000).rem_euclid(86_400);
        format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_in_utc() {
        assert_eq!(UnixMicros(1_764_467_297_999_999).clock(), "01:48:17");
        assert_eq!(UnixMicros(-1).clock(), "23:59:59");
    }

    #[test]
    fn bytes_are_shown_in_binary_units() {
        assert_eq!(Bytes(17).to_string(), "17 B");
        assert_eq!(Bytes(12 * KIB).to_string(), "12 KiB");
        assert_eq!(Bytes(4912).to_string(), "4.8 KiB");
        assert_eq!(Bytes(MIB - 1).to_string(), "1 MiB");
        assert_eq!(Bytes::from_mib(871).to_string(), "871 MiB");
        assert_eq!(Bytes::from_mib(32268).to_string(), "31.5 GiB");
        assert_eq!(Bytes(GIB - 1).to_string(), "1.0 GiB");
        assert_eq!(Bytes(2 * GIB - 1).to_string(), "2.0 GiB");
        for eighths in 8..40 {
            let bytes = Bytes(eighths * GIB / 8 + eighths % 3);
            assert_eq!(bytes.to_string(), format!("{:.1} GiB", bytes.gib()));
        }
        assert_eq!(Bytes(u64::MAX).to_string(), "17179869184.0 GiB");
    }

    #[test]
    fn floats_become_bytes_only_when_they_can() {
        assert_eq!(Bytes::from_float(10240.0, MIB), Some(Bytes(10 * GIB)));
        assert_eq!(Bytes::from_float(-1.0, MIB), None);
        assert_eq!(Bytes::from_float(f64::NAN, MIB), None);
        assert_eq!(Bytes::from_float(1e300, GIB), None);
        assert_eq!(Bytes::from_float(64.0 * 1024.0, GIB), None);
        assert_eq!(Bytes::from_float(63.0 * 1024.0, GIB), Some(Bytes(63 << 40)));
    }
}
