//! Runs with their files and their diagnoses. Every version of a diagnosis stays.

use super::{Store, StoreError, now, objects, to_u32, to_u64};
use crate::series::SeriesSet;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use rankscope_model::{ArtifactInfo, Evidence, Report, RunInfo, RunSummary, UnixMicros, Verdict};
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection};
use std::{collections::HashSet, io, sync::Arc};
use tempfile::TempPath;

/// Words of a search that are looked at; the rest is ignored.
const MAX_QUERY_WORDS: usize = 8;

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
    pub staged: Option<TempPath>,
    /// What was understood of it.
    pub evidence: Arc<Evidence>,
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
    /// Keeps a new run with its first version. When this returns, all of it is on disk.
    pub async fn create_run(
        &self,
        artifacts: Vec<NewArtifact>,
        report: Arc<Report>,
        series: Arc<SeriesSet>,
    ) -> Result<(), StoreError> {
        let rows = self.keep_objects(artifacts, &report, series).await?;
        let mut transaction = self.pool.begin().await?;
        sqlx::query("INSERT INTO runs (id, title, created_at, version) VALUES ($1, $2, $3, $4)")
            .bind(&report.run.id)
            .bind(&report.run.title)
            .bind(report.run.created_at.0)
            .bind(i64::from(report.version))
            .execute(&mut *transaction)
            .await?;
        insert_version(&mut transaction, &rows, 0, &report).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Keeps more files of a run and the version that counts them in. The caller holds the run's lock, so that
    /// `report.version` is the next one.
    pub async fn append_version(
        &self,
        artifacts: Vec<NewArtifact>,
        report: Arc<Report>,
        series: Arc<SeriesSet>,
    ) -> Result<(), StoreError> {
        let rows = self.keep_objects(artifacts, &report, series).await?;
        let mut transaction = self.pool.begin().await?;
        let first_position: i64 =
            sqlx::query_scalar("SELECT COALESCE(MAX(position) + 1, 0) FROM artifacts WHERE run_id = $1")
                .bind(&report.run.id)
                .fetch_one(&mut *transaction)
                .await?;
        let updated = sqlx::query("UPDATE runs SET version = $1 WHERE id = $2")
            .bind(i64::from(report.version))
            .bind(&report.run.id)
            .execute(&mut *transaction)
            .await?;
        if updated.rows_affected() == 0 {
            return Err(StoreError::Missing); // deleted meanwhile
        }
        insert_version(&mut transaction, &rows, first_position, &report).await?;
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
            });
        }
        self.objects.put_json(&objects::series_key(run, report.version), series).await?;
        self.objects.put_json(&objects::report_key(run, report.version), Arc::clone(report)).await?;
        Ok(rows)
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
        let mut report: Report = self.objects.get_json(&objects::report_key(&row.run.id, version)).await?;
        report.run = row.run;
        Ok(report)
    }

    /// The full columns behind a version's charts.
    pub async fn series(&self, run: &str, version: u32) -> Result<SeriesSet, StoreError> {
        self.objects.get_json(&objects::series_key(run, version)).await
    }

    /// All evidence of a run, in the order of its files.
    pub async fn evidence(&self, run: &str) -> Result<Evidence, StoreError> {
        let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM artifacts WHERE run_id = $1 ORDER BY position")
            .bind(run)
            .fetch_all(&self.pool)
            .await?;
        let mut evidence = Evidence::default();
        for id in ids {
            evidence.merge(self.objects.get_json(&objects::evidence_key(run, &id)).await?);
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
        let (size, stream) = self.objects.stream(&objects::artifact_key(run, &id)).await?;
        Ok((row.try_get("name")?, size, stream))
    }

    /// Newest runs first. With a query: those that have each of its words in title or summary.
    pub async fn recent_runs(&self, query: Option<&str>, limit: u32) -> Result<Vec<RunSummary>, StoreError> {
        let mut sql = QueryBuilder::<Sqlite>::new(
            "SELECT r.id, r.title, r.created_at, d.verdict, d.summary, \
             (SELECT COUNT(*) FROM artifacts a WHERE a.run_id = r.id) AS artifacts \
             FROM runs r JOIN diagnoses d ON d.run_id = r.id AND d.version = r.version WHERE 1 = 1",
        );
        for word in query.unwrap_or_default().split_whitespace().take(MAX_QUERY_WORDS) {
            let pattern = like_pattern(word);
            sql.push(" AND (LOWER(r.title) LIKE ").push_bind(pattern.clone()).push(" ESCAPE '\\'");
            sql.push(" OR LOWER(d.summary) LIKE ").push_bind(pattern).push(" ESCAPE '\\')");
        }
        sql.push(" ORDER BY r.created_at DESC, r.id DESC LIMIT ").push_bind(i64::from(limit));
        let rows = sql.build().fetch_all(&self.pool).await?;
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
        let updated =
            sqlx::query("UPDATE runs SET title = $1 WHERE id = $2").bind(title).bind(run).execute(&self.pool).await?;
        if updated.rows_affected() == 0 { Err(StoreError::Missing) } else { Ok(()) }
    }

    /// Deletes a run with its files, diagnoses and shares.
    pub async fn delete_run(&self, run: &str) -> Result<(), StoreError> {
        let _lock = self.lock_run(run).await;
        let deleted = sqlx::query("DELETE FROM runs WHERE id = $1").bind(run).execute(&self.pool).await?;
        if deleted.rows_affected() == 0 {
            return Err(StoreError::Missing);
        }
        // The row is gone, so nothing can be read any more; what stays behind here goes at the next start.
        if let Err(error) = self.objects.delete_run(run).await {
            tracing::warn!(run, %error, "objects of a deleted run stay until the next start");
        }
        Ok(())
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
}

async fn insert_version(
    connection: &mut SqliteConnection,
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
        .bind(&artifact.name)
        .bind(i64::try_from(artifact.bytes).map_err(|_| StoreError::Range("bytes"))?)
        .bind(&artifact.sha256)
        .bind(&artifact.object_key)
        .bind(&artifact.infos)
        .bind(now().0)
        .execute(&mut *connection)
        .await?;
    }
    sqlx::query(
        "INSERT INTO diagnoses (run_id, version, verdict, summary, diagnosis, engine_version, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(&report.run.id)
    .bind(i64::from(report.version))
    .bind(verdict_slug(report.diagnosis.verdict)?)
    .bind(&report.diagnosis.summary)
    .bind(serde_json::to_string(&report.diagnosis)?)
    .bind(env!("CARGO_PKG_VERSION"))
    .bind(report.diagnosed_at.0)
    .execute(&mut *connection)
    .await?;
    Ok(())
}

fn verdict_slug(verdict: Verdict) -> Result<String, StoreError> {
    match serde_json::to_value(verdict)? {
        serde_json::Value::String(slug) => Ok(slug),
        _ => Err(StoreError::Range("verdict")),
    }
}

fn verdict_from_slug(slug: String) -> Result<Verdict, StoreError> {
    Ok(serde_json::from_value(serde_json::Value::String(slug))?)
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
    use crate::store::new_id;
    use rankscope_model::{DIAGNOSIS_FORMAT, Diagnosis, Figures};
    use std::io::Write;

    pub fn report(id: &str, title: &str, version: u32, summary: &str) -> Arc<Report> {
        Arc::new(Report {
            run: RunInfo { id: id.into(), title: title.into(), created_at: now() },
            version,
            diagnosed_at: now(),
            diagnosis: Diagnosis {
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
        let mut file = store.staging_file().unwrap();
        file.write_all(bytes).unwrap();
        NewArtifact {
            id: new_id(),
            name: "../a.txt".into(),
            bytes: bytes.len() as u64,
            sha256: "00".into(),
            staged: Some(file.into_temp_path()),
            evidence: Arc::default(),
        }
    }

    #[tokio::test]
    async fn acknowledged_runs_are_there_after_reopening_and_versions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        store
            .create_run(vec![artifact(&store, b"one")], report("r", "First", 1, "sum one"), Arc::default())
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
        assert_eq!(store.report("r", Some(1)).await.unwrap().diagnosis.summary, "sum one");
        assert!(matches!(store.report("r", Some(3)).await, Err(StoreError::Missing)));
        assert!(matches!(store.report("nobody", None).await, Err(StoreError::Missing)));
        let files = store.artifacts("r").await.unwrap();
        assert_eq!(files.iter().map(|f| f.position).collect::<Vec<_>>(), [0, 1]);
        let (name, size, _) = store.artifact_bytes("r", 1).await.unwrap();
        assert_eq!((name.as_str(), size), ("../a.txt", 3));

        store.delete_run("r").await.unwrap();
        assert!(matches!(store.run("r").await, Err(StoreError::Missing)));
        assert!(matches!(store.artifacts("r").await.as_deref(), Ok([])));
        assert!(!folder.path().join("objects/runs/r").exists());
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
        store.rename_run("2", "Renamed").await.unwrap();
        assert_eq!(titles(Some("renamed")).await, ["Renamed"]);
        assert_eq!(store.report("2", None).await.unwrap().run.title, "Renamed");
    }
}
