//! How full the segments of one rank are: fragmentation as a picture and as figures.

use super::pictures::{Picture, links};
use super::subjects::Subjects;
use crate::report::broad_figure;
use leptos::prelude::*;
use rankscope_charts::{Theme, svg};
use rankscope_model::{Bytes, SegmentMap, SnapshotDevice};

/// The section; nothing where the file lists no blocks.
pub fn section(run: &str, found: &Subjects<'_>) -> AnyView {
    let picked = found.picked();
    let device = picked.device;
    let Some(map) = device.map.as_ref().filter(|map| !map.segments.is_empty()) else { return ().into_any() };
    let rows = map
        .segments
        .iter()
        .map(|segment| {
            view! {
                <tr>
                    <td>{segment.size.to_string()}{segment.private.then_some(", private pool")}</td>
                    <td>{segment.active.to_string()}</td>
                    <td>{segment.size.saturating_sub(segment.active).to_string()}</td>
                    <td>{segment.largest_free.to_string()}</td>
                </tr>
            }
        })
        .collect_view();
    let left_out = (map.left_out > 0).then(|| format!("{} more segments have less free.", map.left_out));
    view! {
        <section class="card" id="segments" aria-labelledby="segments-title">
            <h2 id="segments-title">"Segments" <span>{format!("{}, when the snapshot was taken", picked.label)}</span></h2>
            {links(run, picked, Picture::Segments)}
            <p class="pattern">{verdict(device, map)}</p>
            {facts(device, map)}
            {broad_figure(|width| svg::segments(map, width, Theme::Page))}
            <details class="exact">
                <summary>"Exact values"</summary>
                <div class="scroll" tabindex="0" role="region" aria-label="Segments">
                    <table>
                        <thead><tr><th scope="col">"segment"</th><th scope="col">"in use"</th><th scope="col">"free"</th><th scope="col">"largest free piece"</th></tr></thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
                <p class="dim">{left_out}</p>
            </details>
        </section>
    }
    .into_any()
}

/// What the figures mean.
fn verdict(device: &SnapshotDevice, map: &SegmentMap) -> String {
    let share = map.free.0 as f64 / device.reserved.0.max(1) as f64;
    let held = map.free.saturating_sub(map.releasable);
    if share < 0.05 {
        return "Hardly anything is free inside the segments: no fragmentation.".to_owned();
    }
    if map.releasable.0 as f64 >= map.free.0 as f64 * 0.8 {
        return format!("Most free bytes are whole segments: {} would go back with empty_cache().", map.releasable);
    }
    if map.largest_free.0 as f64 <= map.free.0 as f64 * 0.1 {
        return format!(
            "{held} are free in pieces between blocks in use, none larger than {}: a larger request needs a new segment. \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True makes such pieces usable.",
            map.largest_free
        );
    }
    format!("{} are free inside the segments; a request of up to {} still fits.", map.free, map.largest_free)
}

fn facts(device: &SnapshotDevice, map: &SegmentMap) -> AnyView {
    let fact = |name: &'static str, value: Bytes, more: String| {
        view! { <div><dt>{name}</dt><dd>{value.to_string()}</dd><dd class="more">{more}</dd></div> }
    };
    view! {
        <dl class="facts">
            {fact("reserved", device.reserved, format!("{} segments", device.segments))}
            {fact("in use", device.active, format!("{} allocated", device.allocated))}
            {fact("free inside", map.free, format!("in {} pieces", map.pieces))}
            {fact("largest piece", map.largest_free, format!("{} releasable", map.releasable))}
        </dl>
    }
    .into_any()
}
