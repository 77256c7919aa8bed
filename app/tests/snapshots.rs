//! The page of memory snapshots, rendered from a backend in memory.

mod support;

use axum::http::StatusCode;
use rankscope_app::NamedSnapshot;
use rankscope_model::{
    ArtifactId, Bytes, CallSite, Frame, GIB, NeverFreed, Provenance, Rank, SegmentFill, SegmentMap, SeriesAxis,
    SiteBand, SiteBands, SnapshotDevice, SnapshotEvidence, SnapshotPeak,
};
use support::{Memory, Site, reports};

const RUN: &str = "/runs/01939f0a7e2b/snapshots";

fn frame(file: &str, line: u32, function: &str) -> Frame {
    Frame { function: function.into(), file: file.into(), line }
}

fn site(own: &str, line: u32, gib: u64) -> CallSite {
    let inner = frame("/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py", 9, "linear");
    let frames = vec![
        inner,
        frame(&format!("/home/ada/job/{own}"), line, "forward"),
        frame("/home/ada/job/train.py", 9, "main"),
    ];
    CallSite { frames, bytes: Bytes(gib * GIB), blocks: 3 }
}

/// Rank `rank` of a job in which rank 0 keeps another copy of the weights.
fn snapshot(rank: u32) -> NamedSnapshot {
    let mut sites = vec![site("model.py", 40, 6), site("model.py", 52, 2)];
    let band = |own: &str, line: u32, gib: u64| SiteBand {
        frame: Some(frame(&format!("/home/ada/job/{own}"), line, "forward")),
        bytes: vec![0, gib * GIB, gib * GIB],
    };
    let mut bands = vec![band("model.py", 40, 6), band("model.py", 52, 2)];
    if rank == 0 {
        sites.push(site("ema.py", 7, 3));
        bands.push(band("ema.py", 7, 3));
    }
    let total: Bytes = sites.iter().map(|site| site.bytes).sum();
    let device = SnapshotDevice {
        device: rank,
        reserved: Bytes(total.0 + 2 * GIB),
        allocated: total,
        active: total,
        requested: Some(total),
        private_pool_inactive: Bytes(0),
        segments: 2,
        blocks: 9,
        events: 100,
        mismatched_segments: 0,
        peak_requested_in_window: Some(total),
        window_truncated: false,
        live: None,
        top_sites: sites.clone(),
        ooms: vec![],
        curve: None,
        peak: Some(SnapshotPeak {
            event: Some(50),
            x: Some(1),
            requested: total,
            active: total,
            reserved: Bytes(total.0 + GIB),
            sites,
        }),
        never_freed: Some(NeverFreed { bytes: Bytes(0), blocks: 0, late_bytes: Bytes(0), sites: vec![] }),
        bands: Some(SiteBands { axis: Some(SeriesAxis::Index), x: vec![0, 1, 2], sites: bands, rest: vec![0, 1, 1] }),
        map: Some(SegmentMap {
            free: Bytes(2 * GIB),
            pieces: 40,
            largest_free: Bytes(GIB / 16),
            releasable: Bytes(0),
            segments: vec![SegmentFill {
                size: Bytes(4 * GIB),
                active: Bytes(2 * GIB),
                largest_free: Bytes(GIB / 16),
                private: false,
                parts: vec![50; SegmentFill::PARTS],
            }],
            left_out: 1,
        }),
    };
    NamedSnapshot {
        name: format!("snap_rank{rank}.pickle"),
        snapshot: SnapshotEvidence {
            at: Provenance::offset(ArtifactId(rank), 0),
            rank: Some(Rank(rank)),
            torch_versions: "2.5 - 2.7".into(),
            devices: vec![device],
        },
    }
}

async fn page(ranks: u32, query: &str) -> String {
    let memory = Memory {
        reports: vec![reports::eight_gpus()],
        snapshots: (0..ranks).map(snapshot).collect(),
        ..Memory::default()
    };
    let (status, html) = Site::new(memory).get(&format!("{RUN}{query}")).await;
    assert_eq!(status, StatusCode::OK, "{query}");
    html
}

/// Text of the table's row headers, in their order.
fn rows(html: &str) -> Vec<String> {
    html.split("<th scope=\"row\"")
        .skip(1)
        .filter_map(|row| Some(row.split_once("<code>")?.1.split_once('<')?.0.to_owned()))
        .collect()
}

#[tokio::test]
async fn what_only_the_heavy_rank_has_stands_on_top() {
    let html = page(4, "").await;
    let found = rows(&html);
    assert_eq!(found[0], "ema.py:7 forward");
    assert_eq!(found.len(), 3);
    assert!(html.contains("on this rank only") && html.contains("+3.0 GiB"));
    // The heaviest rank is looked at, and its bands are drawn.
    assert!(html.contains("aria-current=\"true\"") && html.contains("chart-bands") && html.contains("chart-segments"));
    assert!(html.contains("peak-title") && html.contains("11.0 GiB"));
    assert!(html.contains("expandable_segments"));
}

#[tokio::test]
async fn rows_are_searched_sorted_and_compared_for_another_rank_without_a_script() {
    assert_eq!(rows(&page(4, "?q=EMA").await), ["ema.py:7 forward"]);
    assert!(page(4, "?q=nothing+like+it").await.contains("No line has these words"));
    assert_eq!(rows(&page(4, "?sort=name").await)[0], "ema.py:7 forward");
    assert_eq!(rows(&page(4, "?sort=bytes").await)[0], "model.py:40 forward");
    let other = page(4, "?rank=2").await;
    assert!(!other.contains("on this rank only"));
    assert!(page(4, "?at=never_freed").await.contains("No call site was recorded"));
}

#[tokio::test]
async fn many_ranks_are_summed_up_and_none_is_an_empty_state() {
    let many = page(40, "").await;
    assert!(many.contains("<th scope=\"col\">median</th>") && many.contains("<select"));
    let none = page(0, "").await;
    assert!(none.contains("No memory snapshot in this run") && none.contains("_record_memory_history"));
}

#[tokio::test]
async fn a_peak_is_never_held_against_an_end() {
    // Rank 1 holds twice as much at the end as the others do, but its recording was off: nothing is known of its peak.
    let mut snapshots: Vec<NamedSnapshot> = (0..3).map(snapshot).collect();
    let device = &mut snapshots[1].snapshot.devices[0];
    (device.events, device.peak, device.peak_requested_in_window) = (0, None, None);
    (device.never_freed, device.bands) = (None, None);
    let memory = Memory { reports: vec![reports::eight_gpus()], snapshots, ..Memory::default() };
    let site = Site::new(memory);
    for query in ["", "?at=never_freed", "?at=end"] {
        let (_, html) = site.get(&format!("{RUN}{query}")).await;
        assert!(html.contains("rank 1 has no recorded events"), "{query}: the reason is said");
        assert!(html.contains("Allocated bytes when each snapshot was taken"), "{query}");
        assert!(html.contains("allocated bytes when the snapshot was taken, by line of code"), "{query}");
        assert!(
            !html.contains("own peak") && !html.contains("aria-label=\"Moment\""),
            "{query}: no other moment is offered"
        );
        assert_eq!(rows(&html)[0], "ema.py:7 forward", "{query}");
    }
    // With a recording on every rank the moment is said just so.
    let all = page(3, "").await;
    assert!(all.contains("Requested bytes live at each rank") && all.contains("own peak"));
    assert!(!all.contains("no recorded events"));
}
