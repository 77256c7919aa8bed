//! Many values over time, reduced as they arrive to the smallest and the largest of each bucket.
//!
//! The number of values need not be known before: when all buckets are full, neighbours are joined. Knows no format.

use rankscope_model::Band;

/// Most buckets of a curve: more than a page has pixels for.
pub(crate) const MAX_BUCKETS: usize = 1024;

/// `N` quantities over time.
#[derive(Debug)]
pub(crate) struct Buckets<const N: usize> {
    rows: Vec<Bucket<N>>,
    /// Values that go into one bucket.
    width: u64,
    /// Values in the last bucket.
    filled: u64,
}

#[derive(Debug, Clone, Copy)]
struct Bucket<const N: usize> {
    x: i64,
    low: [u64; N],
    high: [u64; N],
}

impl<const N: usize> Bucket<N> {
    fn take_in(&mut self, other: &Self) {
        for (low, new) in self.low.iter_mut().zip(other.low) {
            *low = new.min(*low);
        }
        for (high, new) in self.high.iter_mut().zip(other.high) {
            *high = new.max(*high);
        }
    }
}

impl<const N: usize> Buckets<N> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), width: 1, filled: 0 }
    }

    /// Takes the next values; `x` must not go back.
    pub(crate) fn push(&mut self, x: i64, values: [u64; N]) {
        let new = Bucket { x, low: values, high: values };
        match self.rows.last_mut() {
            Some(last) if self.filled < self.width => last.take_in(&new),
            _ => {
                if self.rows.len() >= MAX_BUCKETS {
                    self.join_neighbours();
                }
                self.rows.push(new);
                self.filled = 0;
            }
        }
        self.filled = self.filled.saturating_add(1);
    }

    fn join_neighbours(&mut self) {
        let joined = self.rows.chunks(2).filter_map(|pair| {
            let (first, rest) = pair.split_first()?;
            let mut first = *first;
            for other in rest {
                first.take_in(other);
            }
            Some(first)
        });
        self.rows = joined.collect();
        self.width = self.width.saturating_mul(2);
    }

    /// Where the buckets begin, and one band for each quantity.
    pub(crate) fn finish(self) -> (Vec<i64>, [Band; N]) {
        let x = self.rows.iter().map(|row| row.x).collect();
        let bands = std::array::from_fn(|quantity| Band {
            low: self.rows.iter().filter_map(|row| row.low.get(quantity).copied()).collect(),
            high: self.rows.iter().filter_map(|row| row.high.get(quantity).copied()).collect(),
        });
        (x, bands)
    }
}

const _: () = assert!(MAX_BUCKETS.is_multiple_of(2), "full buckets are joined in pairs");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reduced(values: &[u64]) -> (Vec<i64>, Band) {
        let mut buckets = Buckets::<1>::new();
        for (x, value) in (0..).zip(values) {
            buckets.push(x, [*value]);
        }
        let (x, [band]) = buckets.finish();
        (x, band)
    }

    #[test]
    fn few_values_are_kept_as_they_are() {
        let (x, band) = reduced(&[3, 1, 2]);
        assert_eq!((x, band.low, band.high), (vec![0, 1, 2], vec![3, 1, 2], vec![3, 1, 2]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Every bucket holds what the values that belong to it say.
        #[test]
        fn buckets_hold_the_extremes_of_their_values(values in prop::collection::vec(any::<u64>(), 1..9000)) {
            let (x, band) = reduced(&values);
            prop_assert!(x.len() <= MAX_BUCKETS);
            let starts: Vec<usize> = x.iter().map(|x| usize::try_from(*x).unwrap()).collect();
            for (bucket, start) in starts.iter().enumerate() {
                let end = starts.get(bucket + 1).copied().unwrap_or(values.len());
                let members = &values[*start..end];
                prop_assert_eq!(band.low[bucket], *members.iter().min().unwrap());
                prop_assert_eq!(band.high[bucket], *members.iter().max().unwrap());
            }
        }
    }
}
