//! Lines for the tests of this folder.

use rankscope_model::{
    Bytes, LiveColumn, LiveDevice, LiveMemory, LiveNode, LiveProcess, LiveProcesses, LiveRank, LiveRecord,
    ProcessListing, Rank, Subject,
};

pub fn device(index: u32) -> LiveDevice {
    LiveDevice {
        subject: Subject::Device(index),
        uuid: None,
        bus_id: None,
        name: Some("NVIDIA H100 80GB HBM3".into()),
        total: Some(Bytes(80 << 30)),
        reserved: None,
        display_active: None,
        mig_enabled: None,
        compute_mode: None,
        ecc_enabled: None,
    }
}

pub fn node(devices: &[LiveDevice]) -> LiveRecord {
    LiveRecord::Node(Box::new(LiveNode { host: "a".into(), devices: devices.to_vec(), ..LiveNode::default() }))
}

/// Bytes of each device, sample after sample a tenth of a second apart.
pub fn memory(devices: &[(u32, &[u64])]) -> LiveRecord {
    let samples = devices.iter().map(|(_, used)| used.len()).max().unwrap_or(0);
    let columns = devices.iter().map(|(index, used)| LiveColumn {
        subject: Subject::Device(*index),
        used: used.iter().map(|used| Some(Bytes(*used))).collect(),
    });
    let dt_us = (0..samples).map(|n| u32::try_from(n).unwrap() * 100_000).collect();
    LiveRecord::Memory(LiveMemory { dt_us, devices: columns.collect() })
}

pub fn process(device: u32, pid: u32) -> LiveProcess {
    LiveProcess {
        subject: Subject::Device(device),
        pid,
        started: None,
        pid_inside: None,
        kind: Some("C".into()),
        name: Some("python".into()),
        used: None,
        rank: None,
        hidden: false,
    }
}

pub fn rank_process(device: u32, pid: u32, rank: u32, job: &str) -> LiveProcess {
    let rank = LiveRank {
        rank: Rank(rank),
        local_rank: Some(rank),
        world_size: None,
        job: Some(job.to_owned()),
        visible_devices: None,
        helper_of: None,
    };
    LiveProcess { rank: Some(rank), ..process(device, pid) }
}

pub fn processes(processes: Vec<LiveProcess>) -> LiveRecord {
    LiveRecord::Processes(LiveProcesses { listing: ProcessListing::Listed, processes })
}
