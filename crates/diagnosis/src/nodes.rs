//! A job on several nodes: cards of one index stand on each of them, so they are held side by side by the rank that is
//! at home on each.
//!
//! Knows device tables with ranks in their lists of processes; names no cause.

use crate::case::Case;
use crate::imbalance::{Comparison, Source};
use crate::policy::Policy;
use crate::steps::CrossSection;
use crate::tables::{Gpu, TableView, by_capacity};
use rankscope_model::Subject;
use std::collections::{BTreeMap, BTreeSet};

/// Where a rank is at home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    /// The series of tables of its node (position in `Case::table_series`).
    pub series: usize,
    /// Its card there.
    pub card: Subject,
}

/// The homes of all ranks; empty for a job of one node, whose cards are told apart by their index.
pub(crate) type Homes = BTreeMap<Subject, Home>;

/// Finds the ranks of each node. A card with several ranks bears the name of the lowest. Nodes that name the same rank
/// are not of one job.
pub(crate) fn homes<'t, 'a: 't>(
    series: &[Vec<usize>],
    view_of: impl Fn(&[usize]) -> Option<&'t TableView<'a>>,
    policy: &Policy,
) -> Homes {
    let mut homes = Homes::new();
    let mut nodes = BTreeSet::new();
    for (position, members) in series.iter().enumerate() {
        let Some(view) = view_of(members) else { continue };
        for gpu in view.in_use(policy) {
            let ranks = view.residents(gpu.subject, policy).into_iter().filter_map(|row| row.rank).map(Subject::Rank);
            let Some(rank) = ranks.min() else { continue };
            if homes.insert(rank, Home { series: position, card: gpu.subject }).is_some() {
                return Homes::new();
            }
            nodes.insert(position);
        }
    }
    if nodes.len() >= 2 { homes } else { Homes::new() }
}

/// The highest use of each rank's card, cards of one capacity together.
pub(crate) fn comparisons(case: &Case) -> Vec<Comparison> {
    let tables = |home: &Home| case.table_series.get(home.series).into_iter().flatten().copied();
    let gpus: Vec<(Subject, &Gpu, Option<u64>)> = case
        .homes
        .iter()
        .filter_map(|(rank, home)| {
            let gpu = tables(home).filter_map(|index| case.tables.get(index)).find_map(|view| view.gpu(home.card))?;
            Some((*rank, gpu, tables(home).filter_map(|index| case.use_of(index, home.card)).max()))
        })
        .collect();
    let cards: Vec<&Gpu> = gpus.iter().map(|(_, gpu, _)| *gpu).collect();
    let groups = by_capacity(&cards, case.policy);
    let comparison = |group: &Vec<&Gpu>| {
        let of_group = || gpus.iter().filter(|(_, gpu, _)| group.iter().any(|own| std::ptr::eq(*own, *gpu)));
        Comparison {
            quantity: rankscope_model::Quantity::DeviceUsed,
            values: of_group().filter_map(|(rank, _, used)| Some((*rank, (*used)?))).collect(),
            capacities: of_group().filter_map(|(rank, gpu, _)| Some((*rank, gpu.total?))).collect(),
            left_out: of_group().filter(|(.., used)| used.is_none()).map(|(rank, ..)| *rank).collect(),
            source: Source::Nodes,
        }
    };
    groups.iter().map(comparison).filter(|comparison| comparison.values.len() >= 2).collect()
}

/// What the ranks' cards used, moment by moment, in order of time. Nodes are read at moments of their own, so most
/// moments are of one node. `None` where a table has no time. `use_of` says what a card of a table counts with.
pub(crate) fn moments<'c, 'a>(
    case: &'c Case<'a>,
    use_of: impl Fn(usize, Subject) -> Option<u64>,
) -> Option<Vec<(i64, &'c TableView<'a>, CrossSection)>> {
    let mut found = Vec::new();
    for (position, members) in case.table_series.iter().enumerate() {
        let here: Vec<(&Subject, &Home)> = case.homes.iter().filter(|(_, home)| home.series == position).collect();
        if here.is_empty() {
            continue;
        }
        for (index, view) in members.iter().filter_map(|index| Some((*index, case.tables.get(*index)?))) {
            let used = here.iter().filter_map(|(rank, home)| Some((**rank, use_of(index, home.card)?))).collect();
            found.push((view.table.time?.0, view, used));
        }
    }
    found.sort_by_key(|(time, ..)| *time);
    Some(found)
}

/// `GPU 3 of node-b`: the card of a rank and the record that shows it.
pub(crate) fn place_of(case: &Case, rank: Subject) -> Option<String> {
    let home = case.homes.get(&rank)?;
    Some(format!("{} of {}", home.card, case.node_of(home.series)?))
}
