//! The evidence prepared for the rules, once per diagnosis: tables sorted out, steps aligned, the comparison chosen.

use crate::after::{self, After};
use crate::imbalance::{self, Comparison, Spread};
use crate::input::InputView;
use crate::policy::Policy;
use crate::script::ScriptView;
use crate::steps::{StepView, is_training};
use crate::tables::TableView;
use rankscope_model::{Evidence, EvidenceRef, Fact, FactKind, LaunchSetting, Provenance, StepRecord, Subject};
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
    /// Every comparison, for rules that look at a certain quantity.
    pub comparisons: Vec<Comparison>,
    /// References to the training records: many rules rest on all of them, and a log has hundreds of thousands.
    training: OnceCell<Vec<EvidenceRef>>,
}

impl<'a> Case<'a> {
    /// Prepares the evidence.
    pub fn new(evidence: &'a Evidence, policy: &'a Policy) -> Self {
        let tables: Vec<TableView> = evidence.device_tables.iter().map(TableView::new).collect();
        let steps = StepView::new(&evidence.steps);
        let mut case = Self {
            evidence,
            policy,
            table_series: series(&tables),
            tables,
            input: InputView::new(&steps, policy),
            scripts: ScriptView::new(evidence, None),
            steps,
            main: None,
            after: None,
            comparisons: Vec::new(),
            training: OnceCell::new(),
        };
        case.comparisons = imbalance::comparisons(&case);
        case.main = imbalance::choose(&case, &case.comparisons);
        case.after = after::find(&case);
        if let Some(file) = case.after.as_ref().and_then(|after| after.artifact(&case)) {
            case.scripts = ScriptView::new(evidence, Some(file));
        }
        case
    }

    /// The table of a series that shows most: most visits, then processes at all (a CSV loop of the same cards lists
    /// none), then most memory, then the latest.
    pub fn focus_of(&self, series: &[usize]) -> Option<(usize, &TableView<'a>)> {
        series.iter().filter_map(|index| Some((*index, self.tables.get(*index)?))).max_by_key(|(index, view)| {
            let visits: usize = view.processes.values().map(|p| p.visits(self.policy).len()).sum();
            (visits, view.lists_processes(), view.max_used(), *index)
        })
    }

    /// The table that process rules look at: of the series with the most cards, the one that shows most.
    pub fn focus(&self) -> Option<(usize, &TableView<'a>)> {
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
        if let Some(gap) = self.main.as_ref().and_then(of) {
            return Some(gap);
        }
        self.comparisons.iter().filter_map(|c| of(&(c.clone(), c.spread(self.policy)?))).max()
    }

    /// References to places.
    pub fn refs<'p>(&self, places: impl IntoIterator<Item = &'p Provenance>) -> Vec<EvidenceRef> {
        crate::refs::refs(self.evidence, places, self.policy.max_refs)
    }

    /// References to all training records.
    pub fn training_refs(&self) -> Vec<EvidenceRef> {
        let records = || self.steps.records().filter(|(key, _)| is_training(key)).map(|(_, row)| row);
        self.training.get_or_init(|| self.step_refs(records())).clone()
    }

    /// References to step records.
    pub fn step_refs<'p>(&self, records: impl IntoIterator<Item = &'p StepRecord>) -> Vec<EvidenceRef> {
        crate::refs::step_refs(self.evidence, records, self.policy.max_refs)
    }
}

/// Tables of the same cards that share a process are one job over time; by time where every table has one, else as
/// they came. Tables of equal cards without a common process are other runs or other nodes and stay apart; a table
/// that lists no process joins whichever comes first.
fn series(tables: &[TableView]) -> Vec<Vec<usize>> {
    struct Group {
        cards: Vec<(Subject, Option<u64>)>,
        pids: BTreeSet<u32>,
        members: Vec<usize>,
    }
    let mut groups: Vec<Group> = Vec::new();
    for (index, view) in tables.iter().enumerate() {
        let cards: Vec<(Subject, Option<u64>)> = view.gpus.iter().map(|gpu| (gpu.subject, gpu.total)).collect();
        if cards.is_empty() {
            continue;
        }
        let pids: BTreeSet<u32> = view.processes.keys().copied().collect();
        let joins = |group: &&mut Group| {
            group.cards == cards && (group.pids.is_empty() || pids.is_empty() || !group.pids.is_disjoint(&pids))
        };
        match groups.iter_mut().find(joins) {
            Some(group) => {
                group.members.push(index);
                group.pids.extend(pids);
            }
            None => groups.push(Group { cards, pids, members: vec![index] }),
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
