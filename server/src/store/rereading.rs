//! Files of a run that are read once more: their bytes come back to a file on disk, and what was understood of them is
//! replaced together with a new version of the diagnosis.

use super::{Claim, Job, Marker, Staged, Store, StoreError, objects, runs::insert_diagnosis};
use crate::series::SeriesSet;
use futures_util::TryStreamExt;
use rankscope_model::{Evidence, Report};
use sqlx::Row;
use std::{io::Write, sync::Arc};

/// A file that can be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readable {
    /// Its id.
    pub id: String,
    /// Name as uploaded.
    pub name: String,
    /// Size as uploaded.
    pub bytes: u64,
}

impl Store {
    /// The files of a run whose bytes were kept, in order; without those that the server itself has written.
    pub async fn readable(&self, run: &str) -> Result<Vec<Readable>, StoreError> {
        let rows = sqlx::query(
            "SELECT a.id, a.name, a.bytes FROM artifacts a LEFT JOIN live_artifacts l ON l.artifact_id = a.id \
             WHERE a.run_id = $1 AND a.object_key IS NOT NULL AND l.artifact_id IS NULL ORDER BY a.position",
        )
        .bind(run)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Readable {
                    id: row.try_get("id")?,
                    name: row.try_get("name")?,
                    bytes: super::to_u64(row.try_get("bytes")?, "bytes")?,
                })
            })
            .collect()
    }

    /// The bytes of a file, on disk for as long as what this gives is kept.
    pub async fn staged_again(&self, run: &str, artifact: &str) -> Result<Staged, StoreError> {
        let (_, mut stream) = match self.objects.stream(&objects::artifact_key(run, artifact)).await {
            Err(StoreError::Missing) => {
                self.run(run).await?;
                return Err(StoreError::Lost { run: run.to_owned() });
            }
            other => other?,
        };
        let (mut file, staged) = self.staging_file()?;
        while let Some(block) = stream.try_next().await? {
            file = tokio::task::spawn_blocking(move || file.write_all(&block).map(|()| file))
                .await
                .map_err(StoreError::task)??;
        }
        Ok(staged)
    }

    /// What was understood of each file of a run, in order, with `new` in the place of what was understood before.
    pub async fn evidence_with(&self, run: &str, new: &[(String, Arc<Evidence>)]) -> Result<Evidence, StoreError> {
        let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM artifacts WHERE run_id = $1 ORDER BY position")
            .bind(run)
            .fetch_all(&self.pool)
            .await?;
        let mut evidence = Evidence::default();
        for id in ids {
            let part = match new.iter().find(|(read, _)| *read == id) {
                Some((_, part)) => Evidence::clone(part),
                None => match self.objects.get_json(&objects::evidence_key(run, &id)).await {
                    Err(StoreError::Missing) => return Err(StoreError::Lost { run: run.to_owned() }),
                    other => other?,
                },
            };
            evidence.merge(part);
        }
        Ok(evidence)
    }

    /// Keeps what was understood of files that were read again, the version that counts it in, and the end of `job`. The
    /// caller holds the run's lock, so that `report.version` is the next one. If it fails halfway, what was understood may
    /// be newer than the last version; the job is still there then and does all of it again.
    pub async fn replace_evidence(
        &self,
        job: &Job,
        read: Vec<(String, Arc<Evidence>)>,
        report: Arc<Report>,
        series: Arc<SeriesSet>,
    ) -> Result<(), StoreError> {
        let claim = Claim::Add { run: report.run.id.clone(), artifacts: Vec::new(), version: report.version };
        let marker = self.pending.mark(claim.clone()).await?;
        let kept = async {
            let run = &report.run.id;
            let mut infos = Vec::with_capacity(read.len());
            for (id, evidence) in read {
                infos.push((id.clone(), serde_json::to_string(&evidence.artifacts)?));
                self.objects.put_json(&objects::evidence_key(run, &id), evidence).await?;
            }
            self.put_version(&report, series).await?;
            self.insert_reread(job, &infos, &report, &marker).await
        };
        let kept = kept.await;
        self.settled(kept, &claim, marker).await
    }

    async fn insert_reread(
        &self,
        job: &Job,
        infos: &[(String, String)],
        report: &Report,
        marker: &Marker,
    ) -> Result<(), StoreError> {
        let _turn = self.writer.lock().await;
        let mut transaction = self.database.begin().await?;
        let (run, version) = (&report.run.id, i64::from(report.version));
        let updated = sqlx::query("UPDATE runs SET version = $1 WHERE id = $2")
            .bind(version)
            .bind(run)
            .execute(&mut *transaction)
            .await?;
        if updated.rows_affected() == 0 {
            return Err(StoreError::Missing); // deleted meanwhile
        }
        for (id, infos) in infos {
            sqlx::query("UPDATE artifacts SET infos = $1 WHERE id = $2")
                .bind(infos)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        insert_diagnosis(&mut transaction, report).await?;
        job.end(&mut transaction).await?;
        marker.settle(&mut transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}
