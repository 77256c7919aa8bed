//! Memory that compute instances share. Under MIG the memory is the GPU instance's: the compute instances inside it print
//! the same pool, each under its own name, and it counts once.

use crate::{DeviceRow, DeviceTable, Evidence, Subject};
use std::collections::BTreeMap;

/// GPU and GPU instance, with the compute instance that stands for all of it.
type Pools = BTreeMap<(u32, u32), u32>;

impl Evidence {
    /// Takes the compute instances of one GPU instance together under the first of them, in every table.
    pub(crate) fn join_pools(&mut self) {
        let mut pools = Pools::new();
        for row in self.device_tables.iter().flat_map(|table| &table.devices) {
            if let Subject::MigSlice { device, gpu_instance, compute_instance } = row.subject {
                let first = pools.entry((device, gpu_instance)).or_insert(compute_instance);
                *first = (*first).min(compute_instance);
            }
        }
        if !pools.is_empty() {
            self.device_tables.iter_mut().for_each(|table| join(table, &pools));
        }
    }
}

fn join(table: &mut DeviceTable, pools: &Pools) {
    let pool = |subject: Subject| match subject {
        Subject::MigSlice { device, gpu_instance, .. } => pools
            .get(&(device, gpu_instance))
            .map(|first| Subject::MigSlice { device, gpu_instance, compute_instance: *first }),
        _ => None,
    };
    let mut kept: Vec<DeviceRow> = Vec::with_capacity(table.devices.len());
    for mut row in std::mem::take(&mut table.devices) {
        row.subject = pool(row.subject).unwrap_or(row.subject);
        let known = kept.iter_mut().find(|known| known.subject == row.subject);
        match known.filter(|known| matches!(known.subject, Subject::MigSlice { .. })) {
            // What one of them does not say, another may.
            Some(known) => {
                known.used = known.used.or(row.used);
                known.total = known.total.or(row.total);
            }
            None => kept.push(row),
        }
    }
    table.devices = kept;
    for process in &mut table.processes {
        process.subject = pool(process.subject).unwrap_or(process.subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArtifactId, Bytes, GIB, ProcessRow, Provenance};

    #[test]
    fn compute_instances_of_one_gpu_instance_are_one_pool() {
        let at = || Provenance::line(ArtifactId(0), 1, "");
        let slice = |gpu_instance, compute_instance| Subject::MigSlice { device: 0, gpu_instance, compute_instance };
        let row = |subject, gib: u64| DeviceRow { used: Some(Bytes(gib * GIB)), ..DeviceRow::new(at(), subject) };
        let table = DeviceTable {
            devices: vec![row(Subject::Device(0), 20), row(slice(2, 0), 16), row(slice(2, 1), 16), row(slice(3, 0), 4)],
            processes: vec![ProcessRow::new(at(), slice(2, 1)), ProcessRow::new(at(), slice(3, 0))],
            ..DeviceTable::new(at())
        };
        let mut evidence = Evidence { device_tables: vec![table], ..Evidence::default() };
        for _ in 0..2 {
            evidence.join_pools();
            let table = &evidence.device_tables[0];
            let subjects: Vec<Subject> = table.devices.iter().map(|row| row.subject).collect();
            assert_eq!(subjects, [Subject::Device(0), slice(2, 0), slice(3, 0)]);
            let owners: Vec<Subject> = table.processes.iter().map(|row| row.subject).collect();
            assert_eq!(owners, [slice(2, 0), slice(3, 0)]);
        }
    }
}
