//! Reads one memory snapshot and prints its figures, the time and the peak memory it took: for measuring.
//!
//! `cargo run --release -p rankscope-ingest --example read_snapshot -- FILE`

use rankscope_ingest::{Limits, ReadContext, torch_snapshot};
use rankscope_model::ArtifactId;
use std::{error::Error, fs::File, io::BufReader, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: read_snapshot FILE")?;
    let limits = Limits::default();
    let ctx = ReadContext { artifact: ArtifactId(0), name: &path, limits: &limits };
    let file = File::open(&path)?;
    let size = file.metadata()?.len();
    let start = Instant::now();
    let evidence = torch_snapshot::read(&mut BufReader::new(file), &ctx)?;
    let elapsed = start.elapsed();
    for warning in evidence.artifacts.iter().flat_map(|artifact| &artifact.warnings) {
        println!("warning: {warning}");
    }
    for snapshot in &evidence.snapshots {
        println!("torch {}, {:?}", snapshot.torch_versions, snapshot.rank);
        for d in &snapshot.devices {
            println!(
                "device {}: reserved {}, active {}, allocated {}, requested {:?}, private inactive {}, {} segments \
                 ({} mismatched), {} blocks, {} events, peak {:?}, truncated {}, {} sites, {} points, {} ooms",
                d.device,
                d.reserved.0,
                d.active.0,
                d.allocated.0,
                d.requested.map(|b| b.0),
                d.private_pool_inactive.0,
                d.segments,
                d.mismatched_segments,
                d.blocks,
                d.events,
                d.peak_requested_in_window.map(|b| b.0),
                d.window_truncated,
                d.top_sites.len(),
                d.live.as_ref().map_or(0, |live| live.x.len()),
                d.ooms.len(),
            );
        }
    }
    println!("{:.3} s, {size} bytes, peak {}", elapsed.as_secs_f64(), peak_memory().unwrap_or_default());
    Ok(())
}

/// The peak resident size as Linux tells it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().to_owned())
}
