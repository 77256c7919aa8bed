//! Cards by their unique names, and what follows from them when several files speak of the same cards.
//!
//! One file names cards by UUID alone (`--query-compute-apps`, `CUDA_VISIBLE_DEVICES=GPU-…`), another knows which index
//! a UUID has (`nvidia-smi -L`, `-q`, a query with `index`). A UUID is the same everywhere; a bus id is not, so only UUIDs
//! join files.

use crate::artifact::Provenance;
use crate::evidence::{DeviceTable, Evidence};
use crate::launch::LaunchSetting;
use crate::subject::Subject;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A card or a MIG device whose UUID and index were printed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardName {
    /// The line that says so.
    pub at: Provenance,
    /// `GPU-…`, or `MIG-…` of a MIG device.
    pub uuid: String,
    /// Index of the card.
    pub index: u32,
    /// Number of the MIG device on its card, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<u32>,
}

/// Words of the warning that cards without a printed index carry; it goes once their indices are known.
pub const NUMBERED_BY_ORDER: &str = "numbered here in the order in which they appear";

/// A card and, if it is one, the MIG device on it.
type Place = (u32, Option<u32>);

/// A name under which two cards were seen tells nothing: dumps may hide UUIDs behind zeros.
struct Names(BTreeMap<String, Option<Place>>);

impl Names {
    fn of(cards: &[CardName]) -> Self {
        let mut names = BTreeMap::new();
        for card in cards {
            let place = (card.index, card.mig);
            let known = names.entry(plain(&card.uuid)).or_insert(Some(place));
            *known = known.filter(|known| *known == place);
        }
        Self(names)
    }

    fn get(&self, uuid: &str) -> Option<Place> {
        self.0.get(&plain(uuid)).copied().flatten()
    }

    /// The one card whose UUID is or begins with `name`, as the driver takes it.
    fn get_shortened(&self, name: &str) -> Option<Place> {
        let name = plain(name);
        let mut found = self.0.range(name.clone()..).take_while(|(uuid, _)| uuid.starts_with(&name));
        let (first, second) = (found.next(), found.next());
        first.filter(|(uuid, _)| second.is_none() || **uuid == name).and_then(|(_, place)| *place)
    }
}

/// Tools print UUIDs with and without `GPU-`, in either case.
fn plain(uuid: &str) -> String {
    uuid.strip_prefix("GPU-").unwrap_or(uuid).to_ascii_lowercase()
}

impl Evidence {
    /// Gives the cards that were named by UUID alone the indices that other files tell. [`Evidence::merge`] does it too.
    pub fn join_cards(&mut self) {
        if !self.cards.is_empty() {
            self.number_cards();
        }
        self.join_pools();
    }

    fn number_cards(&mut self) {
        let names = Names::of(&self.cards);
        self.number_tables(&names);
        for fact in self.launches.iter_mut().flat_map(|launch| &mut launch.facts) {
            if let LaunchSetting::VisibleDevices(list) = &mut fact.what {
                number_visible(list, &names);
            }
        }
    }

    fn number_tables(&mut self, names: &Names) {
        let mut indices: BTreeMap<u32, Option<Numbers>> = BTreeMap::new();
        for card in &self.unnumbered {
            let numbers = indices.entry(card.at.artifact.0).or_insert_with(|| Some(Numbers::new()));
            let index = names.get(&card.uuid).map(|(index, _)| index);
            // One card that nobody knows leaves a file as it is: half of it would be numbered in two ways.
            *numbers = numbers.take().zip(index).map(|(mut numbers, index)| {
                numbers.insert((card.index, plain(&card.uuid)), index);
                numbers
            });
        }
        let indices: BTreeMap<u32, Numbers> =
            indices.into_iter().filter_map(|(artifact, numbers)| Some((artifact, numbers?))).collect();
        if indices.is_empty() {
            return;
        }
        self.unnumbered.retain(|card| !indices.contains_key(&card.at.artifact.0));
        let mut devices: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for table in &mut self.device_tables {
            let artifact = table.at.artifact.0;
            let Some(numbers) = indices.get(&artifact) else { continue };
            number(table, numbers);
            let subjects =
                table.devices.iter().map(|row| row.subject).chain(table.processes.iter().map(|row| row.subject));
            devices.entry(artifact).or_default().extend(subjects.filter_map(Subject::device));
        }
        for (artifact, devices) in devices {
            if let Some(info) = usize::try_from(artifact).ok().and_then(|at| self.artifacts.get_mut(at)) {
                info.devices = devices.into_iter().collect();
                info.warnings.retain(|warning| !warning.contains(NUMBERED_BY_ORDER));
            }
        }
    }
}

/// The index of each card of a file, by the number that it has there and its UUID.
type Numbers = BTreeMap<(u32, String), u32>;

/// Renumbers a table if its cards are the unnumbered ones of its file.
fn number(table: &mut DeviceTable, numbers: &Numbers) {
    let mut indices: BTreeMap<u32, u32> = BTreeMap::new();
    for row in &table.devices {
        // Slices are printed without a UUID; they go with their card.
        let Subject::Device(device) = row.subject else { continue };
        let index = row.uuid.as_deref().and_then(|uuid| numbers.get(&(device, plain(uuid))));
        let Some(index) = index else { return };
        indices.insert(device, *index);
    }
    let renumber = |subject: &mut Subject| {
        if let Subject::Device(device) | Subject::MigSlice { device, .. } = subject {
            *device = indices.get(device).copied().unwrap_or(*device);
        }
    };
    table.devices.iter_mut().for_each(|row| renumber(&mut row.subject));
    table.processes.iter_mut().for_each(|row| renumber(&mut row.subject));
}

/// `GPU-8932f937` becomes `3`, `MIG-…` becomes `3:0`, if all of a list are known: half a list would speak of the same
/// cards in two ways.
fn number_visible(list: &mut [String], names: &Names) {
    let known: Option<Vec<String>> = list
        .iter()
        .map(|name| {
            let is_uuid = (name.starts_with("GPU-") || name.starts_with("MIG-")) && name.len() > "GPU-".len();
            let (index, mig) = names.get_shortened(name).filter(|_| is_uuid)?;
            Some(mig.map_or_else(|| index.to_string(), |mig| format!("{index}:{mig}")))
        })
        .collect();
    if let Some(known) = known {
        list.clone_from_slice(&known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::{ArtifactId, ArtifactInfo, ArtifactKind};
    use crate::evidence::{DeviceRow, ProcessRow};
    use crate::launch::{LaunchEvidence, LaunchFact, LaunchSource};

    fn at(line: u64) -> Provenance {
        Provenance::line(ArtifactId(0), line, "")
    }

    fn info(name: &str) -> ArtifactInfo {
        ArtifactInfo {
            name: name.to_owned(),
            kind: ArtifactKind::Text,
            ranks: Vec::new(),
            devices: vec![0],
            bytes: 0,
            warnings: vec![format!("line 1: cards are {NUMBERED_BY_ORDER}")],
        }
    }

    fn list(cards: &[(&str, u32, Option<u32>)]) -> Evidence {
        let cards = cards.iter().map(|(uuid, index, mig)| CardName {
            at: at(1),
            uuid: (*uuid).to_owned(),
            index: *index,
            mig: *mig,
        });
        Evidence { artifacts: vec![info("list")], cards: cards.collect(), ..Evidence::default() }
    }

    fn processes() -> Evidence {
        let mut table = DeviceTable::new(at(2));
        table
            .devices
            .push(DeviceRow { uuid: Some("GPU-AB12".to_owned()), ..DeviceRow::new(at(2), Subject::Device(0)) });
        table.processes.push(ProcessRow::new(at(2), Subject::Device(0)));
        let unnumbered = vec![CardName { at: at(2), uuid: "GPU-AB12".to_owned(), index: 0, mig: None }];
        Evidence { artifacts: vec![info("apps")], device_tables: vec![table], unnumbered, ..Evidence::default() }
    }

    #[test]
    fn a_list_numbers_the_processes_of_another_file_in_either_order() {
        for list_first in [true, false] {
            let list = list(&[("GPU-ab12", 3, None), ("GPU-cd34", 0, None)]);
            let mut evidence = if list_first { list.clone() } else { processes() };
            evidence.merge(if list_first { processes() } else { list });
            let table = &evidence.device_tables[0];
            assert_eq!(
                (table.devices[0].subject, table.processes[0].subject),
                (Subject::Device(3), Subject::Device(3))
            );
            let apps = evidence.artifacts.iter().find(|info| info.name == "apps").unwrap();
            assert_eq!((apps.devices.as_slice(), apps.warnings.len()), (&[3][..], 0));
            assert!(evidence.unnumbered.is_empty());
        }
    }

    #[test]
    fn a_name_of_two_cards_tells_nothing() {
        let mut evidence = processes();
        evidence.merge(list(&[("GPU-ab12", 3, None), ("GPU-ab12", 4, None)]));
        assert_eq!(evidence.device_tables[0].devices[0].subject, Subject::Device(0));
        assert_eq!((evidence.artifacts[0].warnings.len(), evidence.unnumbered.len()), (1, 1));
    }

    #[test]
    fn visible_devices_become_indices_when_all_are_known() {
        let visible = |names: &[&str]| {
            let what = LaunchSetting::VisibleDevices(names.iter().map(|name| (*name).to_owned()).collect());
            let facts = vec![LaunchFact { at: at(1), rank: None, command: 0, what }];
            let launch = LaunchEvidence { at: at(1), source: LaunchSource::Environment, facts };
            let mut evidence = Evidence { artifacts: vec![info("env")], launches: vec![launch], ..Evidence::default() };
            evidence.merge(list(&[("GPU-ab12", 3, None), ("GPU-ac34", 5, None), ("MIG-77", 3, Some(1))]));
            match &evidence.launches[0].facts[0].what {
                LaunchSetting::VisibleDevices(list) => list.join(","),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(visible(&["GPU-ab12", "GPU-AC34"]), "3,5");
        assert_eq!(visible(&["GPU-ab"]), "3");
        assert_eq!(visible(&["GPU-a"]), "GPU-a");
        assert_eq!(visible(&["GPU-"]), "GPU-");
        assert_eq!(visible(&["GPU-ab12", "GPU-ff"]), "GPU-ab12,GPU-ff");
        assert_eq!(visible(&["MIG-77"]), "3:1");
        assert_eq!(visible(&["0", "1"]), "0,1");
    }
}
