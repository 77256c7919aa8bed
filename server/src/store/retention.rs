//! How long the runs of a project are kept, and which are past that.
//!
//! What counts is a run's last change: its newest diagnosis, or the last note on its checklist. Runs whose job goes on, and
//! runs to which a link still works, are spared whatever their age. Their files count against the size all the same.

use super::{DbRow, Engine, Store, StoreError, jobs, now, to_u64};
use rankscope_model::UnixMicros;
use sqlx::Row;
use std::time::Duration;

/// The longest time that can be set, in days: a hundred years.
pub const MOST_DAYS: u32 = 36_500;

/// How long runs are kept. Without a limit: until somebody deletes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// Days since the last change.
    pub days: Option<u32>,
    /// Bytes of all files of the project, as uploaded. Beyond it the runs go that were changed longest ago.
    pub bytes: Option<u64>,
}

impl Keep {
    /// Nothing ever goes by itself.
    pub fn is_without_end(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was not changed for too long.
    Age,
    /// The project has too many bytes.
    Size,
}

/// Why a run stays although it is past the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// Its job goes on.
    GoesOn,
    /// A link to it still works.
    Shared,
}

/// A run of a project, as far as retention looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub run: String,
    /// Its title.
    pub title: String,
    /// When it was changed last.
    pub changed_at: UnixMicros,
    /// Bytes of its files, as uploaded.
    pub bytes: u64,
    /// Why it stays whatever happens.
    pub spared: Option<Spared>,
}

/// What the limits mean for a project at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expiring {
    /// Runs of the project.
    pub runs: u64,
    /// Bytes of all their files.
    pub bytes: u64,
    /// What goes, in that order.
    pub going: Vec<(Candidate, Reason)>,
    /// What would go if nothing spared it.
    pub spared: Vec<(Candidate, Spared)>,
}

impl Store {
    /// The limits of a project.
    pub async fn keep_of(&self, project: &str) -> Result<Keep, StoreError> {
        let row = sqlx::query("SELECT keep_days, keep_bytes FROM projects WHERE id = $1")
            .bind(project)
            .fetch_one(&self.pool)
            .await?;
        let days: Option<i64> = row.try_get("keep_days")?;
        let bytes: Option<i64> = row.try_get("keep_bytes")?;
        Ok(Keep {
            days: days.map(|days| super::to_u32(days, "keep_days")).transpose()?,
            bytes: bytes.map(|bytes| to_u64(bytes, "keep_bytes")).transpose()?,
        })
    }

    /// Sets the limits of a project, and when they are looked at first: by a job of this kind, which stays as long as there
    /// is a limit.
    pub async fn set_keep(&self, project: &str, keep: Keep, kind: &str, first: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let changed = sqlx::query("UPDATE projects SET keep_days = $1, keep_bytes = $2 WHERE id = $3")
            .bind(keep.days.map(i64::from))
            .bind(keep.bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)))
            .bind(project)
            .execute(&mut *transaction)
            .await?;
        if changed.rows_affected() == 0 {
            return Err(StoreError::Missing);
        }
        // A new one, so that the limits of before are never applied at the time that was said for these.
        jobs::remove(&mut transaction, kind, project).await?;
        if !keep.is_without_end() {
            jobs::add(&mut transaction, kind, project, jobs::Of::Project(project), first).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// What these limits mean for a project now.
    pub async fn expiring(&self, project: &str, keep: Keep) -> Result<Expiring, StoreError> {
        let candidates = self.candidates("r.project_id = $2", project).await?;
        Ok(judge(candidates, keep, now()))
    }

    /// Deletes a run if it is still as it was when it was judged. `false`: it was changed, or is spared now.
    pub async fn delete_expired(&self, judged: &Candidate) -> Result<bool, StoreError> {
        let lock = self.lock_run(&judged.run).await?;
        let is_same = self.candidates("r.id = $2", &judged.run).await?.first() == Some(judged);
        if is_same {
            self.delete_locked_run(&judged.run, lock).await?;
        }
        Ok(is_same)
    }

    /// Runs, those first that were changed longest ago.
    async fn candidates(&self, of: &'static str, value: &str) -> Result<Vec<Candidate>, StoreError> {
        let greatest = match self.database.engine() {
            Engine::Sqlite => "MAX",
            Engine::Postgres => "GREATEST",
        };
        // Its parts are all of the program's own text.
        let sql = sqlx::AssertSqlSafe(format!(
            "SELECT r.id, r.title, {greatest}(r.created_at, \
             COALESCE((SELECT MAX(d.created_at) FROM diagnoses d WHERE d.run_id = r.id), 0), \
             COALESCE((SELECT MAX(n.created_at) FROM item_notes n WHERE n.run_id = r.id), 0)) AS changed_at, \
             CAST(COALESCE((SELECT SUM(a.bytes) FROM artifacts a WHERE a.run_id = r.id AND a.object_key IS NOT NULL), 0) \
             AS BIGINT) AS bytes, \
             (SELECT COUNT(*) FROM live_runs l WHERE l.run_id = r.id AND l.ended_at IS NULL) AS goes_on, \
             (SELECT COUNT(*) FROM shares s WHERE s.run_id = r.id AND s.revoked_at IS NULL \
             AND (s.expires_at IS NULL OR s.expires_at > $1)) AS links FROM runs r WHERE {of} ORDER BY 3, 1"
        ));
        let rows = sqlx::query(sql).bind(now().0).bind(value).fetch_all(&self.pool).await?;
        rows.iter().map(candidate).collect()
    }
}

fn candidate(row: &DbRow) -> Result<Candidate, StoreError> {
    let (goes_on, links): (i64, i64) = (row.try_get("goes_on")?, row.try_get("links")?);
    Ok(Candidate {
        run: row.try_get("id")?,
        title: row.try_get("title")?,
        changed_at: UnixMicros(row.try_get("changed_at")?),
        bytes: to_u64(row.try_get("bytes")?, "bytes")?,
        spared: match (goes_on, links) {
            (0, 0) => None,
            (0, _) => Some(Spared::Shared),
            _ => Some(Spared::GoesOn),
        },
    })
}

/// What goes of these, which stand in the order of their last change.
fn judge(candidates: Vec<Candidate>, keep: Keep, now: UnixMicros) -> Expiring {
    let mut expiring = Expiring {
        runs: candidates.len() as u64,
        bytes: candidates.iter().map(|candidate| candidate.bytes).sum(),
        ..Expiring::default()
    };
    let oldest = keep.days.map(|days| {
        let kept = Duration::from_hours(24).saturating_mul(days);
        now.0.saturating_sub(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX))
    });
    let mut left = expiring.bytes;
    for candidate in candidates {
        let is_old = oldest.is_some_and(|oldest| candidate.changed_at.0 < oldest);
        // A run without files makes no room.
        let is_in_the_way = keep.bytes.is_some_and(|most| left > most) && candidate.bytes > 0;
        let reason = match (is_old, is_in_the_way) {
            (true, _) => Reason::Age,
            (false, true) => Reason::Size,
            (false, false) => continue,
        };
        if let Some(spared) = candidate.spared {
            expiring.spared.push((candidate, spared));
        } else {
            left = left.saturating_sub(candidate.bytes);
            expiring.going.push((candidate, reason));
        }
    }
    expiring
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LiveStep, ShareOptions, tests_report};
    use std::{io::Write, sync::Arc};

    const DAY: i64 = 86_400_000_000;

    fn run(name: &str, age_days: i64, bytes: u64, spared: Option<Spared>) -> Candidate {
        let changed_at = UnixMicros(1000 * DAY - age_days * DAY);
        Candidate { run: name.into(), title: name.into(), changed_at, bytes, spared }
    }

    fn names<T: Copy>(list: &[(Candidate, T)]) -> Vec<(&str, T)> {
        list.iter().map(|(candidate, why)| (candidate.run.as_str(), *why)).collect()
    }

    #[test]
    fn the_oldest_go_until_it_fits_and_what_is_spared_stays() {
        let runs = || {
            vec![
                run("shared", 400, 50, Some(Spared::Shared)),
                run("old", 90, 10, None),
                run("empty", 20, 0, None),
                run("middle", 10, 30, None),
                run("live", 5, 10, Some(Spared::GoesOn)),
                run("new", 1, 40, None),
            ]
        };
        let judged = |days, bytes| judge(runs(), Keep { days, bytes }, UnixMicros(1000 * DAY));
        let nothing = judged(None, None);
        assert_eq!((nothing.runs, nothing.bytes, nothing.going.len()), (6, 140, 0));
        let by_age = judged(Some(30), None);
        assert_eq!(names(&by_age.going), [("old", Reason::Age)]);
        assert_eq!(names(&by_age.spared), [("shared", Spared::Shared)]);
        // Exactly on the day it stays.
        assert_eq!(judged(Some(90), None).going, []);
        let by_size = judged(None, Some(110));
        assert_eq!(names(&by_size.going), [("old", Reason::Size), ("middle", Reason::Size)]);
        assert_eq!(judged(None, Some(140)).going, []);
        let both = judged(Some(15), Some(100));
        assert_eq!(names(&both.going), [("old", Reason::Age), ("empty", Reason::Age), ("middle", Reason::Size)]);
        let all = judged(Some(0), Some(1));
        assert_eq!(all.going.len(), 4);
        assert_eq!(names(&all.spared), [("shared", Spared::Shared), ("live", Spared::GoesOn)]);
        assert_eq!(judged(Some(MOST_DAYS), None).going, []);
    }

    #[tokio::test]
    async fn what_was_judged_goes_only_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let artifact = |bytes: &[u8]| {
            let (mut file, staged) = store.staging_file().unwrap();
            file.write_all(bytes).unwrap();
            super::super::NewArtifact {
                id: super::super::new_id(),
                name: "a".into(),
                bytes: bytes.len() as u64,
                sha256: "00".into(),
                staged: Some(staged),
                evidence: Arc::default(),
                read_later: None,
            }
        };
        for (name, files) in
            [("a", vec![artifact(b"12345")]), ("b", vec![artifact(b"1"), artifact(b"23")]), ("c", vec![])]
        {
            store.create_run(files, tests_report(name, name, 1, "s"), Arc::default()).await.unwrap();
        }
        store.keep_live(vec![], tests_report("l", "l", 1, "s"), Arc::default(), begin(), None).await.unwrap();
        assert_eq!(store.keep_of("default").await.unwrap(), Keep::default());
        assert!(matches!(store.keep_of("nowhere").await, Err(StoreError::Missing)));

        let all = store.expiring("default", Keep { days: Some(0), bytes: None }).await.unwrap();
        assert_eq!((all.runs, all.bytes), (4, 8));
        assert_eq!(names(&all.going), [("a", Reason::Age), ("b", Reason::Age), ("c", Reason::Age)]);
        assert_eq!(names(&all.spared), [("l", Spared::GoesOn)]);

        // One gets a link, one another version, and one stays as it was.
        let options = ShareOptions { expires_in: Some(Duration::from_hours(1)), ..ShareOptions::default() };
        let link = store.create_share_with("a", options).await.unwrap();
        store.append_version(vec![], tests_report("b", "b", 2, "s"), Arc::default()).await.unwrap();
        for ((judged, _), goes) in all.going.iter().zip([false, false, true]) {
            assert_eq!(store.delete_expired(judged).await.unwrap(), goes, "{}", judged.run);
        }
        let again = store.expiring("default", Keep { days: Some(0), bytes: None }).await.unwrap();
        assert_eq!(names(&again.going), [("b", Reason::Age)]);
        assert_eq!(names(&again.spared), [("a", Spared::Shared), ("l", Spared::GoesOn)]);
        store.revoke_share(&link.info.id, None).await.unwrap();
        let freed = store.expiring("default", Keep { days: None, bytes: Some(3) }).await.unwrap();
        assert_eq!(names(&freed.going), [("a", Reason::Size)]);
    }

    fn begin() -> LiveStep {
        LiveStep::Begin { key: "job".into(), started: 1 }
    }

    #[tokio::test]
    async fn limits_bring_their_job_and_take_it_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let keep = Keep { days: Some(30), bytes: Some(1 << 30) };
        store.set_keep("default", keep, "retention", now().0).await.unwrap();
        assert_eq!(store.keep_of("default").await.unwrap(), keep);
        let job = store.take_job("a").await.unwrap().unwrap();
        assert_eq!((job.kind.as_str(), job.subject.as_str()), ("retention", "default"));
        // Other limits: whoever was at work with the old ones ends nothing.
        store.set_keep("default", Keep { days: Some(7), bytes: None }, "retention", now().0).await.unwrap();
        assert!(!store.hold_job(&job).await.unwrap());
        store.set_keep("default", Keep::default(), "retention", now().0).await.unwrap();
        assert_eq!(store.take_job("a").await.unwrap(), None);
        assert!(matches!(store.set_keep("x", keep, "retention", 0).await, Err(StoreError::Missing)));
    }
}
