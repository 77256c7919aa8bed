//! Jobs: work that nobody waits for, as rows. Whoever has time takes the oldest that is due; it is held by a lease that is
//! renewed while the work goes on, so what a worker leaves that is no more is taken by another. A job ends in the same
//! transaction as what it has changed, and only by its holder: a worker that comes back after its lease was given to another
//! changes nothing. Knows no kind of work.

use super::{DbRow, Store, StoreError, database::Database, new_id, now};
use sqlx::{AnyConnection, Row};
use std::time::Duration;

/// What others believe of a worker that says nothing.
pub const LEASE: Duration = Duration::from_secs(20);
/// A job that failed so often is given up.
pub const MOST_ATTEMPTS: i64 = 4;
/// Longest reason that is kept, in characters.
const MAX_REASON: usize = 400;

/// A job that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Which row.
    pub id: String,
    /// What is to be done.
    pub kind: String,
    /// About what.
    pub subject: String,
    /// The run that it belongs to, if it is about one.
    pub run: Option<String>,
    /// How often it was begun, this time included.
    pub attempts: i64,
    /// Who holds it.
    holder: String,
}

/// What a job is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of<'a> {
    /// A run, or something that belongs to it.
    Run(&'a str),
    /// A project.
    Project(&'a str),
    /// Neither.
    Nothing,
}

/// How many jobs there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobCounts {
    /// Due, and nobody works on them.
    pub waiting: u64,
    /// Somebody works on them.
    pub held: u64,
    /// Given up.
    pub given_up: u64,
}

/// Adds a job, within the change that makes it necessary. One that is there already and was not given up stays as it is.
pub(crate) async fn add(
    to: &mut AnyConnection,
    kind: &str,
    subject: &str,
    of: Of<'_>,
    due_at: i64,
) -> Result<(), StoreError> {
    let (run, project) = match of {
        Of::Run(run) => (Some(run), None),
        Of::Project(project) => (None, Some(project)),
        Of::Nothing => (None, None),
    };
    sqlx::query(
        "INSERT INTO jobs (id, kind, subject, run_id, project_id, created_at, due_at, attempts) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, 0) ON CONFLICT (kind, subject) DO UPDATE SET attempts = 0, \
         due_at = excluded.due_at, given_up_at = NULL, error = NULL, holder = NULL, held_until = NULL \
         WHERE jobs.given_up_at IS NOT NULL",
    )
    .bind(new_id())
    .bind(kind)
    .bind(subject)
    .bind(run)
    .bind(project)
    .bind(now().0)
    .bind(due_at)
    .execute(to)
    .await?;
    Ok(())
}

/// Removes a job that has become pointless.
pub(crate) async fn remove(from: &mut AnyConnection, kind: &str, subject: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM jobs WHERE kind = $1 AND subject = $2").bind(kind).bind(subject).execute(from).await?;
    Ok(())
}

impl Job {
    /// Ends it, within the change that it has made. Fails for who no longer holds it.
    pub(crate) async fn end(&self, transaction: &mut AnyConnection) -> Result<(), StoreError> {
        let ended = sqlx::query("DELETE FROM jobs WHERE id = $1 AND holder = $2")
            .bind(&self.id)
            .bind(&self.holder)
            .execute(transaction)
            .await?;
        if ended.rows_affected() == 0 { Err(StoreError::TakenOver) } else { Ok(()) }
    }
}

impl Store {
    /// The job that is due longest, for `holder` alone until its lease ends. Of one that has ended its workers too often
    /// nothing is tried any more.
    pub async fn take_job(&self, holder: &str) -> Result<Option<Job>, StoreError> {
        take(&self.database, holder, now().0, LEASE).await
    }

    /// The work goes on. `false`: another has it now.
    pub async fn hold_job(&self, job: &Job) -> Result<bool, StoreError> {
        let held = sqlx::query("UPDATE jobs SET held_until = $1 WHERE id = $2 AND holder = $3")
            .bind(after(now().0, LEASE))
            .bind(&job.id)
            .bind(&job.holder)
            .execute(&self.pool)
            .await?;
        Ok(held.rows_affected() > 0)
    }

    /// The work could not be done. It is tried again later, or given up after the last attempt; `true` then.
    pub async fn job_failed(&self, job: &Job, reason: &str) -> Result<bool, StoreError> {
        let is_last = job.attempts >= MOST_ATTEMPTS;
        let reason: String = super::plain(reason).chars().take(MAX_REASON).collect();
        // 1, 4 and 9 minutes.
        let pause = Duration::from_mins(u64::try_from(job.attempts * job.attempts).unwrap_or(1));
        sqlx::query(
            "UPDATE jobs SET holder = NULL, held_until = NULL, error = $1, due_at = $2, given_up_at = $3 \
             WHERE id = $4 AND holder = $5",
        )
        .bind(reason)
        .bind(after(now().0, pause))
        .bind(is_last.then(|| now().0))
        .bind(&job.id)
        .bind(&job.holder)
        .execute(&self.pool)
        .await?;
        Ok(is_last)
    }

    /// The worker ends before the work did: another may begin at once, and this attempt does not count.
    pub async fn leave_job(&self, job: &Job) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE jobs SET holder = NULL, held_until = NULL, attempts = attempts - 1 WHERE id = $1 AND holder = $2",
        )
        .bind(&job.id)
        .bind(&job.holder)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The work is done for now, and due again then.
    pub async fn repeat_job(&self, job: &Job, due_at: i64) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE jobs SET holder = NULL, held_until = NULL, error = NULL, attempts = 0, due_at = $1 \
             WHERE id = $2 AND holder = $3",
        )
        .bind(due_at)
        .bind(&job.id)
        .bind(&job.holder)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Ends a job that has changed nothing else.
    pub async fn job_done(&self, job: &Job) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        job.end(&mut transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Adds a job about a run.
    pub async fn add_run_job(&self, kind: &str, subject: &str, run: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        add(&mut transaction, kind, subject, Of::Run(run), now().0).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Jobs about a run that are still to be done.
    pub async fn open_jobs_of(&self, run: &str) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM jobs WHERE run_id = $1 AND given_up_at IS NULL")
            .bind(run)
            .fetch_one(&self.pool)
            .await?;
        super::to_u64(count, "jobs")
    }

    /// When the job of a kind about a subject is due, if there is one.
    pub async fn job_due(&self, kind: &str, subject: &str) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT due_at FROM jobs WHERE kind = $1 AND subject = $2 AND given_up_at IS NULL";
        Ok(sqlx::query_scalar(sql).bind(kind).bind(subject).fetch_optional(&self.pool).await?)
    }

    /// How many jobs there are.
    pub async fn job_counts(&self) -> Result<JobCounts, StoreError> {
        let row = sqlx::query(
            "SELECT COUNT(CASE WHEN given_up_at IS NULL AND due_at <= $1 AND (held_until IS NULL OR held_until < $1) \
             THEN 1 END) AS waiting, COUNT(CASE WHEN given_up_at IS NULL AND held_until >= $1 THEN 1 END) AS held, \
             COUNT(given_up_at) AS given_up FROM jobs",
        )
        .bind(now().0)
        .fetch_one(&self.pool)
        .await?;
        let count = |name: &'static str| super::to_u64(row.try_get(name)?, name);
        Ok(JobCounts { waiting: count("waiting")?, held: count("held")?, given_up: count("given_up")? })
    }
}

async fn take(database: &Database, holder: &str, at: i64, lease: Duration) -> Result<Option<Job>, StoreError> {
    // Most looks find nothing; these must not keep writers waiting.
    let due = "SELECT id, kind, subject, run_id, attempts FROM jobs WHERE given_up_at IS NULL AND due_at <= $1 \
        AND (held_until IS NULL OR held_until < $1) ORDER BY due_at, id LIMIT 1";
    if sqlx::query(due).bind(at).fetch_optional(database.pool()).await?.is_none() {
        return Ok(None);
    }
    loop {
        let mut transaction = database.begin().await?;
        let Some(row) = sqlx::query(due).bind(at).fetch_optional(&mut *transaction).await? else { return Ok(None) };
        let mut job = job(&row, holder)?;
        if job.attempts >= MOST_ATTEMPTS {
            // Nobody said why the last attempt failed, so its worker ended with it.
            let why = "its worker ended while it was at it";
            sqlx::query("UPDATE jobs SET given_up_at = $1, error = $2, holder = NULL, held_until = NULL WHERE id = $3")
                .bind(at)
                .bind(why)
                .bind(&job.id)
                .execute(&mut *transaction)
                .await?;
            transaction.commit().await?;
            tracing::error!(kind = job.kind, subject = job.subject, "a job is given up: {why}");
            continue;
        }
        job.attempts += 1;
        sqlx::query("UPDATE jobs SET holder = $1, held_until = $2, attempts = $3 WHERE id = $4")
            .bind(holder)
            .bind(after(at, lease))
            .bind(job.attempts)
            .bind(&job.id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        return Ok(Some(job));
    }
}

fn job(row: &DbRow, holder: &str) -> Result<Job, StoreError> {
    Ok(Job {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        subject: row.try_get("subject")?,
        run: row.try_get("run_id")?,
        attempts: row.try_get("attempts")?,
        holder: holder.to_owned(),
    })
}

/// A moment later, in microseconds.
fn after(moment: i64, by: Duration) -> i64 {
    moment.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests_report;
    use std::sync::Arc;

    async fn with_run() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store.create_run(vec![], tests_report("r", "t", 1, "s"), Arc::default()).await.unwrap();
        (folder, store)
    }

    #[tokio::test]
    async fn a_job_is_one_workers_alone_and_another_takes_it_when_that_one_is_silent() {
        let (_folder, store) = with_run().await;
        assert_eq!(store.take_job("a").await.unwrap(), None);
        for _ in 0..2 {
            store.add_run_job("read", "r", "r").await.unwrap();
        }
        assert_eq!(store.job_counts().await.unwrap(), JobCounts { waiting: 1, held: 0, given_up: 0 });
        let first = store.take_job("a").await.unwrap().unwrap();
        assert_eq!((first.kind.as_str(), first.run.as_deref(), first.attempts), ("read", Some("r"), 1));
        assert_eq!(store.take_job("b").await.unwrap(), None);
        assert_eq!(store.job_counts().await.unwrap(), JobCounts { waiting: 0, held: 1, given_up: 0 });
        assert!(store.hold_job(&first).await.unwrap());

        let later = now().0 + 2 * i64::try_from(LEASE.as_micros()).unwrap();
        let second = take(&store.database, "b", later, LEASE).await.unwrap().unwrap();
        assert_eq!(second.attempts, 2);
        assert!(!store.hold_job(&first).await.unwrap());
        assert!(matches!(store.job_done(&first).await, Err(StoreError::TakenOver)));
        // What it says of the job now is not heard.
        store.job_failed(&first, "too late").await.unwrap();
        store.leave_job(&first).await.unwrap();
        assert!(store.hold_job(&second).await.unwrap());
        store.job_done(&second).await.unwrap();
        assert_eq!(store.job_counts().await.unwrap(), JobCounts::default());
    }

    #[tokio::test]
    async fn two_workers_never_get_the_same_job() {
        let (_folder, store) = with_run().await;
        for n in 0..12 {
            store.add_run_job("read", &n.to_string(), "r").await.unwrap();
        }
        let take = async |holder: &str| {
            let mut taken = Vec::new();
            while let Some(job) = store.take_job(holder).await.unwrap() {
                taken.push(job.subject);
                tokio::task::yield_now().await;
            }
            taken
        };
        let (mut all, more) = tokio::join!(take("a"), take("b"));
        all.extend(more);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12);
    }

    #[tokio::test]
    async fn what_fails_is_tried_again_later_and_given_up_in_the_end() {
        let (_folder, store) = with_run().await;
        store.add_run_job("read", "r", "r").await.unwrap();
        let mut at = now().0;
        for attempt in 1..=MOST_ATTEMPTS {
            let job = take(&store.database, "a", at, LEASE).await.unwrap().unwrap();
            assert_eq!(job.attempts, attempt);
            assert_eq!(store.job_failed(&job, "no\0t yet").await.unwrap(), attempt == MOST_ATTEMPTS);
            assert_eq!(store.take_job("a").await.unwrap(), None, "there is a pause");
            at += i64::try_from(Duration::from_mins(20).as_micros()).unwrap();
        }
        assert_eq!(take(&store.database, "a", at, LEASE).await.unwrap(), None);
        assert_eq!(store.job_counts().await.unwrap().given_up, 1);
        assert_eq!(store.open_jobs_of("r").await.unwrap(), 0);
        // Whoever asks for it once more gets it.
        store.add_run_job("read", "r", "r").await.unwrap();
        assert_eq!(store.take_job("a").await.unwrap().unwrap().attempts, 1);
    }

    #[tokio::test]
    async fn one_that_ends_its_workers_is_given_up_too_and_one_that_was_left_is_not_counted() {
        let (_folder, store) = with_run().await;
        store.add_run_job("read", "r", "r").await.unwrap();
        let job = store.take_job("a").await.unwrap().unwrap();
        store.leave_job(&job).await.unwrap();
        let mut at = now().0;
        for attempt in 1..=MOST_ATTEMPTS {
            assert_eq!(take(&store.database, "a", at, LEASE).await.unwrap().unwrap().attempts, attempt);
            at += 2 * i64::try_from(LEASE.as_micros()).unwrap();
        }
        assert_eq!(take(&store.database, "a", at, LEASE).await.unwrap(), None);
        assert_eq!(store.job_counts().await.unwrap().given_up, 1);
    }

    #[tokio::test]
    async fn jobs_go_with_their_run_and_come_again_when_they_repeat() {
        let (_folder, store) = with_run().await;
        store.add_run_job("read", "r", "r").await.unwrap();
        let job = store.take_job("a").await.unwrap().unwrap();
        store.repeat_job(&job, now().0 + 1_000_000_000).await.unwrap();
        assert_eq!(store.take_job("a").await.unwrap(), None);
        assert_eq!(store.open_jobs_of("r").await.unwrap(), 1);
        let again = take(&store.database, "a", now().0 + 2_000_000_000, LEASE).await.unwrap().unwrap();
        assert_eq!(again.attempts, 1);
        store.delete_run("r").await.unwrap();
        assert!(matches!(store.job_done(&again).await, Err(StoreError::TakenOver)));
        assert!(matches!(store.add_run_job("read", "r", "r").await, Err(StoreError::Missing)));
    }
}
