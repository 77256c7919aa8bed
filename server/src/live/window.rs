//! A window of a live run at the full rate: every sample of its cards, read again from the log in which the batches
//! stand as they came. What is no longer there, or came too late to be found, is left to the reduced course.

use super::{
    Kept, Live,
    batch::{self, Lines, Sender},
    lock, log, plausible,
    state::Node,
};
use crate::{
    series::{Column, QuantitySeries, Window},
    store::{Entry, LiveLog, StoreError, in_time},
};
use futures_util::TryStreamExt;
use rankscope_model::{Bytes, LiveNode, LiveRecord, Quantity, SeriesAxis, Subject};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::ControlFlow,
    path::Path,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Longest window that is read again, in microseconds: two hours of eight cards at 10 Hz are half a million samples.
const MOST: i64 = 2 * 3_600_000_000;
/// Samples read for one window.
const MOST_SAMPLES: usize = 4 << 20;
/// A batch that was held up for longer than this is not looked for.
const LATE: i64 = 900_000_000;
/// A clock of a node may be ahead of ours by so much.
const AHEAD: i64 = 60_000_000;
/// Batches of the log of all replicas that are read at once.
const AT_ONCE: usize = 256;
/// The next one comes within this, or the database does not answer.
const NEXT_WITHIN: Duration = Duration::from_secs(10);

/// Where to look, and for what.
#[derive(Debug, Clone)]
struct Wanted {
    nodes: BTreeMap<String, Part>,
}

/// What is wanted of one node.
#[derive(Debug, Clone)]
struct Part {
    /// Its cards, and the name under which each is shown.
    names: BTreeMap<Subject, Subject>,
    /// What the node says of its cards.
    info: LiveNode,
    from: i64,
    to: i64,
}

impl Wanted {
    fn from(&self) -> i64 {
        self.nodes.values().map(|part| part.from).min().unwrap_or(i64::MAX)
    }

    fn to(&self) -> i64 {
        self.nodes.values().map(|part| part.to).max().unwrap_or(i64::MIN)
    }

    /// Batches that arrived before this hold nothing of it.
    fn earliest(&self) -> i64 {
        self.from().saturating_sub(AHEAD)
    }

    /// The same of those that arrived after this.
    fn latest(&self) -> i64 {
        self.to().saturating_add(LATE)
    }
}

impl Live {
    /// The newest time that a node of the job told while the job was there.
    pub fn newest(&self, key: &str) -> Option<i64> {
        let state = lock(&self.state);
        let of_job = state.nodes().values().filter_map(|node| Some((node, node.jobs.get(key)?)));
        of_job.map(|(node, job)| job.gone_since.unwrap_or(node.time)).max()
    }

    /// Every sample of a job's cards within the window. `shown` is the reduced course: it tells which node is drawn, or
    /// which ranks of all nodes, and the outermost ends.
    ///
    /// `None` where the reduced course is all that there is: the window is too long, the job is forgotten, or nothing of
    /// that time is left in the log.
    pub async fn window(&self, key: &str, shown: &QuantitySeries, window: Window) -> Option<QuantitySeries> {
        if (shown.quantity, shown.axis) != (Quantity::DeviceUsed, SeriesAxis::UnixMicros) {
            return None;
        }
        let known: BTreeSet<i64> = shown.columns.iter().flat_map(|column| &column.x).copied().collect();
        let (first, last) = (*known.first()?, *known.last()?);
        let wanted = {
            let state = lock(&self.state);
            let part = |node: &Node, names: BTreeMap<Subject, Subject>| {
                let job = node.jobs.get(key)?;
                // What the cards held before and after the job is no part of it.
                let from = window.from.unwrap_or(first).max(job.first);
                let to = window.to.unwrap_or(last).min(job.gone_since.unwrap_or(i64::MAX));
                (!names.is_empty()).then(|| Part { names, info: node.info.clone(), from, to })
            };
            let of_job = || state.nodes().iter().filter(|(_, node)| node.jobs.contains_key(key));
            let ranks: BTreeSet<Subject> =
                shown.columns.iter().map(|column| column.subject).filter(|subject| subject.rank().is_some()).collect();
            let nodes = if ranks.is_empty() {
                // Cards are of one node: the one whose moments are drawn.
                let drawn =
                    |node: &Node| node.moments.list().iter().filter(|moment| known.contains(&moment.time)).count();
                let (count, name, node) =
                    of_job().map(|(name, node)| (drawn(node), name, node)).max_by_key(|(n, ..)| *n)?;
                let job = node.jobs.get(key).filter(|_| count > 0)?;
                let names = job.subjects.iter().map(|subject| (*subject, *subject)).collect();
                BTreeMap::from([(name.clone(), part(node, names)?)])
            } else {
                let named = |node: &Node| homes(node).into_iter().filter(|(_, rank)| ranks.contains(rank)).collect();
                of_job().filter_map(|(name, node)| Some((name.clone(), part(node, named(node))?))).collect()
            };
            Wanted { nodes }
        };
        let (from, to) = (wanted.from(), wanted.to());
        if from >= to || to.saturating_sub(from) > MOST {
            return None;
        }
        let read = match &self.kept {
            Kept::Shared(shared) => shared_samples(wanted, &shared.place().log).await,
            Kept::InFolder(folder) => {
                let folder = Arc::clone(folder);
                let read = tokio::task::spawn_blocking(move || samples(wanted, &folder.path)).await;
                read.map_err(|error| StoreError::Task(error.to_string())).and_then(|read| Ok(read?))
            }
        };
        let columns = match read {
            Ok(columns) => columns,
            Err(error) => {
                tracing::warn!(%error, "the live log could not be read again; the reduced course is shown");
                return None;
            }
        };
        if !columns.iter().any(|column| column.x.len() > 1) {
            return None;
        }
        let columns = columns.into_iter().map(|column| completed(column, shown)).collect();
        Some(QuantitySeries { quantity: Quantity::DeviceUsed, axis: SeriesAxis::UnixMicros, columns })
    }
}

/// The card on which each rank of a node holds most, as last listed. A card with several ranks bears the name of the
/// lowest, as in the diagnosis.
fn homes(node: &Node) -> BTreeMap<Subject, Subject> {
    let mut home_of: BTreeMap<Subject, (Subject, Option<Bytes>)> = BTreeMap::new();
    for moment in node.moments.list() {
        let mut now: BTreeMap<Subject, (Subject, Option<Bytes>)> = BTreeMap::new();
        for process in &moment.listed.processes {
            // Helpers have their rank's environment.
            let of_rank = process.rank.as_ref().filter(|rank| rank.helper_of.is_none());
            let Some(rank) = of_rank.map(|rank| Subject::Rank(rank.rank)) else { continue };
            let home = now.entry(rank).or_insert((process.subject, process.used));
            if process.used > home.1 {
                *home = (process.subject, process.used);
            }
        }
        home_of.extend(now);
    }
    let mut names = BTreeMap::new();
    for (rank, (card, _)) in home_of {
        names.entry(card).or_insert(rank);
    }
    names
}

/// What the log no longer has of a column, before and after what it has, as the reduced course tells it.
fn completed(full: Column, shown: &QuantitySeries) -> Column {
    let (Some(first), Some(last)) = (full.x.first().copied(), full.x.last().copied()) else { return full };
    let Some(reduced) = shown.columns.iter().find(|column| column.subject == full.subject) else { return full };
    let points = || reduced.x.iter().copied().zip(reduced.y.iter().copied());
    let before = points().filter(|(x, _)| *x < first);
    let after = points().filter(|(x, _)| *x > last);
    let (x, y) = before.chain(full.x.iter().copied().zip(full.y.iter().copied())).chain(after).unzip();
    Column { subject: full.subject, x, y }
}

/// Samples by card, each once and in order of time.
fn samples(wanted: Wanted, folder: &Path) -> io::Result<Vec<Column>> {
    let (earliest, latest) = (wanted.earliest(), wanted.latest());
    let since = u64::try_from(earliest).map_or(SystemTime::UNIX_EPOCH, |micros| {
        // A second for clocks of files that are coarser than ours.
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros).saturating_sub(Duration::from_secs(1))
    });
    let nodes: BTreeSet<String> = wanted.nodes.keys().cloned().collect();
    let is_wanted =
        |head: &log::FrameHead| head.received > latest || (nodes.contains(&head.owner) && head.received >= earliest);
    let mut found = Found::of(wanted);
    log::look_back(folder, since, &is_wanted, &mut |head, body| {
        if head.received > latest {
            return ControlFlow::Break(());
        }
        found.take(&head.owner, head.received, head.known, head.gzip, &body)
    })?;
    Ok(found.columns())
}

/// The same out of the log of all replicas.
async fn shared_samples(wanted: Wanted, log: &LiveLog) -> Result<Vec<Column>, StoreError> {
    let nodes: Vec<String> = wanted.nodes.keys().cloned().collect();
    let mut entries = pin!(log.of_owners(&nodes, wanted.earliest(), wanted.latest()));
    let mut found = Found::of(wanted);
    let mut is_over = false;
    while !is_over {
        let mut group = Vec::with_capacity(AT_ONCE);
        while group.len() < AT_ONCE
            && let Some((_, entry)) = in_time(NEXT_WITHIN, entries.try_next()).await?
        {
            group.push(entry);
        }
        is_over = group.len() < AT_ONCE;
        let taken = tokio::task::spawn_blocking(move || {
            let take = |entry: &Entry| {
                found.take(&entry.owner, entry.received, entry.known, entry.gzip, &entry.body).is_break()
            };
            let has_enough = group.iter().any(take);
            (found, has_enough)
        });
        let has_enough;
        (found, has_enough) = taken.await.map_err(|error| StoreError::Task(error.to_string()))?;
        is_over |= has_enough;
    }
    Ok(found.columns())
}

/// What was found so far.
struct Found {
    wanted: Wanted,
    courses: BTreeMap<Subject, Vec<(i64, u64)>>,
    count: usize,
}

impl Found {
    fn of(wanted: Wanted) -> Self {
        Self { wanted, courses: BTreeMap::new(), count: 0 }
    }

    /// Takes what a batch has; says whether there is room for more.
    fn take(&mut self, owner: &str, received: i64, known: Option<u64>, gzip: bool, body: &[u8]) -> ControlFlow<()> {
        let Some(Part { names, info, from, to }) = self.wanted.nodes.get(owner) else {
            return ControlFlow::Continue(());
        };
        let Ok(mut batch) = batch::read(body, gzip) else { return ControlFlow::Continue(()) };
        if let Some(known) = known {
            batch.keep_after(known);
        }
        let (Sender::Agent(_), Lines::Agent(lines)) = (&batch.sender, &batch.lines) else {
            return ControlFlow::Continue(());
        };
        for line in lines {
            // The log has what was sent; what cannot be is left out of the drawing, as it was of the state.
            let mut refused = plausible::RefusedByKind::new();
            let Some(line) = plausible::sift(line, info, received, &mut refused) else { continue };
            let LiveRecord::Memory(memory) = &line.record else { continue };
            for column in &memory.devices {
                let Some(name) = names.get(&column.subject) else { continue };
                let course = self.courses.entry(*name).or_default();
                for (used, dt) in column.used.iter().zip(&memory.dt_us) {
                    let time = line.t.0.saturating_add(i64::from(*dt));
                    if let Some(used) = used.filter(|_| (*from..=*to).contains(&time)) {
                        course.push((time, used.0));
                        self.count += 1;
                    }
                }
            }
        }
        if self.count < MOST_SAMPLES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn columns(self) -> Vec<Column> {
        let column = |(subject, mut course): (Subject, Vec<(i64, u64)>)| {
            course.sort_unstable();
            course.dedup();
            let (x, y) = course.into_iter().unzip();
            Column { subject, x, y }
        };
        self.courses.into_iter().map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_log_has_stands_between_what_is_left_of_the_rest() {
        let column = |x: &[i64], y: &[u64]| Column { subject: Subject::Device(0), x: x.to_vec(), y: y.to_vec() };
        let shown = QuantitySeries {
            quantity: Quantity::DeviceUsed,
            axis: SeriesAxis::UnixMicros,
            columns: vec![column(&[0, 10, 20, 30, 40], &[1, 2, 3, 4, 5])],
        };
        let found = completed(column(&[15, 20, 25], &[7, 8, 9]), &shown);
        assert_eq!(found, column(&[0, 10, 15, 20, 25, 30, 40], &[1, 2, 7, 8, 9, 4, 5]));
        let other = Column { subject: Subject::Device(1), ..column(&[15], &[7]) };
        assert_eq!(completed(other.clone(), &shown), other);
    }
}
