//! Rows and objects of runs that began by themselves: their files are written anew while the job runs, and their newest
//! diagnosis is replaced until it says something else. Knows no node and no sample.

use super::{Claim, DbRow, Marker, Staged, Store, StoreError, new_id, now, objects, plain, runs::verdict_slug};
use crate::series::SeriesSet;
use rankscope_model::{Evidence, Report};
use sqlx::Row;
use std::{collections::HashMap, sync::Arc};

/// A file that the server writes for a run.
#[derive(Debug)]
pub struct LiveFile {
    /// Its name; the same name is the same file.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// The content.
    pub staged: Staged,
    /// What is understood of it.
    pub evidence: Arc<Evidence>,
}

/// What happens to the versions of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveStep {
    /// The run begins: with the key of its job.
    Begin {
        /// The job's key.
        key: String,
        /// When the job began.
        started: i64,
    },
    /// The newest version is replaced.
    Renew,
    /// A version is added.
    Append,
}

/// A run that began by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRunRow {
    /// The run.
    pub run: String,
    /// The key of its job.
    pub key: String,
    /// When the job began.
    pub started: i64,
    /// When it ended.
    pub ended: Option<i64>,
}

/// Something that happened to a run and is to be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveEvent {
    /// The run.
    pub run: String,
    /// `imbalance`, `context_leak`; of a further claim with its number, `imbalance/2`.
    pub kind: String,
    /// What happened.
    pub text: String,
    /// What makes it this claim and no other, as JSON.
    pub claim: String,
}

impl Store {
    /// Keeps files and report of a run that began by itself. For a run that is there the caller holds its lock.
    pub async fn keep_live(
        &self,
        files: Vec<LiveFile>,
        report: Arc<Report>,
        series: Arc<SeriesSet>,
        step: LiveStep,
        ended: Option<i64>,
    ) -> Result<(), StoreError> {
        let run = report.run.id.clone();
        // The rows decide; here so that no object is touched in vain.
        if self.replica().is_some_and(|replica| !*replica.leads().borrow()) {
            return Err(StoreError::TakenOver);
        }
        let known = self.live_files(&run).await?;
        let ids: Vec<(String, bool)> = files
            .iter()
            .map(|file| known.get(&file.name).map_or_else(|| (new_id(), true), |id| (id.clone(), false)))
            .collect();
        let new = ids.iter().filter(|(_, is_new)| *is_new).map(|(id, _)| id.clone()).collect();
        let claim = Claim::Add { run, artifacts: new, version: report.version };
        let marker = self.pending.mark(claim.clone()).await?;
        let kept = match self.write_live(files, ids, &report, series, &step).await {
            Ok(rows) => self.insert_live(&rows, &report, &step, ended, &marker).await,
            Err(error) => Err(error),
        };
        self.settled(kept, &claim, marker).await
    }

    async fn write_live(
        &self,
        files: Vec<LiveFile>,
        ids: Vec<(String, bool)>,
        report: &Arc<Report>,
        series: Arc<SeriesSet>,
        step: &LiveStep,
    ) -> Result<Vec<FileRow>, StoreError> {
        let run = &report.run.id;
        let mut rows = Vec::with_capacity(files.len());
        for (file, (id, is_new)) in files.into_iter().zip(ids) {
            let key = objects::artifact_key(run, &id);
            self.objects.adopt(&key, file.staged).await?;
            let infos = serde_json::to_string(&file.evidence.artifacts)?;
            self.objects.put_json(&objects::evidence_key(run, &id), file.evidence).await?;
            let object_key = key.to_string();
            rows.push(FileRow {
                id,
                is_new,
                name: file.name,
                bytes: file.bytes,
                sha256: file.sha256,
                object_key,
                infos,
            });
        }
        let keys = [objects::series_key(run, report.version), objects::report_key(run, report.version)];
        if *step == LiveStep::Append {
            for key in &keys {
                self.objects.set_aside(key).await?;
            }
        }
        let [series_key, report_key] = keys;
        self.objects.put_json(&series_key, series).await?;
        self.objects.put_json(&report_key, Arc::clone(report)).await?;
        Ok(rows)
    }

    async fn insert_live(
        &self,
        rows: &[FileRow],
        report: &Report,
        step: &LiveStep,
        ended: Option<i64>,
        marker: &Marker,
    ) -> Result<(), StoreError> {
        let _turn = self.writer.lock().await;
        let mut transaction = self.database.begin().await?;
        if let Some(replica) = self.replica() {
            replica.must_lead(&mut transaction).await?;
        }
        let (run, version) = (&report.run, i64::from(report.version));
        if let LiveStep::Begin { key, started } = step {
            sqlx::query("INSERT INTO runs (id, title, created_at, version) VALUES ($1, $2, $3, $4)")
                .bind(&run.id)
                .bind(plain(&run.title))
                .bind(run.created_at.0)
                .bind(version)
                .execute(&mut *transaction)
                .await?;
            sqlx::query("INSERT INTO live_runs (run_id, job_key, started_at) VALUES ($1, $2, $3)")
                .bind(&run.id)
                .bind(plain(key))
                .bind(started)
                .execute(&mut *transaction)
                .await?;
        } else {
            let updated = sqlx::query("UPDATE runs SET version = $1 WHERE id = $2")
                .bind(version)
                .bind(&run.id)
                .execute(&mut *transaction)
                .await?;
            if updated.rows_affected() == 0 {
                return Err(StoreError::Missing); // deleted meanwhile
            }
        }
        for row in rows {
            let bytes = i64::try_from(row.bytes).map_err(|_| StoreError::Range("bytes"))?;
            if row.is_new {
                sqlx::query(
                    "INSERT INTO artifacts (id, run_id, position, name, bytes, sha256, object_key, infos, created_at) \
                     VALUES ($1, $2, (SELECT COALESCE(MAX(position) + 1, 0) FROM artifacts WHERE run_id = $2), $3, $4, \
                     $5, $6, $7, $8)",
                )
                .bind(&row.id)
                .bind(&run.id)
                .bind(plain(&row.name))
                .bind(bytes)
                .bind(&row.sha256)
                .bind(&row.object_key)
                .bind(&row.infos)
                .bind(now().0)
                .execute(&mut *transaction)
                .await?;
                sqlx::query("INSERT INTO live_artifacts (artifact_id, run_id, name) VALUES ($1, $2, $3)")
                    .bind(&row.id)
                    .bind(&run.id)
                    .bind(plain(&row.name))
                    .execute(&mut *transaction)
                    .await?;
            } else {
                sqlx::query("UPDATE artifacts SET bytes = $1, sha256 = $2, infos = $3 WHERE id = $4")
                    .bind(bytes)
                    .bind(&row.sha256)
                    .bind(&row.infos)
                    .bind(&row.id)
                    .execute(&mut *transaction)
                    .await?;
            }
        }
        let diagnosis = if *step == LiveStep::Renew {
            "UPDATE diagnoses SET verdict = $3, summary = $4, diagnosis = $5, engine_version = $6, created_at = $7 \
             WHERE run_id = $1 AND version = $2"
        } else {
            "INSERT INTO diagnoses (run_id, version, verdict, summary, diagnosis, engine_version, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)"
        };
        sqlx::query(diagnosis)
            .bind(&run.id)
            .bind(version)
            .bind(verdict_slug(report.diagnosis.verdict)?)
            .bind(plain(&report.diagnosis.summary))
            .bind(serde_json::to_string(&report.diagnosis)?)
            .bind(env!("CARGO_PKG_VERSION"))
            .bind(report.diagnosed_at.0)
            .execute(&mut *transaction)
            .await?;
        if let Some(ended) = ended {
            sqlx::query("UPDATE live_runs SET ended_at = $1 WHERE run_id = $2")
                .bind(ended)
                .bind(&run.id)
                .execute(&mut *transaction)
                .await?;
        }
        marker.settle(&mut transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Ids of the files that the server writes for a run, by name.
    async fn live_files(&self, run: &str) -> Result<HashMap<String, String>, StoreError> {
        let rows = sqlx::query("SELECT name, artifact_id FROM live_artifacts WHERE run_id = $1")
            .bind(run)
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(|row| Ok((row.try_get("name")?, row.try_get("artifact_id")?))).collect()
    }

    /// The files of a run in order: the name of one that is about to be `written`, or the evidence of another.
    pub async fn live_order(&self, run: &str, written: &[&str]) -> Result<Vec<Result<String, Evidence>>, StoreError> {
        let rows = sqlx::query(
            "SELECT a.id, l.name FROM artifacts a LEFT JOIN live_artifacts l ON l.artifact_id = a.id \
             WHERE a.run_id = $1 ORDER BY a.position",
        )
        .bind(run)
        .fetch_all(&self.pool)
        .await?;
        let mut files = Vec::with_capacity(rows.len());
        for row in rows {
            let name: Option<String> = row.try_get("name")?;
            files.push(if let Some(name) = name.filter(|name| written.contains(&name.as_str())) {
                Ok(name)
            } else {
                let id: String = row.try_get("id")?;
                Err(self.objects.get_json(&objects::evidence_key(run, &id)).await?)
            });
        }
        Ok(files)
    }

    /// The run's life, if it began by itself.
    pub async fn live_run(&self, run: &str) -> Result<Option<LiveRunRow>, StoreError> {
        let row = sqlx::query("SELECT run_id, job_key, started_at, ended_at FROM live_runs WHERE run_id = $1")
            .bind(run)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(live_run).transpose()
    }

    /// Runs whose jobs have not ended, as far as is known.
    pub async fn open_live_runs(&self) -> Result<Vec<LiveRunRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT run_id, job_key, started_at, ended_at FROM live_runs WHERE ended_at IS NULL ORDER BY started_at",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(live_run).collect()
    }

    /// The job of a run has ended, without a new diagnosis.
    pub async fn end_live_run(&self, run: &str, ended: i64) -> Result<(), StoreError> {
        sqlx::query("UPDATE live_runs SET ended_at = $1 WHERE run_id = $2")
            .bind(ended)
            .bind(run)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Remembers an event; `false` if it was remembered before.
    pub async fn remember_event(&self, event: &LiveEvent) -> Result<bool, StoreError> {
        let inserted = sqlx::query(
            "INSERT INTO live_events (run_id, kind, text, created_at, claim) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (run_id, kind) DO NOTHING",
        )
        .bind(&event.run)
        .bind(&event.kind)
        .bind(plain(&event.text))
        .bind(now().0)
        .bind(plain(&event.claim))
        .execute(&self.pool)
        .await?;
        Ok(inserted.rows_affected() > 0)
    }

    /// Events that were not sent yet, oldest first, and none from before `since`.
    pub async fn unsent_events(&self, since: i64) -> Result<Vec<LiveEvent>, StoreError> {
        let rows = sqlx::query(
            "SELECT run_id, kind, text, claim FROM live_events WHERE sent_at IS NULL AND created_at >= $1 \
             ORDER BY created_at",
        )
        .bind(since)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(live_event).collect()
    }

    /// Everything that was told of a run, oldest first.
    pub async fn told_events(&self, run: &str) -> Result<Vec<LiveEvent>, StoreError> {
        let rows =
            sqlx::query("SELECT run_id, kind, text, claim FROM live_events WHERE run_id = $1 ORDER BY created_at")
                .bind(run)
                .fetch_all(&self.pool)
                .await?;
        rows.iter().map(live_event).collect()
    }

    /// An event was sent.
    pub async fn event_sent(&self, event: &LiveEvent) -> Result<(), StoreError> {
        sqlx::query("UPDATE live_events SET sent_at = $1 WHERE run_id = $2 AND kind = $3")
            .bind(now().0)
            .bind(&event.run)
            .bind(&event.kind)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

struct FileRow {
    id: String,
    is_new: bool,
    name: String,
    bytes: u64,
    sha256: String,
    object_key: String,
    infos: String,
}

fn live_event(row: &DbRow) -> Result<LiveEvent, StoreError> {
    Ok(LiveEvent {
        run: row.try_get("run_id")?,
        kind: row.try_get("kind")?,
        text: row.try_get("text")?,
        claim: row.try_get("claim")?,
    })
}

fn live_run(row: &DbRow) -> Result<LiveRunRow, StoreError> {
    Ok(LiveRunRow {
        run: row.try_get("run_id")?,
        key: row.try_get("job_key")?,
        started: row.try_get("started_at")?,
        ended: row.try_get("ended_at")?,
    })
}
