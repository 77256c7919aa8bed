//! Batches as agents and probes send them, made by hand.

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::{
    io::Write,
    ops::Range,
    time::{SystemTime, UNIX_EPOCH},
};

pub const MIB: u64 = 1 << 20;

/// Now, in microseconds.
pub fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// A source that counts its lines.
pub struct Agent {
    pub source: String,
    pub node: String,
    pub next: u64,
}

impl Agent {
    pub fn new(source: &str, node: &str) -> Self {
        Self { source: source.to_owned(), node: node.to_owned(), next: 0 }
    }

    /// The next batch, as text.
    pub fn batch(&mut self, records: &[(i64, Value)]) -> String {
        let first = self.next;
        self.next += records.len() as u64;
        batch(&self.source, &self.node, first, records)
    }
}

/// A batch whose first line has position `first`.
pub fn batch(source: &str, node: &str, first: u64, records: &[(i64, Value)]) -> String {
    let last = first + records.len() as u64 - 1;
    let head = json!({"type": "batch", "format": "rankscope.live/1", "source": source, "node": node, "first": first, "last": last});
    let mut text = format!("{head}\n");
    for (seq, (t, record)) in (first..).zip(records) {
        let mut line = json!({"seq": seq, "t": t});
        line.as_object_mut().unwrap().extend(record.as_object().unwrap().clone());
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

pub fn gzip(text: &str) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    gz.finish().unwrap()
}

/// A node with `count` cards of 80 GiB.
pub fn node(count: u32) -> Value {
    let devices: Vec<Value> = (0..count)
        .map(|index| {
            json!({"subject": {"device": index}, "uuid": format!("GPU-{index}"), "name": "NVIDIA H100 80GB HBM3", "total": 81559 * MIB})
        })
        .collect();
    json!({"type": "node", "host": "gpu-a", "agent": "0.1.0", "driver_version": "550.54.15", "cuda_version": "12.4", "hz": 10, "devices": devices})
}

/// One sample of each card, in MiB.
pub fn memory(used: &[u64]) -> Value {
    let columns: Vec<Value> = used
        .iter()
        .enumerate()
        .map(|(index, mib)| json!({"subject": {"device": index}, "used": [mib * MIB]}))
        .collect();
    json!({"type": "memory", "dt_us": [0], "devices": columns})
}

/// Ranks on their own cards with `own` MiB; with `leak`, all but the first also hold so many MiB on card 0.
pub fn ranks(count: u32, own: u64, leak: Option<u64>, job: &str) -> Value {
    let process = |card: u32, rank: u32, mib: u64| {
        json!({"subject": {"device": card}, "pid": 4000 + rank, "kind": "C", "name": "python", "used": mib * MIB,
            "rank": {"rank": rank, "local_rank": rank, "world_size": count, "job": job}})
    };
    let mut list: Vec<Value> = (0..count).map(|rank| process(rank, rank, own)).collect();
    list.extend(leak.into_iter().flat_map(|mib| (1..count).map(move |rank| process(0, rank, mib))));
    json!({"type": "processes", "listing": "listed", "processes": list})
}

/// Records of losses of exactly one sample each, so that a node's sum of losses counts the lines that were taken in: one
/// that is missing or counted twice shows. With so many words that nothing compresses, so that segments fill.
pub fn losses(lines: Range<u64>, words: u64) -> Vec<(i64, Value)> {
    let t = now();
    let noise = |n: u64| {
        let word = |i: u64| format!("{:016x}", (n * words + i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..words).map(word).collect::<Vec<_>>().concat()
    };
    lines.map(|n| (t, json!({"type": "dropped", "first": n, "last": n, "samples": 1, "noise": noise(n)}))).collect()
}

/// Nobody on any card.
pub fn nobody() -> Value {
    json!({"type": "processes", "listing": "none_found", "processes": []})
}

/// What the cards use while [`ranks`] are there.
pub fn used(count: usize, own: u64, leak: Option<u64>) -> Vec<u64> {
    let mut used = vec![own + 480; count];
    used[0] += leak.unwrap_or(0) * (count as u64 - 1);
    used
}
