//! What was live at the peak as a tree of calls, from the program's start to the allocation: where the bytes branch is
//! where the answer is.

use super::over_time::line;
use super::subjects::Subjects;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Bytes, CallSite, Frame};

/// Branches that are shown below one call; smaller ones are summed up.
const MAX_BRANCHES: usize = 8;
/// Calls that are shown in all.
const MAX_NODES: usize = 240;
/// Branches of at least this part of the whole stand open.
const OPEN_FROM: f64 = 0.2;

/// A run of calls without a branch, and what it branches into.
#[derive(Debug, Default)]
struct Node<'a> {
    frames: Vec<&'a Frame>,
    bytes: u64,
    blocks: u64,
    children: Vec<Node<'a>>,
}

/// The section; nothing where no stack was recorded.
pub fn section(found: &Subjects<'_>) -> AnyView {
    let picked = found.picked();
    let (sites, at_peak) = match &picked.device.peak {
        Some(peak) if !peak.sites.is_empty() => (&peak.sites, true),
        _ => (&picked.device.top_sites, false),
    };
    if sites.iter().all(|site| site.frames.is_empty()) {
        return ().into_any();
    }
    let roots = tree(sites);
    let whole: u64 = roots.iter().map(|node| node.bytes).fold(0, u64::saturating_add);
    let moment = match (&picked.device.peak, at_peak) {
        (Some(peak), true) => {
            format!("{} live, {} reserved; the largest call sites of that moment", peak.requested, peak.reserved)
        }
        _ => format!("{} allocated when the snapshot was taken; the largest call sites", picked.device.allocated),
    };
    let mut room = MAX_NODES;
    let nodes = nodes(&roots, whole, &mut room);
    view! {
        <section class="card" id="peak" aria-labelledby="peak-title">
            <h2 id="peak-title">{if at_peak { "At the peak" } else { "At the end" }} <span>{moment}</span></h2>
            <ul class="tree">{nodes}</ul>
        </section>
    }
    .into_any()
}

/// Stacks merged from their outermost frame on.
fn tree(sites: &[CallSite]) -> Vec<Node<'_>> {
    let stacks: Vec<(&CallSite, usize)> = sites.iter().map(|site| (site, site.frames.len())).collect();
    branches(&stacks)
}

/// `left` is how many frames of each stack are still to be told.
fn branches<'a>(stacks: &[(&'a CallSite, usize)]) -> Vec<Node<'a>> {
    let mut groups: Vec<(&'a Frame, Vec<(&'a CallSite, usize)>)> = Vec::new();
    for (site, left) in stacks {
        let Some(frame) = left.checked_sub(1).and_then(|at| site.frames.get(at)) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == frame) {
            Some((_, members)) => members.push((site, left - 1)),
            None => groups.push((frame, vec![(site, left - 1)])),
        }
    }
    let mut nodes: Vec<Node<'a>> = groups
        .into_iter()
        .map(|(frame, mut members)| {
            let mut frames = vec![frame];
            // As long as all go the same way it is one node.
            while let Some(next) = common_next(&members) {
                frames.push(next);
                for (_, left) in &mut members {
                    *left -= 1;
                }
            }
            let sum = |of: fn(&CallSite) -> u64| members.iter().map(|(site, _)| of(site)).fold(0, u64::saturating_add);
            Node {
                frames,
                bytes: sum(|site| site.bytes.0),
                blocks: sum(|site| site.blocks),
                children: branches(&members),
            }
        })
        .collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.bytes));
    nodes
}

fn common_next<'a>(members: &[(&'a CallSite, usize)]) -> Option<&'a Frame> {
    let next = |(site, left): &(&'a CallSite, usize)| left.checked_sub(1).and_then(|at| site.frames.get(at));
    let first = members.first().and_then(next)?;
    members.iter().all(|member| next(member) == Some(first)).then_some(first)
}

fn nodes(all: &[Node<'_>], whole: u64, room: &mut usize) -> AnyView {
    let shown = all.iter().take(MAX_BRANCHES.min(*room));
    let mut views: Vec<AnyView> = Vec::new();
    for node in shown {
        if *room == 0 {
            break;
        }
        *room -= 1;
        views.push(item(node, whole, room));
    }
    let rest = all.get(views.len()..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes: u64 = rest.iter().map(|node| node.bytes).fold(0, u64::saturating_add);
        let words =
            format!("{} smaller, {}", words::count(rest.len(), "branch").replace("branchs", "branches"), Bytes(bytes));
        views.push(view! { <li class="dim">{words}</li> }.into_any());
    }
    views.into_any()
}

fn item(node: &Node<'_>, whole: u64, room: &mut usize) -> AnyView {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a percentage
    let percent =
        if whole == 0 { 0 } else { (node.bytes as f64 / whole as f64 * 100.0).round().clamp(0.0, 100.0) as u32 };
    // The user's own line tells most; else the last call before the branch.
    let own = node.frames.iter().rev().find(|frame| !frame.is_library()).or(node.frames.last());
    let head = view! {
        <span class="tree-bytes num">{Bytes(node.bytes).to_string()}</span>
        <span class="tree-bar" aria-hidden="true"><i style=format!("width:{percent}%")></i></span>
        <code>{line(own.copied())}</code>
        <span class="dim">{words::count(usize::try_from(node.blocks).unwrap_or(usize::MAX), "block")}</span>
    };
    let calls = node.frames.iter().map(|frame| frame_line(frame)).collect_view();
    let children = nodes(&node.children, whole, room);
    let open = node.bytes as f64 >= whole as f64 * OPEN_FROM && !node.children.is_empty();
    view! {
        <li>
            <details open=open>
                <summary>{head}</summary>
                <details class="calls">
                    <summary>{format!("{} down to here", words::count(node.frames.len(), "call"))}</summary>
                    <ol>{calls}</ol>
                </details>
                <ul>{children}</ul>
            </details>
        </li>
    }
    .into_any()
}

/// One frame with its whole path; the user's own stand out.
pub fn frame_line(frame: &Frame) -> AnyView {
    let own = !frame.is_library();
    let place = if frame.line == 0 { String::new() } else { format!("{}:{}", frame.file, frame.line) };
    view! { <li class:own=own><code>{words::shown_line(&frame.function)}</code>" "<span class="dim">{words::shown_line(&place)}</span></li> }
        .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(bytes: u64, frames: &[&str]) -> CallSite {
        let frame = |name: &&str| Frame { function: (*name).into(), file: "train.py".into(), line: 1 };
        CallSite { frames: frames.iter().rev().map(frame).collect(), bytes: Bytes(bytes), blocks: 1 }
    }

    #[test]
    fn stacks_share_their_beginning_and_branch_where_they_differ() {
        let sites = [site(5, &["main", "step", "conv"]), site(3, &["main", "step", "norm"]), site(1, &["other"])];
        let roots = tree(&sites);
        assert_eq!(roots.len(), 2);
        assert_eq!((roots[0].bytes, roots[0].frames.len(), roots[0].children.len()), (8, 2, 2));
        assert_eq!(roots[0].children[0].frames[0].function, "conv");
        assert_eq!(roots[1].bytes, 1);
    }

    #[test]
    fn a_stack_that_ends_inside_another_is_counted_once() {
        let sites = [site(5, &["main", "step"]), site(3, &["main", "step", "norm"])];
        let roots = tree(&sites);
        assert_eq!((roots.len(), roots[0].bytes, roots[0].children.len()), (1, 8, 1));
    }
}
