//! How often somebody may try: a token bucket for each key, in bounded memory.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Keys that are kept apart. Who comes when there is no room shares one bucket with others who do.
const MOST_KEYS: usize = 10_000;

/// Buckets that hold `burst` tries and get one back every `refill`.
#[derive(Debug)]
pub struct Throttle<K> {
    burst: u32,
    refill: Duration,
    most_keys: usize,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    by_key: HashMap<K, Bucket>,
    rest: Option<Bucket>,
}

/// Tries that were made and not yet forgotten, as the time at which all will be.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    empty_at: Instant,
}

impl<K: Eq + Hash + Clone> Throttle<K> {
    /// `burst` tries at once, then one every `refill`.
    pub fn new(burst: u32, refill: Duration) -> Self {
        Self::with_keys(burst, refill, MOST_KEYS)
    }

    fn with_keys(burst: u32, refill: Duration, most_keys: usize) -> Self {
        Self { burst, refill, most_keys, buckets: Mutex::new(Buckets { by_key: HashMap::new(), rest: None }) }
    }

    /// Whether another try is allowed; if not, after which time one is.
    pub fn check(&self, key: &K) -> Result<(), Duration> {
        self.check_at(key, Instant::now())
    }

    /// Counts a try, if it is allowed.
    pub fn take(&self, key: &K) -> Result<(), Duration> {
        self.take_at(key, Instant::now())
    }

    /// Forgets one try: it was a good one.
    pub fn give_back(&self, key: &K) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(bucket) = buckets.by_key.get_mut(key) {
            bucket.empty_at = bucket.empty_at.checked_sub(self.refill).unwrap_or(now);
        }
    }

    fn check_at(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = match buckets.by_key.get(key) {
            None if buckets.by_key.len() >= self.most_keys => buckets.rest.as_ref(),
            known => known,
        };
        self.allows(bucket, now)
    }

    fn take_at(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = &mut *buckets;
        if !buckets.by_key.contains_key(key) && buckets.by_key.len() >= self.most_keys {
            buckets.by_key.retain(|_, bucket| bucket.empty_at > now);
        }
        let has_room = buckets.by_key.len() < self.most_keys;
        let bucket = if has_room || buckets.by_key.contains_key(key) {
            buckets.by_key.entry(key.clone()).or_insert(Bucket { empty_at: now })
        } else {
            buckets.rest.get_or_insert(Bucket { empty_at: now })
        };
        self.allows(Some(bucket), now)?;
        bucket.empty_at = bucket.empty_at.max(now) + self.refill;
        Ok(())
    }

    fn allows(&self, bucket: Option<&Bucket>, now: Instant) -> Result<(), Duration> {
        let Some(bucket) = bucket else { return Ok(()) };
        let room = self.refill * self.burst.saturating_sub(1);
        let waits = bucket.empty_at.saturating_duration_since(now).saturating_sub(room);
        if waits.is_zero() { Ok(()) } else { Err(waits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_allowed_and_then_one_at_a_time() {
        let throttle = Throttle::new(3, SECOND);
        let start = Instant::now();
        for _ in 0..3 {
            throttle.take_at(&"a", start).unwrap();
        }
        assert_eq!(throttle.take_at(&"a", start), Err(SECOND));
        assert_eq!(throttle.check_at(&"a", start), Err(SECOND));
        throttle.take_at(&"b", start).unwrap();
        throttle.take_at(&"a", start + SECOND).unwrap();
        assert!(throttle.take_at(&"a", start + SECOND).is_err());
        for _ in 0..3 {
            throttle.take_at(&"a", start + 60 * SECOND).unwrap();
        }
        assert!(throttle.take_at(&"a", start + 60 * SECOND).is_err(), "waiting long gives no more than the burst");
    }

    #[test]
    fn good_tries_do_not_count() {
        let throttle = Throttle::new(2, SECOND);
        for _ in 0..20 {
            throttle.take(&1).unwrap();
            throttle.give_back(&1);
        }
    }

    #[test]
    fn memory_is_bounded_and_strangers_without_room_share() {
        let throttle = Throttle::with_keys(1, SECOND, 10);
        let start = Instant::now();
        for key in 0..10 {
            throttle.take_at(&key, start).unwrap();
        }
        throttle.take_at(&100, start).unwrap();
        assert!(throttle.take_at(&101, start).is_err());
        assert!(throttle.check_at(&102, start).is_err());
        assert_eq!(throttle.buckets.lock().unwrap().by_key.len(), 10);
        // Forgotten buckets make room.
        throttle.take_at(&101, start + 2 * SECOND).unwrap();
        assert_eq!(throttle.buckets.lock().unwrap().by_key.len(), 1);
    }
}
