//! Runs with their files and their diagnoses. Every version of a diagnosis stays.

use super::{
    Claim, Marker, RunLock, Sees, Staged, Store, StoreError, database::Sql, jobs, now, objects, plain, to_u32, to_u64,
};
use crate::{accounts::DEFAULT_PROJECT, series::SeriesSet};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use rankscope_model::{ArtifactInfo, ArtifactKind, Evidence, Report, RunInfo, RunSummary, UnixMicros, Verdict};
use sqlx::{AnyConnection, Row};
use std::{
    collections::HashSet,
    io,
    sync::{Arc, MutexGuard, PoisonError},
};

/// Words of a search that are looked at; the rest is ignored.
const MAX_QUERY_WORDS: usize = 8;

/// Changes that are remembered for another try at clearing up; those beyond it wait for the next start.
const MAX_UNFINISHED: usize = 1000;

/// A file that is about to be kept.
#[derive(Debug)]
pub struct NewArtifact {
    /// Fresh id.
    pub id: String,
    /// Name as uploaded.
    pub name: String,
    /// Size as uploaded.
    pub bytes: u64,
    /// SHA-256 of the bytes, hexadecimal.
    pub sha256: String,
    /// The bytes; `None` when the file was refused and only its name and the reason are kept.
    pub staged: Option<Staged>,
    /// What was understood of it.
    pub evidence: Arc<Evidence>,
    /// The kind of job that is still to read it.
    pub read_later: Option<&'static str>,
}

/// The row of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The run.
    pub run: RunInfo,
    /// Its newest version.
    pub version: u32,
}

/// The row of an uploaded file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactFile {
    /// 0-based position in the run.
    pub position: u32,
    /// Name as uploaded.
    pub name: String,
    /// Size as uploaded.
    pub bytes: u64,
    /// SHA-256 of the bytes, hexadecimal.
    pub sha256: String,
    /// Whether the bytes were kept.
    pub kept: bool,
    /// What was understood of it; several for an archive.
    pub infos: Vec<ArtifactInfo>,
}

impl Store {
    /// Keeps a new run of the default project with its first version. When this returns, all of it is on disk.
    pub async fn create_run(
        &self,
        artifacts: Vec<NewArtifact>,
        report: Arc<Report>,
        series: Arc<SeriesSet>,
    ) -> Result<(), StoreError> {
        self.create_run_in(DEFAULT_PROJECT, artifacts, report, series).await
    }

    /// The same in a project, which must exist.
    pub async fn create_run_in(
        &self,
        project: &str,
        artifacts: Vec<NewArtifact>,
        report: Arc<Report>,
        series: Arc<SeriesSet>,
    ) -> Result<(), StoreError> {
        self.keep(artifacts, &report, series, Some(project)).await
    }

    /// Keeps more files of a run and the version that counts them in. The caller holds the run's lock, so that
    /// `report.version` is the next one.
    pub async fn append_version(
        &self,
        artifacts: Vec<NewArtifact>,
        report: Arc<Report>,
        series: Arc<SeriesSet>,
    ) -> Result<(), StoreError> {
        self.keep(artifacts, &report, series, None).await
    }

    /// Objects, then rows. What of it was written goes again if the rest fails.
    async fn keep(
        &self,
        artifacts: Vec<NewArtifact>,
        report: &Arc<Report>,
        series: Arc<SeriesSet>,
        new_in: Option<&str>,
    ) -> Result<(), StoreError> {
        let claim = Claim::Add {
            run: report.run.id.clone(),
            artifacts: artifacts.iter().map(|artifact| artifact.id.clone()).collect(),
            version: report.version,
        };
        let marker = self.pending.mark(claim.clone()).await?;
        let kept = match self.keep_objects(artifacts, report, series).await {
            Ok(rows) => self.insert(&rows, report, new_in, &marker).await,
            Err(error) => Err(error),
        };
        self.settled(kept, &claim, marker).await
    }

    /// Ends a change as it went: its marker goes, or what it has written goes with it.
    pub(super) async fn settled(
        &self,
        kept: Result<(), StoreError>,
        claim: &Claim,
        marker: Marker,
    ) -> Result<(), StoreError> {
        match kept {
            Ok(()) => {
                // The rows are there, so a marker that stays can do no harm.
                if let Err(error) = marker.remove().await {
                    tracing::warn!(%error, ?claim, "the marker of a change that was kept stays until the next start");
                }
            }
            // A commit that failed may still have happened; the rows tell, if they can be read.
            Err(_) => self.undo(claim, Some(marker)).await,
        }
        kept
    }

    /// Removes the objects of a failed addition or of a deleted run. Where that fails too, it is tried again later, and its
    /// marker stays for the next start.
    pub(super) async fn undo(&self, claim: &Claim, marker: Option<Marker>) {
        if let Err(error) = self.clear(claim).await {
            tracing::warn!(%error, ?claim, "objects that no row knows stay until they can be removed");
            self.postpone(claim.clone(), marker);
        } else if let Some(marker) = marker
            && let Err(error) = marker.remove().await
        {
            tracing::warn!(%error, ?claim, "a marker stays until the next start");
        }
    }

    /// Remembers for another try what could not be cleared up.
    pub(super) fn postpone(&self, claim: Claim, marker: Option<Marker>) {
        let mut unfinished = self.unfinished();
        if unfinished.len() < MAX_UNFINISHED {
            unfinished.push((claim, marker));
        }
    }

    /// Removes what could not be removed when it should have been, because the bucket or the disk was away.
    pub async fn clear_unfinished(&self) {
        if self.unfinished().is_empty() || self.check().await.is_err() {
            return;
        }
        let unfinished = std::mem::take(&mut *self.unfinished());
        for (claim, marker) in unfinished {
            // Whoever adds to the run now counts the same version again.
            match self.lock_run(claim.run()).await {
                Ok(_lock) => self.undo(&claim, marker).await,
                Err(_) => self.postpone(claim, marker),
            }
        }
    }

    fn unfinished(&self) -> MutexGuard<'_, Vec<(Claim, Option<Marker>)>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the objects of a change of which no row knows.
    pub(super) async fn clear(&self, claim: &Claim) -> Result<(), StoreError> {
        match claim {
            Claim::Delete { run } => match self.run(run).await {
                Err(StoreError::Missing) => self.objects.delete_run(run).await,
                other => other.map(drop),
            },
            Claim::Add { run, artifacts, version } => {
                let mut keys = Vec::new();
                for id in artifacts {
                    let known: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM artifacts WHERE id = $1")
                        .bind(id)
                        .fetch_one(&self.pool)
                        .await?;
                    if known == 0 {
                        keys.extend([objects::artifact_key(run, id), objects::evidence_key(run, id)]);
                    }
                }
                let known: i64 =
                    sqlx::query_scalar("SELECT COUNT(*) FROM diagnoses WHERE run_id = $1 AND version = $2")
                        .bind(run)
                        .bind(i64::from(*version))
                        .fetch_one(&self.pool)
                        .await?;
                if known == 0 {
                    keys.extend([objects::report_key(run, *version), objects::series_key(run, *version)]);
                }
                self.objects.delete(run, keys).await
            }
        }
    }

    async fn insert(
        &self,
        rows: &[ArtifactRow],
        report: &Report,
        new_in: Option<&str>,
        marker: &Marker,
    ) -> Result<(), StoreError> {
        // Writers take turns here, before they take a connection: those who wait must not keep readers out.
        let _turn = self.writer.lock().await;
        let mut transaction = self.database.begin().await?;
        let run = &report.run;
        let mut first_position = 0;
        if let Some(project) = new_in {
            let inserted = sqlx::query(
                "INSERT INTO runs (id, title, created_at, version, project_id) \
                 SELECT $1, $2, $3, $4, p.id FROM projects p WHERE p.id = $5",
            )
            .bind(&run.id)
            .bind(plain(&run.title))
            .bind(run.created_at.0)
            .bind(i64::from(report.version))
            .bind(project)
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Err(StoreError::Missing); // the project was removed meanwhile
            }
        } else {
            first_position =
                sqlx::query_scalar("SELECT COALESCE(MAX(position) + 1, 0) FROM artifacts WHERE run_id = $1")
                    .bind(&run.id)
                    .fetch_one(&mut *transaction)
                    .await?;
            let updated = sqlx::query("UPDATE runs SET version = $1 WHERE id = $2")
                .bind(i64::from(report.version))
                .bind(&run.id)
                .execute(&mut *transaction)
                .await?;
            if updated.rows_affected() == 0 {
                return Err(StoreError::Missing); // deleted meanwhile
            }
        }
        insert_version(&mut transaction, rows, first_position, report).await?;
        marker.settle(&mut transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn keep_objects(
        &self,
        artifacts: Vec<NewArtifact>,
        report: &Arc<Report>,
        series: Arc<SeriesSet>,
    ) -> Result<Vec<ArtifactRow>, StoreError> {
        let run = &report.run.id;
        let mut rows = Vec::with_capacity(artifacts.len());
        for artifact in artifacts {
            let object_key = match artifact.staged {
                Some(staged) => {
                    let key = objects::artifact_key(run, &artifact.id);
                    self.objects.adopt(&key, staged).await?;
                    Some(key.to_string())
                }
                None => None,
            };
            let infos = serde_json::to_string(&artifact.evidence.artifacts)?;
            self.objects.put_json(&objects::evidence_key(run, &artifact.id), artifact.evidence).await?;
            rows.push(ArtifactRow {
                id: artifact.id,
                name: artifact.name,
                bytes: artifact.bytes,
                sha256: artifact.sha256,
                object_key,
                infos,
                read_later: artifact.read_later,
            });
        }
        self.put_version(report, series).await?;
        Ok(rows)
    }

    /// Report and columns of a version. One that is there already comes from a later time than the database.
    pub(super) async fn put_version(&self, report: &Arc<Report>, series: Arc<SeriesSet>) -> Result<(), StoreError> {
        let keys =
            [objects::series_key(&report.run.id, report.version), objects::report_key(&report.run.id, report.version)];
        // An older database counts a version again that a newer one had already written.
        for key in &keys {
            if self.objects.set_aside(key).await? {
                tracing::warn!(%key, "objects of a later version than the database knows were in the way; they were kept beside it");
            }
        }
        let [series_key, report_key] = keys;
        self.objects.put_json(&series_key, series).await?;
        self.objects.put_json(&report_key, Arc::clone(report)).await
    }

    /// The row of a run.
    pub async fn run(&self, run: &str) -> Result<RunRow, StoreError> {
        let row = sqlx::query("SELECT id, title, created_at, version FROM runs WHERE id = $1")
            .bind(run)
            .fetch_one(&self.pool)
            .await?;
        Ok(RunRow {
            run: RunInfo {
                id: row.try_get("id")?,
                title: row.try_get("title")?,
                created_at: UnixMicros(row.try_get("created_at")?),
            },
            version: to_u32(row.try_get("version")?, "version")?,
        })
    }

    /// A version of a run's report, or the newest. The title is today's: renaming is no new diagnosis.
    pub async fn report(&self, run: &str, version: Option<u32>) -> Result<Report, StoreError> {
        let row = self.run(run).await?;
        let version = version.unwrap_or(row.version);
        if version == 0 || version > row.version {
            return Err(StoreError::Missing);
        }
        let stored = self.objects.get_json(&objects::report_key(&row.run.id, version)).await;
        let mut report: Report = self.known(run, stored).await?;
        report.run = row.run;
        Ok(report)
    }

    /// The full columns behind a version's charts.
    pub async fn series(&self, run: &str, version: u32) -> Result<SeriesSet, StoreError> {
        let stored = self.objects.get_json(&objects::series_key(run, version)).await;
        self.known(run, stored).await
    }

    /// An object that a row knows of: if it is not there, it was lost, unless its run was deleted meanwhile.
    async fn known<T>(&self, run: &str, stored: Result<T, StoreError>) -> Result<T, StoreError> {
        match stored {
            Err(StoreError::Missing) => {
                self.run(run).await?;
                Err(StoreError::Lost { run: run.to_owned() })
            }
            other => other,
        }
    }

    /// All evidence of a run, in the order of its files.
    pub async fn evidence(&self, run: &str) -> Result<Evidence, StoreError> {
        let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM artifacts WHERE run_id = $1 ORDER BY position")
            .bind(run)
            .fetch_all(&self.pool)
            .await?;
        let mut evidence = Evidence::default();
        for id in ids {
            let stored = self.objects.get_json(&objects::evidence_key(run, &id)).await;
            evidence.merge(self.known(run, stored).await?);
        }
        Ok(evidence)
    }

    /// What was read of the files of one kind, in the order of the files; others are not unpacked.
    pub async fn evidence_of(&self, run: &str, kind: ArtifactKind) -> Result<Evidence, StoreError> {
        self.run(run).await?;
        let rows = sqlx::query("SELECT id, infos FROM artifacts WHERE run_id = $1 ORDER BY position")
            .bind(run)
            .fetch_all(&self.pool)
            .await?;
        let mut evidence = Evidence::default();
        for row in &rows {
            let infos: Vec<ArtifactInfo> = serde_json::from_str(row.try_get("infos")?)?;
            if infos.iter().any(|info| info.kind == kind) {
                let id: String = row.try_get("id")?;
                let stored = self.objects.get_json(&objects::evidence_key(run, &id)).await;
                evidence.merge(self.known(run, stored).await?);
            }
        }
        Ok(evidence)
    }

    /// The files of a run, in order.
    pub async fn artifacts(&self, run: &str) -> Result<Vec<ArtifactFile>, StoreError> {
        let rows = sqlx::query(
            "SELECT position, name, bytes, sha256, object_key, infos FROM artifacts WHERE run_id = $1 ORDER BY position",
        )
        .bind(run)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(ArtifactFile {
                    position: to_u32(row.try_get("position")?, "position")?,
                    name: row.try_get("name")?,
                    bytes: to_u64(row.try_get("bytes")?, "bytes")?,
                    sha256: row.try_get("sha256")?,
                    kept: row.try_get::<Option<String>, _>("object_key")?.is_some(),
                    infos: serde_json::from_str(row.try_get("infos")?)?,
                })
            })
            .collect()
    }

    /// Name, size and bytes of one file as it was uploaded.
    pub async fn artifact_bytes(
        &self,
        run: &str,
        position: u32,
    ) -> Result<(String, u64, BoxStream<'static, io::Result<Bytes>>), StoreError> {
        let row = sqlx::query("SELECT id, name, object_key FROM artifacts WHERE run_id = $1 AND position = $2")
            .bind(run)
            .bind(i64::from(position))
            .fetch_one(&self.pool)
            .await?;
        if row.try_get::<Option<String>, _>("object_key")?.is_none() {
            return Err(StoreError::Gone);
        }
        let id: String = row.try_get("id")?;
        let stored = self.objects.stream(&objects::artifact_key(run, &id)).await;
        let (size, stream) = self.known(run, stored).await?;
        Ok((row.try_get("name")?, size, stream))
    }

    /// Newest runs first. With a query: those that have each of its words in title or summary.
    pub async fn recent_runs(&self, query: Option<&str>, limit: u32) -> Result<Vec<RunSummary>, StoreError> {
        self.runs_seen(&Sees::All, query, limit).await
    }

    /// The same of those runs that somebody sees.
    pub async fn runs_seen(&self, sees: &Sees, query: Option<&str>, limit: u32) -> Result<Vec<RunSummary>, StoreError> {
        let mut sql = Sql::new(
            "SELECT r.id, r.title, r.created_at, d.verdict, d.summary, \
             (SELECT COUNT(*) FROM artifacts a WHERE a.run_id = r.id) AS artifacts \
             FROM runs r JOIN diagnoses d ON d.run_id = r.id AND d.version = r.version WHERE 1 = 1",
        );
        sees.narrow(&mut sql);
        for word in words(query.unwrap_or_default()).take(MAX_QUERY_WORDS) {
            let pattern = like_pattern(word);
            sql.push(" AND (LOWER(r.title) LIKE ").bind(&pattern).push(" ESCAPE '\\'");
            sql.push(" OR LOWER(d.summary) LIKE ").bind(&pattern).push(" ESCAPE '\\')");
        }
        sql.push(" ORDER BY r.created_at DESC, r.id DESC LIMIT ").bind_number(i64::from(limit));
        let rows = sql.fetch_all(&self.pool).await?;
        rows.iter()
            .map(|row| {
                Ok(RunSummary {
                    run: RunInfo {
                        id: row.try_get("id")?,
                        title: row.try_get("title")?,
                        created_at: UnixMicros(row.try_get("created_at")?),
                    },
                    verdict: verdict_from_slug(row.try_get("verdict")?)?,
                    summary: row.try_get("summary")?,
                    artifacts: to_u32(row.try_get("artifacts")?, "artifacts")?,
                })
            })
            .collect()
    }

    /// Gives a run another title.
    pub async fn rename_run(&self, run: &str, title: &str) -> Result<(), StoreError> {
        let updated = sqlx::query("UPDATE runs SET title = $1 WHERE id = $2")
            .bind(plain(title))
            .bind(run)
            .execute(&self.pool)
            .await?;
        if updated.rows_affected() == 0 { Err(StoreError::Missing) } else { Ok(()) }
    }

    /// Deletes a run with its files, diagnoses and shares.
    pub async fn delete_run(&self, run: &str) -> Result<(), StoreError> {
        let lock = self.lock_run(run).await?;
        self.delete_locked_run(run, lock).await
    }

    /// The same for whoever holds the run's lock.
    pub(super) async fn delete_locked_run(&self, run: &str, _lock: RunLock) -> Result<(), StoreError> {
        let claim = Claim::Delete { run: run.to_owned() };
        let marker = match self.pending.mark(claim.clone()).await {
            Ok(marker) => Some(marker),
            // A full disk must not keep its owner from making room; the row may still fit.
            Err(error) if error.is_full() => None,
            Err(error) => return Err(error),
        };
        let deleted = sqlx::query("DELETE FROM runs WHERE id = $1").bind(run).execute(&self.pool).await;
        let gone = match deleted {
            Ok(deleted) if deleted.rows_affected() > 0 => Ok(()),
            Ok(_) => Err(StoreError::Missing),
            Err(error) => Err(error.into()),
        };
        if matches!(gone, Err(StoreError::Missing)) {
            // Objects of a run that this database does not know are left alone.
            if let Some(marker) = marker {
                marker.remove().await?;
            }
            return gone;
        }
        // Without its row nothing of the run can be read any more; what stays behind here goes at the next start.
        self.undo(&claim, marker).await;
        gone
    }

    pub(super) async fn run_ids(&self) -> Result<HashSet<String>, StoreError> {
        let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM runs").fetch_all(&self.pool).await?;
        Ok(ids.into_iter().collect())
    }
}

struct ArtifactRow {
    id: String,
    name: String,
    bytes: u64,
    sha256: String,
    object_key: Option<String>,
    infos: String,
    read_later: Option<&'static str>,
}

async fn insert_version(
    connection: &mut AnyConnection,
    artifacts: &[ArtifactRow],
    first_position: i64,
    report: &Report,
) -> Result<(), StoreError> {
    for (position, artifact) in (first_position..).zip(artifacts) {
        sqlx::query(
            "INSERT INTO artifacts (id, run_id, position, name, bytes, sha256, object_key, infos, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&artifact.id)
        .bind(&report.run.id)
        .bind(position)
        .bind(plain(&artifact.name))
        .bind(i64::try_from(artifact.bytes).map_err(|_| StoreError::Range("bytes"))?)
        .bind(&artifact.sha256)
        .bind(&artifact.object_key)
        .bind(&artifact.infos)
        .bind(now().0)
        .execute(&mut *connection)
        .await?;
        if let Some(kind) = artifact.read_later {
            jobs::add(connection, kind, &artifact.id, jobs::Of::Run(&report.run.id), now().0).await?;
        }
    }
    insert_diagnosis(connection, report).await
}

/// The row of a version.
pub(super) async fn insert_diagnosis(connection: &mut AnyConnection, report: &Report) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO diagnoses (run_id, version, verdict, summary, diagnosis, engine_version, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(&report.run.id)
    .bind(i64::from(report.version))
    .bind(verdict_slug(report.diagnosis.verdict)?)
    .bind(plain(&report.diagnosis.summary))
    .bind(serde_json::to_string(&report.diagnosis)?)
    .bind(env!("CARGO_PKG_VERSION"))
    .bind(report.diagnosed_at.0)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) fn verdict_slug(verdict: Verdict) -> Result<String, StoreError> {
    match serde_json::to_value(verdict)? {
        serde_json::Value::String(slug) => Ok(slug),
        _ => Err(StoreError::Range("verdict")),
    }
}

fn verdict_from_slug(slug: String) -> Result<Verdict, StoreError> {
    Ok(serde_json::from_value(serde_json::Value::String(slug))?)
}

/// What a search looks for. No text that is kept has a NUL, and `PostgreSQL` takes none.
fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|sign: char| sign.is_whitespace() || sign == '\0').filter(|word| !word.is_empty())
}

/// `%word%`, with the signs that LIKE would read as its own taken literally.
fn like_pattern(word: &str) -> String {
    let mut pattern = String::from("%");
    for sign in word.to_lowercase().chars() {
        if matches!(sign, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(sign);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::store::{Engine, MAX_CONNECTIONS, new_id};
    use rankscope_model::{DIAGNOSIS_FORMAT, Diagnosis, Figures};
    use std::io::Write;

    pub fn report(id: &str, title: &str, version: u32, summary: &str) -> Arc<Report> {
        Arc::new(Report {
            run: RunInfo { id: id.into(), title: title.into(), created_at: now() },
            version,
            diagnosed_at: now(),
            diagnosis: Diagnosis {
                events: vec![],
                format: DIAGNOSIS_FORMAT.into(),
                verdict: Verdict::Imbalance,
                summary: summary.into(),
                imbalance: None,
                causes: vec![],
                checklist: vec![],
                findings: vec![],
                artifacts: vec![],
            },
            figures: Figures::default(),
            next: None,
        })
    }

    fn artifact(store: &Store, bytes: &[u8]) -> NewArtifact {
        let (mut file, staged) = store.staging_file().unwrap();
        file.write_all(bytes).unwrap();
        NewArtifact {
            id: new_id(),
            name: "../a.txt".into(),
            bytes: bytes.len() as u64,
            sha256: "00".into(),
            staged: Some(staged),
            evidence: Arc::default(),
            read_later: None,
        }
    }

    #[tokio::test]
    async fn acknowledged_runs_are_there_after_reopening_and_versions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store
            .create_run(vec![artifact(&store, b"one")], report("r", "Fir\0st", 1, "sum\0 one"), Arc::default())
            .await
            .unwrap();
        store
            .append_version(vec![artifact(&store, b"two")], report("r", "First", 2, "sum two"), Arc::default())
            .await
            .unwrap();
        // No close: as after kill -9, apart from the lock that the system releases.
        drop(store);

        let store = Store::open(folder.path()).await.unwrap();
        assert_eq!(store.report("r", None).await.unwrap().diagnosis.summary, "sum two");
        assert_eq!(store.report("r", Some(1)).await.unwrap().diagnosis.summary, "sum\0 one");
        assert!(matches!(store.report("r", Some(3)).await, Err(StoreError::Missing)));
        assert!(matches!(store.report("nobody", None).await, Err(StoreError::Missing)));
        assert_eq!(store.run("r").await.unwrap().run.title, "First", "without the sign that not every database holds");
        let files = store.artifacts("r").await.unwrap();
        assert_eq!(files.iter().map(|f| f.position).collect::<Vec<_>>(), [0, 1]);
        let (name, size, _) = store.artifact_bytes("r", 1).await.unwrap();
        assert_eq!((name.as_str(), size), ("../a.txt", 3));

        store.delete_run("r").await.unwrap();
        assert!(matches!(store.run("r").await, Err(StoreError::Missing)));
        assert!(matches!(store.artifacts("r").await.as_deref(), Ok([])));
        assert_eq!(stored(folder.path()), (0, 0));
    }

    #[tokio::test]
    async fn the_list_is_newest_first_and_filtered_by_words() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        for (id, title, summary) in [("1", "Llama 100%", "GPU 0 is full"), ("2", "Mixtral", "rank 3 is heavier")] {
            store.create_run(vec![], report(id, title, 1, summary), Arc::default()).await.unwrap();
        }
        let titles = async |query| {
            let runs = store.recent_runs(query, 10).await.unwrap();
            runs.into_iter().map(|run| run.run.title).collect::<Vec<_>>()
        };
        assert_eq!(titles(None).await, ["Mixtral", "Llama 100%"]);
        assert_eq!(titles(Some("llama full")).await, ["Llama 100%"]);
        assert_eq!(titles(Some("100%")).await, ["Llama 100%"]);
        assert_eq!(titles(Some("%")).await, ["Llama 100%"]);
        assert_eq!(titles(Some("' OR 1=1 --")).await, Vec::<String>::new());
        assert_eq!(titles(Some("llama\0full")).await, ["Llama 100%"]);
        assert!(matches!(store.run("1\0").await, Err(StoreError::Missing)));
        store.rename_run("2", "Renamed").await.unwrap();
        assert_eq!(titles(Some("renamed")).await, ["Renamed"]);
        assert_eq!(store.report("2", None).await.unwrap().run.title, "Renamed");
    }

    /// What lies in the object store and among the markers, by the last part of its name.
    fn stored(folder: &std::path::Path) -> (usize, usize) {
        fn count(folder: &std::path::Path) -> usize {
            let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
            entries.map(|entry| entry.unwrap().path()).map(|p| if p.is_dir() { count(&p) } else { 1 }).sum()
        }
        (count(&folder.join("objects/runs")), count(&folder.join("pending")))
    }

    #[tokio::test]
    async fn a_lost_or_older_database_costs_no_object() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        if store.database().engine() == Engine::Postgres {
            println!("passed over: it does to the embedded database what nobody does to a server");
            return;
        }
        store.create_run(vec![artifact(&store, b"one")], report("r", "t", 1, "s"), Arc::default()).await.unwrap();
        store.close().await;
        drop(store);
        let before = stored(folder.path());
        assert_eq!(before, (4, 0));
        for file in ["rankscope.sqlite", "rankscope.sqlite-wal", "rankscope.sqlite-shm"] {
            let _ = std::fs::remove_file(folder.path().join(file));
        }
        let store = Store::open(folder.path()).await.unwrap();
        assert_eq!(stored(folder.path()), before);
        // Not even a deletion touches what this database does not know.
        assert!(matches!(store.delete_run("r").await, Err(StoreError::Missing)));
        assert_eq!(stored(folder.path()), before);
    }

    #[tokio::test]
    async fn a_start_removes_what_was_never_acknowledged_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store.create_run(vec![artifact(&store, b"one")], report("r", "t", 1, "s"), Arc::default()).await.unwrap();
        // As after kill -9 between objects and rows: more files of a known run, and a new run.
        for (run, version) in [("r", 2), ("new", 1)] {
            let new = vec![artifact(&store, b"two")];
            let claim = Claim::Add { run: run.into(), artifacts: vec![new[0].id.clone()], version };
            let _left = store.pending.mark(claim).await.unwrap();
            store.keep_objects(new, &report(run, "t", version, "s"), Arc::default()).await.unwrap();
        }
        // As after kill -9 before a row was deleted.
        let _left = store.pending.mark(Claim::Delete { run: "r".into() }).await.unwrap();
        assert_eq!(stored(folder.path()), (12, 3));
        drop(store);

        let store = Store::open(folder.path()).await.unwrap();
        assert_eq!(stored(folder.path()), (4, 0));
        assert_eq!(store.report("r", None).await.unwrap().version, 1);
        drop(store.artifact_bytes("r", 0).await.unwrap());
    }

    #[tokio::test]
    async fn a_failed_addition_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let added = store.append_version(vec![artifact(&store, b"x")], report("gone", "t", 2, "s"), Arc::default());
        assert!(matches!(added.await, Err(StoreError::Missing)));
        assert_eq!(stored(folder.path()), (0, 0));
    }

    #[tokio::test]
    async fn a_lost_object_is_told_from_a_run_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store.create_run(vec![artifact(&store, b"one")], report("r", "t", 1, "s"), Arc::default()).await.unwrap();
        std::fs::remove_dir_all(folder.path().join("objects/runs/r")).unwrap();
        assert!(matches!(store.report("r", None).await, Err(StoreError::Lost { .. })));
        assert!(matches!(store.artifact_bytes("r", 0).await, Err(StoreError::Lost { .. })));
        assert!(matches!(store.evidence("r").await, Err(StoreError::Lost { .. })));
    }

    #[tokio::test]
    async fn a_full_disk_is_told_from_other_failures() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        if store.database().engine() == Engine::Postgres {
            println!("passed over: it does to the embedded database what nobody does to a server");
            return;
        }
        store.create_run(vec![], report("r", "t", 1, "s"), Arc::default()).await.unwrap();
        // As large as it is now, and no page more; the limit is each connection's own.
        let mut connections = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut connection = store.pool.acquire().await.unwrap();
            sqlx::query("PRAGMA max_page_count = 1").execute(&mut *connection).await.unwrap();
            connections.push(connection);
        }
        drop(connections);
        let error = store.rename_run("r", &"x".repeat(1 << 20)).await.unwrap_err();
        assert!(error.is_full(), "{error}");
        let problem = crate::errors::Problem::from(error);
        assert_eq!(problem.kind(), crate::errors::ProblemKind::Unavailable);
        assert!(problem.detail().contains("full"), "{}", problem.detail());
        assert_eq!(store.run("r").await.unwrap().run.title, "t");
    }

    #[tokio::test]
    async fn a_row_for_a_run_that_was_deleted_meanwhile_finds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let orphan = sqlx::query(
            "INSERT INTO shares (id, run_id, version, token_sha256, created_at) VALUES ('s', 'r', 1, 'h', 1)",
        );
        let error = StoreError::from(orphan.execute(&store.pool).await.unwrap_err());
        assert!(matches!(error, StoreError::Missing), "{error}");
    }
}
