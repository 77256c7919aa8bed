//! The longest series of device readings as one curve per card, cut to the time in which all of them are at work.
//!
//! Knows device tables; names no cause.

use crate::case::Case;
use crate::tables::TableView;
use rankscope_model::{ArtifactId, Provenance, Subject};
use std::collections::BTreeMap;

/// Curves of the cards at work, all of the same length.
pub(crate) struct Readings<'a> {
    /// Used bytes per card, in card order.
    pub curves: Vec<(Subject, Vec<u64>)>,
    /// Where each reading stands.
    pub places: Vec<&'a Provenance>,
}

impl<'a> Readings<'a> {
    /// Of the file with most readings of one set of cards; `None` with fewer than `least` readings of two cards at work.
    ///
    /// Readings of several files may be of several runs, so one file is looked at. Cards that are idle all the time are
    /// left out; where a card falls idle in between, other jobs came and went, and no curve is of one job.
    pub fn new(case: &Case<'a>, least: usize) -> Option<Self> {
        let mut files: BTreeMap<(usize, ArtifactId), Vec<usize>> = BTreeMap::new();
        // Of several nodes the one that is looked at.
        let node = case.home_of_heaviest().map(|home| home.series);
        let is_of_node = |series: usize| node.is_none_or(|node| node == series);
        for (series, members) in case.table_series.iter().enumerate().filter(|(series, _)| is_of_node(*series)) {
            for index in members {
                let artifact = case.tables.get(*index)?.table.at.artifact;
                files.entry((series, artifact)).or_default().push(*index);
            }
        }
        let longest = files.into_values().max_by_key(Vec::len).filter(|indices| indices.len() >= least)?;
        // What somebody held who has left since is no part of the job's course.
        let is_known = |index: &usize| {
            let view = case.tables.get(*index)?;
            view.gpus
                .iter()
                .all(|gpu| gpu.used.is_none() || case.use_of(*index, gpu.subject).is_some())
                .then_some((*index, view))
        };
        let views: Vec<(usize, &TableView<'a>)> = longest.iter().filter_map(is_known).collect();
        let (_, first) = views.first()?;
        let mut curves = Vec::new();
        let mut working = vec![true; views.len()];
        for gpu in &first.gpus {
            let readings: Option<Vec<(u64, bool)>> = views
                .iter()
                .map(|(index, view)| {
                    Some((case.use_of(*index, gpu.subject)?, view.gpu(gpu.subject)?.is_idle(case.policy)))
                })
                .collect();
            let readings = readings?;
            if readings.iter().all(|(_, idle)| *idle) {
                continue;
            }
            for (works, (_, idle)) in working.iter_mut().zip(&readings) {
                *works &= !idle;
            }
            curves.push((gpu.subject, readings.into_iter().map(|(used, _)| used).collect::<Vec<u64>>()));
        }
        let start = working.iter().position(|works| *works)?;
        let end = working.iter().rposition(|works| *works)?.saturating_add(1);
        let is_one_job = working.get(start..end)?.iter().all(|works| *works);
        if !is_one_job || end - start < least || curves.len() < 2 {
            return None;
        }
        for (_, values) in &mut curves {
            values.truncate(end);
            values.drain(..start);
        }
        let places = views.get(start..end)?.iter().map(|(_, view)| &view.table.at).collect();
        Some(Self { curves, places })
    }

    /// Readings.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// One value per card at one reading.
    pub fn at(&self, index: usize) -> Vec<(Subject, u64)> {
        self.curves.iter().filter_map(|(subject, values)| Some((*subject, *values.get(index)?))).collect()
    }
}
