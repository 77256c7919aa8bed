//! The ranks (or files) of the snapshots in their order, and what a visitor asked for.

use crate::backend::NamedSnapshot;
use crate::words;
use rankscope_model::{Bytes, CallSite, SnapshotDevice};

/// What the address asks for. Nothing in it is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Key of the rank to look at.
    pub rank: Option<String>,
    /// Words that a call site must have.
    pub query: String,
    /// What the table is sorted by.
    pub sort: Sort,
    /// Which moment the table compares.
    pub moment: MomentOf,
    /// All rows instead of the first.
    pub all: bool,
}

/// Order of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// What only the rank looked at has, then the largest difference.
    #[default]
    Difference,
    /// Most bytes on the rank looked at.
    Bytes,
    /// Name of the line.
    Name,
}

/// A moment of a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MomentOf {
    /// The peak within the recording; the end where there is no recording.
    #[default]
    Peak,
    /// When the snapshot was taken.
    End,
    /// What was allocated within the recording and never freed.
    NeverFreed,
}

impl Wanted {
    /// From the values of a query string.
    pub fn from_query(value: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            rank: value("rank").filter(|rank| !rank.is_empty()),
            query: value("q").unwrap_or_default().trim().to_owned(),
            sort: match value("sort").as_deref() {
                Some("bytes") => Sort::Bytes,
                Some("name") => Sort::Name,
                _ => Sort::Difference,
            },
            moment: match value("at").as_deref() {
                Some("end") => MomentOf::End,
                Some("never_freed") => MomentOf::NeverFreed,
                _ => MomentOf::Peak,
            },
            all: value("all").is_some(),
        }
    }

    /// The same as a query string, with other values for some keys.
    pub fn address(&self, run: &str, changed: &[(&str, &str)]) -> String {
        let sort = match self.sort {
            Sort::Difference => "",
            Sort::Bytes => "bytes",
            Sort::Name => "name",
        };
        let at = match self.moment {
            MomentOf::Peak => "",
            MomentOf::End => "end",
            MomentOf::NeverFreed => "never_freed",
        };
        let own = [
            ("rank", self.rank.as_deref().unwrap_or("")),
            ("q", self.query.as_str()),
            ("sort", sort),
            ("at", at),
            ("all", if self.all { "1" } else { "" }),
        ];
        let pairs: Vec<String> = own
            .into_iter()
            .map(|(key, value)| (key, changed.iter().find(|(k, _)| *k == key).map_or(value, |(_, v)| *v)))
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!("{key}={}", words::encoded(value)))
            .collect();
        let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
        format!("/runs/{run}/snapshots{query}")
    }
}

/// One rank, or one device of a file that names no rank.
pub struct Subject<'a> {
    /// For the address: `0`, `3.1` for another device of rank 3, `f2` for a file.
    pub key: String,
    /// For readers: `rank 0`.
    pub label: String,
    /// What was read.
    pub device: &'a SnapshotDevice,
}

impl<'a> Subject<'a> {
    /// What it held at a moment, in the quantity of that moment; `None` where nothing was recorded of it.
    pub fn bytes(&self, moment: MomentOf) -> Option<Bytes> {
        match moment {
            MomentOf::Peak => self.device.peak.as_ref().map(|peak| peak.requested),
            MomentOf::End => Some(self.device.allocated),
            MomentOf::NeverFreed => self.device.never_freed.as_ref().map(|never| never.bytes),
        }
    }

    /// Its call sites at that moment; `None` where nothing was recorded of it.
    pub fn sites(&self, moment: MomentOf) -> Option<&'a [CallSite]> {
        match moment {
            MomentOf::Peak => self.device.peak.as_ref().map(|peak| peak.sites.as_slice()),
            MomentOf::End => Some(&self.device.top_sites),
            MomentOf::NeverFreed => self.device.never_freed.as_ref().map(|never| never.sites.as_slice()),
        }
    }
}

/// All of them, and the one that is looked at.
pub struct Subjects<'a> {
    /// In rank order, then files.
    pub all: Vec<Subject<'a>>,
    /// Position of the one that is looked at: as asked for, else the one that holds most.
    pub picked: usize,
    /// The one moment at which they are compared: as asked for, but the end where some have no recording, because a
    /// peak beside an end would show a difference that is none.
    pub moment: MomentOf,
    /// Those without a recording, of which only the end is known; said where it kept the peaks from being compared.
    pub unrecorded: Vec<String>,
}

impl<'a> Subjects<'a> {
    /// The one that is looked at.
    pub fn picked(&self) -> &Subject<'a> {
        &self.all[self.picked]
    }
}

/// The moment by which the ranks are told apart: what was never freed says little of how full one is.
pub fn in_common(moment: MomentOf) -> MomentOf {
    if moment == MomentOf::NeverFreed { MomentOf::Peak } else { moment }
}

/// Sorts the snapshots; `None` where none holds memory or events.
pub fn subjects<'a>(snapshots: &'a [NamedSnapshot], wanted: &Wanted) -> Option<Subjects<'a>> {
    let mut all: Vec<(u32, usize, Subject<'a>)> = Vec::new();
    for (file, named) in snapshots.iter().enumerate() {
        let devices = || named.snapshot.devices.iter().filter(|device| device.segments > 0 || device.events > 0);
        let several = devices().count() > 1;
        for (number, device) in devices().enumerate() {
            let (order, mut key, mut label) = match named.snapshot.rank {
                Some(rank) => (rank.0, rank.0.to_string(), rank.to_string()),
                None => (u32::MAX, format!("f{file}"), words::shown_line(&named.name)),
            };
            if several {
                label = format!("{label}, GPU {}", device.device);
                if number > 0 {
                    key = format!("{key}.{}", device.device);
                }
            }
            all.push((order, file, Subject { key, label, device }));
        }
    }
    all.sort_by_key(|(rank, file, _)| (*rank, *file));
    let all: Vec<Subject<'a>> = all.into_iter().map(|(.., subject)| subject).collect();
    let unrecorded: Vec<String> =
        all.iter().filter(|subject| subject.device.peak.is_none()).map(|subject| subject.label.clone()).collect();
    let moment = if unrecorded.is_empty() { wanted.moment } else { MomentOf::End };
    let asked = wanted.rank.as_ref().and_then(|key| all.iter().position(|subject| subject.key == *key));
    // Of equal ones the first.
    let heaviest = (0..all.len()).rev().max_by_key(|at| all[*at].bytes(in_common(moment)))?;
    Some(Subjects { picked: asked.unwrap_or(heaviest), all, moment, unrecorded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_what_was_asked_for() {
        let values = |key: &str| match key {
            "rank" => Some("3".to_owned()),
            "q" => Some(" conv & more ".to_owned()),
            "sort" => Some("name".to_owned()),
            _ => None,
        };
        let wanted = Wanted::from_query(values);
        assert_eq!(wanted.address("r", &[]), "/runs/r/snapshots?rank=3&q=conv%20%26%20more&sort=name");
        assert_eq!(wanted.address("r", &[("sort", ""), ("q", "")]), "/runs/r/snapshots?rank=3");
        assert_eq!(Wanted::from_query(|_| None).address("r", &[]), "/runs/r/snapshots");
        assert_eq!(Wanted::from_query(|_| Some("nonsense".into())).sort, Sort::Difference);
    }
}
