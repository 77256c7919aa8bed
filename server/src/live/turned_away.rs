//! Senders that were turned away: an agent with a wrong token would else be told on its own machine only, while its node
//! is simply missing here. Held in memory, bounded, by address.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Addresses that are kept; of more the one that was heard of longest ago goes.
const MOST: usize = 256;
/// What came so long ago is told no more: an agent that is still wrong comes again within the minute.
const IS_TOLD: i64 = 600_000_000;
/// The log says it again after this.
const LOGGED_EVERY: i64 = 600_000_000;

/// Why a sender was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It showed no token, or one that is not known here.
    Token,
    /// It may not send: its token is for something else, or the server has none and takes data of its own machine only.
    MayNot,
}

/// What one address has tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tries {
    /// The first of a row of tries without a long pause.
    pub first: i64,
    /// The last one.
    pub last: i64,
    /// How many.
    pub count: u64,
    /// Why the last one was turned away.
    pub why: Why,
    /// When the log said so.
    logged: i64,
}

/// Tries by address.
#[derive(Debug, Default)]
pub struct TurnedAway {
    by_address: BTreeMap<IpAddr, Tries>,
}

impl TurnedAway {
    /// Takes note of a try. Returns whether the log should say so.
    pub fn note(&mut self, address: IpAddr, why: Why, now: i64) -> bool {
        let known = self.by_address.get(&address).filter(|tries| now.saturating_sub(tries.last) < IS_TOLD).copied();
        let mut tries = known.unwrap_or(Tries { first: now, last: now, count: 0, why, logged: i64::MIN });
        let is_new = tries.why != why || now.saturating_sub(tries.logged) >= LOGGED_EVERY;
        tries.last = now;
        tries.count = tries.count.saturating_add(1);
        tries.why = why;
        if is_new {
            tries.logged = now;
        }
        self.by_address.insert(address, tries);
        if self.by_address.len() > MOST {
            let oldest = self.by_address.iter().min_by_key(|(_, tries)| tries.last).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.by_address.remove(&oldest));
        }
        is_new
    }

    /// Those that still try, the newest first.
    pub fn told(&self, now: i64) -> Vec<(IpAddr, Tries)> {
        let recent = self.by_address.iter().filter(|(_, tries)| now.saturating_sub(tries.last) < IS_TOLD);
        let mut told: Vec<(IpAddr, Tries)> = recent.map(|(address, tries)| (*address, *tries)).collect();
        told.sort_by_key(|(_, tries)| std::cmp::Reverse(tries.last));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn tries_are_counted_until_none_comes_any_more() {
        let mut away = TurnedAway::default();
        assert!(away.note(at(1), Why::Token, S), "the first is logged");
        assert!(!away.note(at(1), Why::Token, 2 * S));
        assert!(away.note(at(1), Why::MayNot, 3 * S), "another reason is news");
        assert!(away.note(at(2), Why::Token, 4 * S));
        let told = away.told(5 * S);
        assert_eq!(told.iter().map(|(address, _)| *address).collect::<Vec<_>>(), [at(2), at(1)]);
        assert_eq!((told[1].1.first, told[1].1.last, told[1].1.count, told[1].1.why), (S, 3 * S, 3, Why::MayNot));
        for second in 4..603 {
            assert!(!away.note(at(1), Why::MayNot, second * S), "{second}");
        }
        assert!(away.note(at(1), Why::MayNot, 603 * S), "the log says it again");
        assert_eq!(away.told(603 * S)[0].1.count, 603);
        assert_eq!(away.told(604 * S).len(), 1, "the other has given up");

        assert!(away.told(603 * S + IS_TOLD).is_empty());
        away.note(at(1), Why::Token, 603 * S + IS_TOLD);
        assert_eq!(away.told(603 * S + IS_TOLD)[0].1.count, 1, "a new row");
    }

    #[test]
    fn many_addresses_take_bounded_room() {
        let mut away = TurnedAway::default();
        for n in 0..2000u32 {
            away.note(IpAddr::from(n.to_be_bytes()), Why::Token, i64::from(n));
        }
        assert_eq!(away.by_address.len(), MOST);
        assert_eq!(away.told(2000)[0].0, IpAddr::from(1999u32.to_be_bytes()));
    }
}
