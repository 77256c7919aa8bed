//! How long to wait before the next attempt: longer each time, and by chance, so that a thousand agents do not come back
//! at the same moment.

use std::time::Duration;

/// Pauses between attempts, with full jitter: anything between nothing and a bound that doubles.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// The bound of the first pause, and of the longest.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// An attempt succeeded. Whether others had failed before.
    pub fn reset(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// An attempt failed: how long to wait. `chance` is between 0 and 1.
    pub fn pause(&mut self, chance: f64) -> Duration {
        self.pause_within(chance, self.longest)
    }

    /// The same, where no pause is to be longer than `most`: an attempt that costs next to nothing may come often.
    pub fn pause_within(&mut self, chance: f64, most: Duration) -> Duration {
        let bound = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest).min(most);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(chance.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        let bounds: Vec<u64> = (0..9).map(|_| backoff.pause(1.0).as_secs()).collect();
        assert_eq!(bounds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(backoff.reset());
        assert_eq!(backoff.pause(1.0), Duration::from_secs(1));
        assert!(backoff.reset() && !backoff.reset());
    }

    #[test]
    fn pauses_within_a_bound_stay_there_however_many_attempts_failed() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        let bounds: Vec<u64> = (0..9).map(|_| backoff.pause_within(1.0, Duration::from_secs(4)).as_secs()).collect();
        assert_eq!(bounds, [1, 2, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!(backoff.pause(1.0), Duration::from_mins(1), "they are counted");
    }

    #[test]
    fn chance_spreads_the_pauses() {
        let mut backoff = Backoff::new(Duration::from_secs(8), Duration::from_mins(1));
        assert_eq!(backoff.pause(0.0), Duration::ZERO);
        assert_eq!(backoff.pause(0.25), Duration::from_secs(4));
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        assert!((0..100_000).all(|_| backoff.pause(1.0) <= Duration::from_mins(1)));
    }
}
