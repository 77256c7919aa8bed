//! The moments of a node that a diagnosis reads: what the cards used and who held memory, kept where something had
//! changed, in bounded number. Knows no clock and no rule about causes.

use rankscope_model::{Bytes, LiveProcess, MIB, ProcessListing, Subject};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, sync::Arc};

/// Moments kept of one node.
const MOST: usize = 360;
/// The newest are left alone when some must go.
const NEWEST: usize = 30;
/// A change of a card or a process by so much is worth a moment, if it is also a hundredth of what is there.
const NOTABLE: u64 = 64 * MIB;
/// Without any change there is one moment in this time.
const AT_LEAST_EVERY: i64 = 60_000_000;

/// Who held memory at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Whether the list is whole.
    pub listing: ProcessListing,
    /// One per process and device.
    pub processes: Vec<LiveProcess>,
}

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// When the processes were listed.
    pub time: i64,
    /// What the cards used then; a card that did not answer is missing.
    pub used: Vec<(Subject, Bytes)>,
    /// The fullest state since the moment before, where it is clearly fuller: when, and what the cards used.
    pub peak: Option<(i64, Vec<(Subject, Bytes)>)>,
    /// Who held it.
    pub listed: Arc<Listed>,
    /// Processes came or went.
    pub turn: bool,
}

/// Moments in order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    list: Vec<Moment>,
    /// The newest one that said nothing new: until then all was as it is in the list.
    #[serde(default)]
    quiet: Option<Moment>,
}

impl Moments {
    /// Keeps a moment if it says something that the one before does not; returns whether it was kept.
    pub fn offer(&mut self, moment: Moment) -> bool {
        let mut moment = moment;
        if let Some(before) = self.list.last() {
            if moment.time <= self.quiet.as_ref().map_or(before.time, |quiet| quiet.time) {
                return false;
            }
            moment.turn = members(&moment.listed) != members(&before.listed);
            let peaked = moment
                .peak
                .as_ref()
                .is_some_and(|(_, used)| differs(used, &before.used) && differs(used, &moment.used));
            if !peaked {
                moment.peak = None;
            }
            let says_more = moment.turn
                || peaked
                || differs(&moment.used, &before.used)
                || moment.listed.listing != before.listed.listing
                || resized(&moment.listed, &before.listed)
                || moment.time.saturating_sub(before.time) >= AT_LEAST_EVERY;
            if !says_more {
                self.quiet = Some(moment);
                return false;
            }
            // A change is a step, not a slope from the last one on.
            self.list.extend(self.quiet.take());
        } else {
            moment.turn = true;
            if moment.peak.as_ref().is_some_and(|(_, used)| !differs(used, &moment.used)) {
                moment.peak = None;
            }
        }
        self.list.push(moment);
        while self.list.len() > MOST {
            let before = self.list.len();
            self.thin();
            if self.list.len() == before {
                break;
            }
        }
        true
    }

    /// How it was last, where nothing has changed since.
    pub fn quiet(&self) -> Option<&Moment> {
        self.quiet.as_ref()
    }

    /// All moments, in order.
    pub fn list(&self) -> &[Moment] {
        &self.list
    }

    /// Forgets what is older than `time`, but for the last moment before it.
    pub fn forget_before(&mut self, time: i64) {
        let first = self.list.partition_point(|moment| moment.time < time).saturating_sub(1);
        self.list.drain(..first);
    }

    /// Takes out the moment that says least: near its neighbours in bytes and in time. One MiB weighs as much as a
    /// second. Turns stay while there are others, and so does the fullest moment of all.
    fn thin(&mut self) {
        let fullest = (0..self.list.len()).max_by_key(|at| self.list.get(*at).map(height));
        let last = self.list.len().saturating_sub(NEWEST);
        let weight = |at: usize| -> Option<(bool, u64)> {
            let (before, here, after) = (self.list.get(at - 1)?, self.list.get(at)?, self.list.get(at + 1)?);
            let bytes = distance(&here.used, &before.used).min(distance(&here.used, &after.used));
            let gap = u64::try_from(after.time.saturating_sub(before.time)).unwrap_or(0);
            Some((here.turn || here.peak.is_some(), bytes.saturating_add(gap)))
        };
        let least = (1..last).filter(|at| Some(*at) != fullest).filter_map(|at| Some((weight(at)?, at))).min();
        if let Some((_, at)) = least {
            self.list.remove(at);
        }
    }
}

/// Who is where.
fn members(listed: &Listed) -> BTreeSet<(Subject, u32)> {
    listed.processes.iter().map(|process| (process.subject, process.pid)).collect()
}

fn resized(now: &Listed, before: &Listed) -> bool {
    now.processes.len() != before.processes.len()
        || now.processes.iter().zip(&before.processes).any(|(now, before)| {
            now.rank != before.rank || is_notable(now.used.map_or(0, |b| b.0), before.used.map_or(0, |b| b.0))
        })
}

fn differs(now: &[(Subject, Bytes)], before: &[(Subject, Bytes)]) -> bool {
    now.len() != before.len()
        || now
            .iter()
            .zip(before)
            .any(|((subject, now), (other, before))| subject != other || is_notable(now.0, before.0))
}

fn is_notable(now: u64, before: u64) -> bool {
    let change = now.abs_diff(before);
    change >= NOTABLE && change >= now.max(before) / 100
}

fn distance(a: &[(Subject, Bytes)], b: &[(Subject, Bytes)]) -> u64 {
    a.iter().zip(b).map(|((_, a), (_, b))| a.0.abs_diff(b.0)).max().unwrap_or(0)
}

fn height(moment: &Moment) -> u64 {
    let used = moment.peak.as_ref().map_or(&moment.used, |(_, used)| used);
    used.iter().map(|(_, bytes)| bytes.0).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moment(time: i64, used: u64, pids: &[u32]) -> Moment {
        let processes = pids.iter().map(|pid| LiveProcess {
            subject: Subject::Device(0),
            pid: *pid,
            started: None,
            pid_inside: None,
            kind: None,
            name: None,
            used: None,
            rank: None,
            hidden: false,
        });
        Moment {
            time,
            used: vec![(Subject::Device(0), Bytes(used))],
            peak: None,
            listed: Arc::new(Listed { listing: ProcessListing::Listed, processes: processes.collect() }),
            turn: false,
        }
    }

    #[test]
    fn only_what_changes_is_kept() {
        let mut moments = Moments::default();
        assert!(moments.offer(moment(1_000_000, 100 * MIB, &[1])));
        assert!(!moments.offer(moment(2_000_000, 101 * MIB, &[1])), "a MiB is noise");
        assert!(moments.offer(moment(3_000_000, 400 * MIB, &[1])));
        assert!(moments.offer(moment(4_000_000, 400 * MIB, &[1, 2])), "somebody came");
        assert!(!moments.offer(moment(3_500_000, 900 * MIB, &[1])), "time does not run backwards");
        assert!(moments.offer(moment(70_000_000, 400 * MIB, &[1, 2])), "once a minute");
        // With the one just before the first change.
        let turns: Vec<bool> = moments.list().iter().map(|moment| moment.turn).collect();
        assert_eq!(turns, [true, false, false, true, false]);
        assert_eq!(moments.list()[1].time, 2_000_000);
        assert!(moments.quiet().is_none());
    }

    #[test]
    fn a_spike_between_two_lists_is_kept() {
        let mut moments = Moments::default();
        moments.offer(moment(1_000_000, 100 * MIB, &[1]));
        let spike = Some((1_500_000, vec![(Subject::Device(0), Bytes(900 * MIB))]));
        assert!(moments.offer(Moment { peak: spike.clone(), ..moment(2_000_000, 100 * MIB, &[1]) }));
        assert_eq!(moments.list()[1].peak, spike);
    }

    proptest! {
        #[test]
        fn turns_and_the_fullest_moment_outlive_the_rest(
            used in proptest::collection::vec(0u64..100_000, 400..900),
            turn in 1usize..300,
        ) {
            let mut moments = Moments::default();
            for (at, used) in used.iter().enumerate() {
                let pids: &[u32] = if at >= turn { &[1, 2] } else { &[1] };
                moments.offer(moment(i64::try_from(at).unwrap() * 1_000_000, used * MIB, pids));
            }
            let list = moments.list();
            prop_assert!(list.len() <= MOST && list.is_sorted_by_key(|moment| moment.time));
            prop_assert_eq!(list.iter().filter(|moment| moment.turn).count(), 2);
            let fullest = used.iter().max().unwrap() * MIB;
            let kept = list.iter().map(height).max().unwrap();
            // One that differs from its neighbour by less than is notable was never a moment of its own.
            prop_assert!(kept + NOTABLE.max(fullest / 100) > fullest, "{kept} of {fullest}");
        }
    }
}
