//! Moments at a steady distance from one start, so that no delay adds up. A moment that was missed is left out: two
//! readings right after each other would say the same thing twice.

use std::time::{Duration, Instant};

const NANOS: u64 = 1_000_000_000;

/// Ticks of a sampler.
#[derive(Debug, Clone)]
pub struct Ticks {
    start: Instant,
    hz: u32,
    next: u64,
}

impl Ticks {
    /// The first tick is at once.
    pub fn new(start: Instant, hz: u32) -> Self {
        Self { start, hz: hz.max(1), next: 0 }
    }

    /// When the next tick is.
    pub fn deadline(&self) -> Instant {
        self.at(self.next)
    }

    /// The whole second since the start to which the next tick belongs.
    pub fn second(&self) -> u64 {
        self.next / u64::from(self.hz)
    }

    /// Ticks in a second, at least one.
    pub fn per_second(&self) -> usize {
        usize::try_from(self.hz).unwrap_or(1)
    }

    /// The tick's work is done at `now`: on to the first tick after that.
    pub fn advance(&mut self, now: Instant) {
        let passed = u128::from(self.hz) * now.saturating_duration_since(self.start).as_nanos() / u128::from(NANOS);
        let passed = u64::try_from(passed).unwrap_or(u64::MAX - 1);
        // The division cuts off: `passed` may be the tick before `now` or at it.
        self.next = (self.next + 1).max(if self.at(passed) > now { passed } else { passed + 1 });
    }

    fn at(&self, tick: u64) -> Instant {
        let hz = u64::from(self.hz);
        let rest = (tick % hz * NANOS).div_ceil(hz);
        self.start + Duration::from_secs(tick / hz) + Duration::from_nanos(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, now: Instant) -> u128 {
        (now - start).as_micros()
    }

    #[test]
    fn ticks_do_not_drift() {
        let start = Instant::now();
        let mut ticks = Ticks::new(start, 7);
        for _ in 0..7 * 3600 {
            // Each reading takes some time.
            ticks.advance(ticks.deadline() + Duration::from_millis(3));
        }
        assert_eq!(ticks.deadline(), start + Duration::from_hours(1));
        assert_eq!(ticks.second(), 3600);
    }

    #[test]
    fn missed_ticks_are_left_out() {
        let start = Instant::now();
        let mut ticks = Ticks::new(start, 10);
        ticks.advance(start + Duration::from_millis(30));
        assert_eq!(after(start, ticks.deadline()), 100_000);
        ticks.advance(start + Duration::from_millis(455));
        assert_eq!((after(start, ticks.deadline()), ticks.second()), (500_000, 0));
        // Exactly at a tick: that one is over as well.
        ticks.advance(start + Duration::from_millis(900));
        assert_eq!((after(start, ticks.deadline()), ticks.second()), (1_000_000, 1));
    }
}
