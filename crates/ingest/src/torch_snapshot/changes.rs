//! Which events of a recording changed what was live: one bit each.
//!
//! The walk back finds out; a walk forwards then needs no second look at what contradicts what.

/// One bit per event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Changes(Vec<u64>);

impl Changes {
    /// No event changed anything yet.
    pub(super) fn none(events: usize) -> Self {
        Self(vec![0; events.div_ceil(64)])
    }

    /// Event `index` did.
    #[inline]
    pub(super) fn set(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Whether event `index` did.
    #[inline]
    pub(super) fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_its_bit() {
        let mut changes = Changes::none(130);
        for index in [0, 63, 64, 129, 900] {
            changes.set(index);
        }
        let set: Vec<usize> = (0..1000).filter(|index| changes.has(*index)).collect();
        assert_eq!(set, [0, 63, 64, 129]);
    }
}
