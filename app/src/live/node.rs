//! A node as a card: one row per GPU with its heat strip, its use, and who holds it.

use super::heat;
use crate::{icons, words};
use leptos::prelude::*;
use rankscope_model::{Bytes, DeviceStatus, LiveStateKind, NodeStatus, ProcessRole, ProcessStatus, Severity, Subject};
use std::collections::BTreeSet;

/// Names of strangers that a row shows; more are counted.
const NAMED: usize = 2;

/// The markup of a node's card, for events.
pub fn live_node_html(status: &NodeStatus) -> String {
    let owner = Owner::new_root(None);
    let html = owner.with(|| node_card(status).to_html());
    owner.unset_with_forced_cleanup();
    html
}

/// `64 nodes, 512 GPUs, 1 lost, 1 stands out`.
pub fn summary(nodes: &[NodeStatus]) -> String {
    let speaks = |node: &&NodeStatus| !is_stale(node);
    let of_now = || nodes.iter().filter(speaks).flat_map(|node| &node.devices);
    super::sum_words(super::Sum {
        nodes: nodes.len(),
        silent: nodes.iter().filter(|node| is_stale(node)).count(),
        cards: nodes.iter().map(|node| node.devices.len()).sum(),
        // A slice that is gone was taken away by somebody; a card that is lost was not.
        lost: of_now().filter(|device| is_lost(device) && !is_slice(device)).count(),
        out: of_now().filter(|device| device.outlier).count(),
        found: nodes
            .iter()
            .filter(speaks)
            .flat_map(|node| &node.runs)
            .filter(|run| run.found.is_some() && run.ended.is_none())
            .map(|run| run.id.as_str())
            .collect::<BTreeSet<_>>()
            .len(),
    })
}

/// Whether what is shown of a node is its past.
fn is_stale(status: &NodeStatus) -> bool {
    status.silent || status.ended
}

fn is_lost(device: &DeviceStatus) -> bool {
    device.state == Some(LiveStateKind::Lost)
}

fn is_slice(device: &DeviceStatus) -> bool {
    matches!(device.subject, Subject::MigSlice { .. })
}

/// One node.
pub fn node_card(status: &NodeStatus) -> AnyView {
    let name = words::shown_line(&status.node);
    let state = match (status.ended, status.silent) {
        (true, _) => Some("agent ended: no word since "),
        (_, true) => Some("no word since "),
        _ => None,
    };
    let state = state.map(|word| {
        view! { <span class="node-state">{icons::warning()}{word}<time datetime=words::time_iso(status.heard_at)>{words::clock(status.heard_at)}</time>"; last known state"</span> }
    });
    let is_stale = is_stale(status);
    // The same markup goes to everybody; the page hides it from those who may not.
    let remove = is_stale.then(|| {
        view! {
            <form class="node-remove" method="post" action="/live/nodes/remove">
                <input type="hidden" name="node" value=status.node.clone()/>
                <button type="submit" class="button small" title="Its runs stay. It comes back when its agent speaks again.">"Remove"<span class="visually-hidden">{format!(" node {name}")}</span></button>
            </form>
        }
    });
    let runs = status.runs.iter().map(|run| {
        let href = format!("/runs/{}", run.id);
        let ended = run.ended.map(|at| {
            view! { " "<span class="dim">"ended "<time datetime=words::time_iso(at)>{words::clock(at)}</time></span> }
        });
        let found = run.found.as_deref().filter(|_| run.ended.is_none()).map(|found| {
            view! { <a class="node-found" href=href.clone()>{icons::severity(Severity::Warning)}{words::shown_line(found)}</a> }
        });
        view! { <span class="node-run"><a href=href.clone()>{words::shown_line(&run.title)}</a>{ended}</span>{found} }
    });
    let runs = runs.collect_view();
    let notes = status.notes.iter().map(|note| view! { <li>{words::shown_line(note)}</li> }).collect_view();
    let rows = status.devices.iter().map(device_row).collect_view();
    let empty = status.devices.is_empty();
    let label = format!("Node {name}");
    view! {
        <section class="node" class:stale=is_stale data-node=status.node.clone() aria-label=label>
            <div class="node-head">
                <h2><bdi>{name}</bdi></h2>
                {runs}
                {state}
                {remove}
            </div>
            {(!status.notes.is_empty()).then(|| view! { <ul class="node-notes">{notes}</ul> })}
            {if empty {
                view! { <p class="dim">"No GPU was named yet."</p> }.into_any()
            } else {
                view! { <ol class="gpus">{rows}</ol> }.into_any()
            }}
        </section>
    }
    .into_any()
}

fn device_row(device: &DeviceStatus) -> AnyView {
    let (is_lost, is_slice) = (is_lost(device), is_slice(device));
    let used = match (device.used, is_lost) {
        (_, true) if is_slice => "gone".to_owned(),
        (_, true) => "lost".to_owned(),
        (Some(used), _) => used.to_string(),
        (None, _) => "not read".to_owned(),
    };
    // What was read last says when that was, so that nobody takes it for now.
    let since = device.state_since.filter(|_| is_lost).map(|since| {
        let last = device.last_used.map(|last| format!("; last {last}")).unwrap_or_default();
        view! { <span class="gpu-since">"since "<time datetime=words::time_iso(since)>{words::clock(since)}</time>{last}</span> }
    });
    let total = device.total.filter(|_| !is_lost).map(|total| format!("of {total}"));
    let busy = busy(device.utilization_percent, device.temperature_c);
    let title = device.name.as_deref().map(words::shown_line).unwrap_or_default();
    view! {
        <li class="gpu" class:hot=device.outlier class:lost=is_lost class:slice=is_slice data-gpu=device.key()>
            <span class="gpu-name" title=title>{device.subject.to_string()}</span>
            <svg
                class="heat"
                viewBox=format!("0 0 {} 1", DeviceStatus::CELLS)
                preserveAspectRatio="none"
                role="img"
                aria-label=heat::words(&device.heat)
                inner_html=heat::markup(&device.heat)
            ></svg>
            <span class="gpu-used num"><b data-used="">{used}</b>" "<span class="dim">{total}</span>{since}</span>
            <span class="gpu-busy num dim" data-busy="">{busy}</span>
            <span class="gpu-who">
                <span class="gpu-mark" data-mark="">{icons::severity(Severity::Critical)}"above its job's others"</span>
                {who(&device.processes)}
            </span>
        </li>
    }
    .into_any()
}

/// `98 %, 61 °C`.
pub fn busy(utilization: Option<u8>, temperature: Option<u32>) -> String {
    let parts = [utilization.map(|percent| format!("{percent} %")), temperature.map(|degrees| format!("{degrees} °C"))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Ranks at home, then who else is there.
fn who(processes: &[ProcessStatus]) -> AnyView {
    let of = |role| processes.iter().filter(move |process| process.role == role).collect::<Vec<_>>();
    let ranks = |list: &[&ProcessStatus]| {
        let mut ranks: Vec<u32> = list.iter().filter_map(|process| process.rank).map(|rank| rank.0).collect();
        ranks.sort_unstable();
        ranks.dedup();
        words::numbered("rank", &ranks)
    };
    let home = of(ProcessRole::Home);
    let helpers = of(ProcessRole::Helper);
    let visitors = of(ProcessRole::Visitor);
    let strangers = of(ProcessRole::Stranger);
    let names = strangers.iter().take(NAMED).map(|process| {
        let name = process.name.as_deref().map_or_else(|| "process".to_owned(), words::shown_line);
        format!("{name} (PID {})", process.pid)
    });
    let names = names.collect::<Vec<_>>().join(", ");
    let more = strangers.len().saturating_sub(NAMED);
    let strangers_text = if more > 0 { format!("{names} and {more} more") } else { names };
    let visitors_text = match ranks(&visitors) {
        text if text.is_empty() => String::new(),
        text => format!("{text} from other GPUs"),
    };
    let helpers_text = if helpers.is_empty() {
        String::new()
    } else {
        words::counted(helpers.len(), "helper process", "helper processes")
    };
    let groups = [
        (home, String::new(), "home"),
        (visitors, visitors_text, "visitors"),
        (helpers, helpers_text, "helpers"),
        (strangers, strangers_text, "strangers"),
    ];
    let groups = groups.into_iter().filter(|(list, ..)| !list.is_empty()).map(|(list, text, class)| {
        let text = if class == "home" { ranks(&list) } else { text };
        let pids = list.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(",");
        // Of a rank at home the card's own figure says enough.
        let size = (class != "home").then(|| view! { " "<span class="num" data-pids=pids>{sum(&list)}</span> });
        view! { <span class=class>{text}{size}</span> }
    });
    groups.collect_view().into_any()
}

/// What processes hold together; empty where a size is not known.
fn sum(processes: &[&ProcessStatus]) -> String {
    let sum = processes.iter().try_fold(0u64, |sum, process| Some(sum.saturating_add(process.used?.0)));
    sum.map_or_else(String::new, |sum| Bytes(sum).to_string())
}
