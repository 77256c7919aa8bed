//! What the server does for a visitor: read an upload, diagnose it, keep it; rename, share, load.
//!
//! Stands between the HTTP handlers and the store. Knows no route and no SQL.

use crate::{
    engine,
    errors::{Problem, Result},
    intake::{Received, Upload},
    limits::Limits,
    metrics::Metrics,
    series::SeriesSet,
    store::{NewArtifact, Store, StoreError, new_id, now},
};
use rankscope_model::{ArtifactInfo, Evidence, Report, RunInfo};
use std::{
    fs::File,
    io::BufReader,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tempfile::TempPath;
use tokio::sync::Semaphore;

/// Series of the runs that were looked at last, so that zooming does not unpack the same object again and again.
const CACHED_SERIES: usize = 4;

/// Run and version.
type SeriesKey = (String, u32);

/// The server's own state, shared by all handlers.
#[derive(Debug)]
pub struct Service {
    /// Rows and objects.
    pub store: Store,
    /// How much is taken.
    pub limits: Limits,
    /// What is counted.
    pub metrics: Metrics,
    readers: Arc<Semaphore>,
    series: Mutex<Vec<(SeriesKey, Arc<SeriesSet>)>>,
}

/// What came of an upload.
#[derive(Debug)]
pub struct Taken {
    /// The version that counts it in.
    pub report: Arc<Report>,
    /// One line for each file of this upload (members of archives included).
    pub artifacts: Vec<ArtifactInfo>,
}

impl Service {
    /// A service over an open store.
    pub fn new(store: Store, limits: Limits) -> Self {
        Self {
            store,
            limits,
            metrics: Metrics::default(),
            readers: Arc::new(Semaphore::new(limits.parallel_readers)),
            series: Mutex::default(),
        }
    }

    /// A new run from an upload.
    pub async fn create_run(&self, upload: Upload) -> Result<Taken> {
        let title = upload.title.clone().unwrap_or_else(|| {
            let title = engine::title_from_names(upload.files.iter().map(|file| file.name.as_str()));
            title.chars().take(self.limits.max_title_chars).collect()
        });
        let artifacts = self.read_files(upload.files).await?;
        let evidence = merged(artifacts.iter().map(|artifact| Evidence::clone(&artifact.evidence)));
        let infos = evidence.artifacts.clone();
        let run = RunInfo { id: new_id(), title, created_at: now() };
        let (report, series) = self.diagnose(run, 1, evidence).await?;
        self.store.create_run(artifacts, Arc::clone(&report), series).await?;
        Ok(Taken { report, artifacts: infos })
    }

    /// More files for a run, and a new version that counts them in. The old ones stay.
    pub async fn add_files(&self, run: &str, upload: Upload) -> Result<Taken> {
        let artifacts = self.read_files(upload.files).await?;
        let _lock = self.store.lock_run(run).await;
        let row = self.store.run(run).await?;
        let known = self.store.evidence(run).await?;
        let before = known.artifacts.len();
        let new = artifacts.iter().map(|artifact| Evidence::clone(&artifact.evidence));
        let evidence = merged(std::iter::once(known).chain(new));
        let infos = evidence.artifacts.get(before..).unwrap_or_default().to_vec();
        let (report, series) = self.diagnose(row.run, row.version.saturating_add(1), evidence).await?;
        self.store.append_version(artifacts, Arc::clone(&report), series).await?;
        Ok(Taken { report, artifacts: infos })
    }

    /// The full columns behind a version's charts.
    pub async fn series(&self, run: &str, version: u32) -> Result<Arc<SeriesSet>> {
        let key = (run.to_owned(), version);
        let cached = {
            let cache = self.series.lock().unwrap_or_else(PoisonError::into_inner);
            cache.iter().find(|(known, _)| *known == key).map(|(_, series)| Arc::clone(series))
        };
        if let Some(series) = cached {
            return Ok(series);
        }
        let series = match self.store.series(run, version).await {
            Err(StoreError::Missing) => Arc::default(),
            other => Arc::new(other?),
        };
        let mut cache = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|(known, _)| *known != key);
        cache.truncate(CACHED_SERIES - 1);
        cache.insert(0, (key, Arc::clone(&series)));
        Ok(series)
    }

    async fn diagnose(&self, run: RunInfo, version: u32, evidence: Evidence) -> Result<(Arc<Report>, Arc<SeriesSet>)> {
        let made = tokio::task::spawn_blocking(move || {
            let report = engine::report(run, version, now(), &evidence);
            let series = engine::series(&report, &evidence);
            (Arc::new(report), Arc::new(series))
        })
        .await
        .map_err(Problem::internal)?;
        self.metrics.diagnosis();
        Ok(made)
    }

    async fn read_files(&self, files: Vec<Received>) -> Result<Vec<NewArtifact>> {
        let total = files.iter().map(|file| file.bytes).sum();
        let count = files.len() as u64;
        let mut artifacts = Vec::with_capacity(files.len());
        for read in futures_util::future::join_all(files.into_iter().map(|file| self.read_file(file))).await {
            artifacts.push(read?);
        }
        self.metrics.upload(count, total);
        Ok(artifacts)
    }

    async fn read_file(&self, file: Received) -> Result<NewArtifact> {
        let Received { name, bytes, sha256, content } = file;
        let (staged, evidence) = match content {
            Err(reason) => {
                self.metrics.file_refused();
                (None, engine::unreadable(&name, bytes, reason))
            }
            Ok(staged) => {
                let _permit = self.readers.acquire().await.map_err(Problem::internal)?;
                let started = Instant::now();
                let (staged, reading) = read_staged(name.clone(), bytes, staged).await?;
                self.metrics.read(started.elapsed());
                if reading.panicked {
                    self.metrics.reader_panic();
                    tracing::error!(sha256, bytes, "a reader panicked on a file");
                }
                (Some(staged), reading.evidence)
            }
        };
        Ok(NewArtifact { id: new_id(), name, bytes, sha256, staged, evidence: Arc::new(evidence) })
    }
}

async fn read_staged(name: String, bytes: u64, staged: TempPath) -> Result<(TempPath, engine::Reading)> {
    tokio::task::spawn_blocking(move || {
        let reading = match File::open(&staged) {
            Ok(file) => engine::read(&name, bytes, &mut BufReader::with_capacity(256 << 10, file)),
            Err(error) => engine::Reading { evidence: engine::unreadable_io(&name, bytes, &error), panicked: false },
        };
        (staged, reading)
    })
    .await
    .map_err(Problem::internal)
}

fn merged(parts: impl IntoIterator<Item = Evidence>) -> Evidence {
    let mut evidence = Evidence::default();
    for part in parts {
        evidence.merge(part);
    }
    evidence
}
