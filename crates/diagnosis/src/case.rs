//! The evidence prepared for the rules, once per diagnosis: tables sorted out, steps aligned, the comparison chosen.

use crate::after::{self, After};
use crate::gone::Left;
use crate::imbalance::{self, Comparison, Source, Spread};
use crate::input::InputView;
use crate::nodes::{self, Home, Homes};
use crate::policy::Policy;
use crate::script::ScriptView;
use crate::steps::{StepView, is_training};
use crate::tables::TableView;
use rankscope_model::{
    ArtifactId, ArtifactKind, Evidence, EvidenceRef, Fact, FactKind, LaunchSetting, Provenance, StepRecord, Subject,
};
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// What every rule gets to see.
pub(crate) struct Case<'a> {
    /// As read.
    pub evidence: &'a Evidence,
    /// Thresholds.
    pub policy: &'a Policy,
    /// Device tables, in the order of the evidence.
    pub tables: Vec<TableView<'a>>,
    /// Tables of the same cards (positions in `tables`), in time order where times are known.
    pub table_series: Vec<Vec<usize>>,
    /// Processes beside the job that have left since.
    pub left: Left<'a>,
    /// Step records, aligned.
    pub steps: StepView<'a>,
    /// Batch shapes over ranks.
    pub input: InputView,
    /// Training scripts.
    pub scripts: ScriptView<'a>,
    /// The reported comparison with its figures.
    pub main: Option<(Comparison, Spread)>,
    /// A later reading without the gap.
    pub after: Option<After>,
    /// Of a job on several nodes, where each rank is at home.
    pub homes: Homes,
    /// What rules about one node's cards look at: the reported comparison, or, where that is of ranks on several nodes,
    /// the one of the cards beside the heaviest.
    pub on_cards: Option<(Comparison, Spread)>,
    /// Every comparison, for rules that look at a certain quantity.
    pub comparisons: Vec<Comparison>,
    /// See [`Case::batch_refs`]: many rules rest on all of them, and a log has hundreds of thousands.
    batches: OnceCell<Vec<EvidenceRef>>,
}

impl<'a> Case<'a> {
    /// Prepares the evidence.
    pub fn new(evidence: &'a Evidence, policy: &'a Policy) -> Self {
        let tables: Vec<TableView> = evidence.device_tables.iter().map(TableView::new).collect();
        let steps = StepView::new(&evidence.steps);
        let table_series = series(&tables, evidence);
        let mut case = Self {
            evidence,
            policy,
            left: Left::new(evidence, &tables, &table_series, policy),
            table_series,
            tables,
            input: InputView::new(&steps, policy),
            scripts: ScriptView::new(evidence, None),
            steps,
            main: None,
            homes: Homes::new(),
            on_cards: None,
            after: None,
            comparisons: Vec::new(),
            batches: OnceCell::new(),
        };
        case.homes = nodes::homes(&case.table_series, |members| case.focus_of(members).map(|(_, view)| view), policy);
        case.comparisons = imbalance::comparisons(&case);
        case.main = imbalance::choose(&case, &case.comparisons);
        case.on_cards = case.cards_of_main();
        case.after = after::find(&case);
        if let Some(file) = case.after.as_ref().and_then(|after| after.artifact(&case)) {
            case.scripts = ScriptView::new(evidence, Some(file));
        }
        case
    }

    fn cards_of_main(&self) -> Option<(Comparison, Spread)> {
        let main = self.main.as_ref()?;
        let Some(home) = self.home_of_heaviest() else { return Some(main.clone()) };
        let series = self.table_series.get(home.series)?;
        let is_beside = |comparison: &&Comparison| {
            matches!(&comparison.source, Source::Tables(of) if of == series) && comparison.value(home.card).is_some()
        };
        let beside = self.comparisons.iter().find(is_beside)?;
        Some((beside.clone(), beside.spread(self.policy)?))
    }

    /// Where the heaviest rank of a job on several nodes is at home, if ranks over nodes are what is compared.
    pub fn home_of_heaviest(&self) -> Option<Home> {
        let (comparison, spread) = self.main.as_ref().filter(|(comparison, _)| comparison.source == Source::Nodes)?;
        let rank = spread.heaviest.first().copied().or_else(|| comparison.heaviest())?;
        self.homes.get(&rank).copied()
    }

    /// Whether what stands out is this card of the node that is looked at, or the rank that runs on it.
    pub fn is_on(&self, heavy: Subject, card: Subject) -> bool {
        match self.homes.get(&heavy) {
            Some(home) => home.card == card && Some(home.series) == self.home_of_heaviest().map(|focus| focus.series),
            // Where nothing tells, ranks are counted as cards are.
            None => heavy == card || heavy.device().or(heavy.rank()) == card.device(),
        }
    }

    /// `GPU 3 of node-b` for a rank of a job on several nodes.
    pub fn place_of(&self, rank: Subject) -> Option<String> {
        nodes::place_of(self, rank)
    }

    /// The name of the node whose record a series is.
    pub fn node_of(&self, series: usize) -> Option<&str> {
        let table = self.tables.get(*self.table_series.get(series)?.first()?)?.table;
        let file = self.evidence.artifact_name(table.at.artifact);
        Some(file.strip_suffix(".live.jsonl").unwrap_or(file))
    }

    /// What a card of a table uses, without those who have left it since.
    pub fn use_of(&self, table: usize, card: Subject) -> Option<u64> {
        self.left.use_without(table, self.tables.get(table)?.gpu(card)?)
    }

    /// The table of a series that shows most: all cards, nobody who has left since, most visits, then processes at all (a CSV loop of the same cards lists
    /// none), then most memory, then the latest.
    pub fn focus_of(&self, series: &[usize]) -> Option<(usize, &TableView<'a>)> {
        let most =
            series.iter().filter_map(|index| self.tables.get(*index)).map(|view| view.gpus.len()).max().unwrap_or(0);
        series.iter().filter_map(|index| Some((*index, self.tables.get(*index)?))).max_by_key(|(index, view)| {
            let visits: usize = view.processes.values().map(|p| p.visits(self.policy).len()).sum();
            // A reading that breaks off is no picture of all cards.
            let is_whole = view.gpus.len() >= most;
            (is_whole, !self.left.is_past(*index), visits, view.lists_processes(), view.max_used(), *index)
        })
    }

    /// The table that process rules look at: of the series with the most cards, the one that shows most.
    pub fn focus(&self) -> Option<(usize, &TableView<'a>)> {
        // Of several nodes the one of the heaviest rank.
        if let Some(series) = self.home_of_heaviest().and_then(|home| self.table_series.get(home.series)) {
            return self.focus_of(series);
        }
        self.table_series
            .iter()
            .filter_map(|series| self.focus_of(series))
            .max_by_key(|(index, view)| (view.lists_processes(), view.gpus.len(), view.max_used(), *index))
    }

    /// The table whose cards are drawn: as [`Self::focus`], but a monitor of processes tells no use of the cards.
    pub fn focus_with_memory(&self) -> Option<&TableView<'a>> {
        self.table_series
            .iter()
            .filter_map(|series| self.focus_of(series))
            .filter(|(_, view)| view.max_used().is_some())
            .max_by_key(|(index, view)| (view.lists_processes(), view.gpus.len(), view.max_used(), *index))
            .map(|(_, view)| view)
    }

    /// The series that `table` belongs to.
    pub fn series_of(&self, table: usize) -> &[usize] {
        self.table_series.iter().find(|series| series.contains(&table)).map_or(&[], Vec::as_slice)
    }

    /// What the job sets for PyTorch's allocator, in its environment or its script, as written.
    pub fn allocator_settings(&self) -> impl Iterator<Item = (&'a str, &'a Provenance)> {
        let launched =
            self.evidence.launches.iter().flat_map(|launch| &launch.facts).filter_map(|fact| match &fact.what {
                LaunchSetting::AllocatorConf(value) => Some((value.as_str(), &fact.at)),
                _ => None,
            });
        let scripted = self.scripts.all(FactKind::AllocatorConfig).into_iter().filter_map(|fact| match &fact.what {
            Fact::AllocatorConfig { value } => Some((value.as_str(), &fact.at)),
            _ => None,
        });
        launched.chain(scripted)
    }

    /// A message says that device memory ran out.
    pub fn ran_out_of_memory(&self) -> bool {
        self.evidence.ooms.iter().any(|oom| !oom.host_memory)
            || self.evidence.snapshots.iter().flat_map(|s| &s.devices).any(|d| !d.ooms.is_empty())
    }

    /// The gap of one card, if that card stands out among cards.
    pub fn gap_on(&self, subject: Subject) -> Option<u64> {
        let of = |(comparison, spread): &(Comparison, Spread)| {
            let value = comparison.value(subject)?;
            (spread.heaviest.contains(&subject) && !spread.is_low_outlier).then(|| value.saturating_sub(spread.median))
        };
        if let Some(gap) = self.main.as_ref().and_then(of).or_else(|| self.on_cards.as_ref().and_then(of)) {
            return Some(gap);
        }
        self.comparisons.iter().filter_map(|c| of(&(c.clone(), c.spread(self.policy)?))).max()
    }

    /// References to places.
    pub fn refs<'p>(&self, places: impl IntoIterator<Item = &'p Provenance>) -> Vec<EvidenceRef> {
        crate::refs::refs(self.evidence, places, self.policy.max_refs)
    }

    /// References to the training records that tell a batch. Others say nothing of the input.
    pub fn batch_refs(&self) -> Vec<EvidenceRef> {
        let training = || self.steps.records().filter(|(key, _)| is_training(key)).map(|(_, row)| row);
        self.batches.get_or_init(|| self.step_refs(training().filter(|row| row.has_batch()))).clone()
    }

    /// References to step records.
    pub fn step_refs<'p>(&self, records: impl IntoIterator<Item = &'p StepRecord>) -> Vec<EvidenceRef> {
        crate::refs::step_refs(self.evidence, records, self.policy.max_refs)
    }
}

/// Tables of the same cards that share a process are one job over time; by time where every table has one, else as
/// they came. Tables of equal cards without a common process are other runs or other nodes and stay apart; a table
/// that lists no process joins whichever comes first.
fn series(tables: &[TableView], evidence: &Evidence) -> Vec<Vec<usize>> {
    struct Group {
        cards: Vec<(Subject, Option<u64>)>,
        /// The record of a node, which is of no other node.
        record: Option<ArtifactId>,
        pids: BTreeSet<u32>,
        members: Vec<usize>,
    }
    let is_of = |index: usize, file: ArtifactId| tables.get(index).is_some_and(|view| view.table.at.artifact == file);
    let mut groups: Vec<Group> = Vec::new();
    for (index, view) in tables.iter().enumerate() {
        let cards: Vec<(Subject, Option<u64>)> = view.gpus.iter().map(|gpu| (gpu.subject, gpu.total)).collect();
        if cards.is_empty() {
            continue;
        }
        let pids: BTreeSet<u32> = view.processes.keys().copied().collect();
        let artifact = view.table.at.artifact;
        let is_record = evidence
            .artifacts
            .get(artifact.0 as usize)
            .is_some_and(|artifact| artifact.kind == ArtifactKind::LiveRecord);
        let record = is_record.then_some(artifact);
        let joins = |group: &&mut Group| {
            group.cards == cards
                && group.record == record
                && (group.pids.is_empty() || pids.is_empty() || !group.pids.is_disjoint(&pids))
        };
        // The last reading of a loop that was ended while it was written lacks its last cards.
        let is_rest = |group: &&mut Group| {
            group.members.len() >= 2
                && group.members.last().is_some_and(|member| is_of(*member, artifact))
                && !is_of(index.saturating_add(1), artifact)
                && cards.len() < group.cards.len()
                && group.cards.starts_with(&cards)
        };
        if let Some(group) = groups.iter_mut().find(is_rest) {
            group.members.push(index);
            continue;
        }
        match groups.iter_mut().find(joins) {
            Some(group) => {
                group.members.push(index);
                group.pids.extend(pids);
            }
            None => groups.push(Group { cards, record, pids, members: vec![index] }),
        }
    }
    let time = |index: &usize| tables.get(*index).and_then(|view| view.table.time);
    let mut lists: Vec<Vec<usize>> = groups.into_iter().map(|group| group.members).collect();
    for members in &mut lists {
        if members.iter().all(|index| time(index).is_some()) {
            members.sort_by_key(time);
        }
    }
    lists
}
