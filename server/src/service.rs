//! What the server does for a visitor: read an upload, diagnose it, keep it; rename, share, load.
//!
//! Stands between the HTTP handlers and the store. Knows no route and no SQL.

use crate::{
    accounts::DEFAULT_PROJECT,
    engine,
    errors::{Problem, ProblemKind, Result},
    intake::{self, Received, Spool, Upload},
    jobs::{EXPIRE_UPLOAD, READ_FILE, READ_RUN},
    limits::Limits,
    masking,
    metrics::Metrics,
    passwords,
    series::SeriesSet,
    share_lock::{self, Guesses},
    store::{MintedShare, NewArtifact, ShareOptions, SharedReport, Staged, Store, StoreError, new_id, now},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use rankscope_app::NamedSnapshot;
use rankscope_ingest::ReadSeek;
use rankscope_model::{ArtifactInfo, ArtifactKind, Evidence, Report, RunInfo, SnapshotEvidence};
use std::{
    fs::File,
    future::Future,
    io::BufReader,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
    time::timeout,
};

/// Series of the runs that were looked at last, so that zooming does not unpack the same object again and again.
const CACHED_SERIES: usize = 4;

/// Runs whose snapshots are kept at hand.
const CACHED_SNAPSHOTS: usize = 2;

/// Run and version.
type SeriesKey = (String, u32);

/// Reads one file; never fails, what cannot be read is named with its reason.
pub(crate) type Reader = fn(&str, u64, &mut dyn ReadSeek) -> engine::Reading;

/// The server's own state, shared by all handlers.
#[derive(Debug)]
pub struct Service {
    /// Rows and objects.
    pub store: Store,
    /// How much is taken.
    pub limits: Limits,
    /// What is counted.
    pub metrics: Metrics,
    reader: Reader,
    readers: Arc<Semaphore>,
    series: Mutex<Vec<(SeriesKey, Arc<SeriesSet>)>>,
    snapshots: Mutex<Vec<(SeriesKey, Arc<Vec<NamedSnapshot>>)>>,
    guesses: Guesses,
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
        Self::with_reader(store, limits, engine::read)
    }

    pub(crate) fn with_reader(store: Store, limits: Limits, reader: Reader) -> Self {
        Self {
            store,
            limits,
            metrics: Metrics::default(),
            reader,
            readers: Arc::new(Semaphore::new(limits.parallel_readers)),
            series: Mutex::default(),
            snapshots: Mutex::default(),
            guesses: Guesses::default(),
        }
    }

    /// Nobody reads until this is dropped.
    #[cfg(test)]
    pub(crate) async fn hold_readers(&self) -> OwnedSemaphorePermit {
        let all = u32::try_from(self.limits.parallel_readers).unwrap();
        Arc::clone(&self.readers).acquire_many_owned(all).await.unwrap()
    }

    /// Files that are being read now, those that were given up included.
    pub fn reading(&self) -> usize {
        self.limits.parallel_readers.saturating_sub(self.readers.available_permits())
    }

    /// A new run from an upload.
    pub async fn create_run(&self, mut upload: Upload) -> Result<Taken> {
        let earlier = self.fetch_earlier(&mut upload).await?;
        let title = upload.title.clone().unwrap_or_else(|| {
            let title = engine::title_from_names(upload.files.iter().map(|file| file.name.as_str()));
            title.chars().take(self.limits.max_title_chars).collect()
        });
        let artifacts = self.read_files(upload.files).await?;
        let evidence = merged(artifacts.iter().map(|artifact| Evidence::clone(&artifact.evidence)));
        let infos = evidence.artifacts.clone();
        let run = RunInfo { id: new_id(), title, created_at: now() };
        let (report, series) = self.diagnose(run, 1, evidence).await?;
        let project = upload.project.as_deref().unwrap_or(DEFAULT_PROJECT);
        self.store.create_run_in(project, artifacts, Arc::clone(&report), series).await?;
        self.end_earlier(earlier).await;
        Ok(Taken { report, artifacts: infos })
    }

    /// More files for a run, and a new version that counts them in. The old ones stay.
    pub async fn add_files(&self, run: &str, mut upload: Upload) -> Result<Taken> {
        let earlier = self.fetch_earlier(&mut upload).await?;
        let artifacts = self.read_files(upload.files).await?;
        let _lock = self.store.lock_run(run).await?;
        let row = self.store.run(run).await?;
        let known = self.store.evidence(run).await?;
        let before = known.artifacts.len();
        let new = artifacts.iter().map(|artifact| Evidence::clone(&artifact.evidence));
        let evidence = merged(std::iter::once(known).chain(new));
        let infos = evidence.artifacts.get(before..).unwrap_or_default().to_vec();
        let (report, series) = self.diagnose(row.run, row.version.saturating_add(1), evidence).await?;
        self.store.append_version(artifacts, Arc::clone(&report), series).await?;
        self.end_earlier(earlier).await;
        Ok(Taken { report, artifacts: infos })
    }

    /// Brings in the files of an upload that arrived before. They stay until it is kept: one that fails can be sent again.
    async fn fetch_earlier(&self, upload: &mut Upload) -> Result<Vec<String>> {
        let ids = std::mem::take(&mut upload.earlier);
        for id in &ids {
            let open = self.store.open_upload(id, &upload.owner).await.map_err(|error| match error {
                StoreError::Missing => {
                    Problem::invalid("There is no such file of yours on its way. It may have expired.")
                }
                error => error.into(),
            })?;
            if open.received < open.bytes {
                let (name, received, bytes) = (&open.name, open.received, open.bytes);
                let detail = format!("{name:?} is kept up to byte {received} of {bytes}. Send it to its end first.");
                return Err(Problem::new(ProblemKind::NotWhole, detail));
            }
            let mut spool = Spool::new(&self.store)?;
            let mut bytes = self.store.upload_bytes(&open.id).await?;
            while let Some(piece) = bytes.try_next().await.map_err(Problem::internal)? {
                spool.push(piece).await?;
            }
            if spool.bytes() != open.bytes {
                let detail = format!("Parts of {:?} are no longer there. Send it anew.", open.name);
                return Err(Problem::invalid(detail).because("a file on its way is not as long as its row says"));
            }
            upload.files.push(spool.finish(open.name).await?);
        }
        intake::name_the_nameless(&mut upload.files);
        Ok(ids)
    }

    async fn end_earlier(&self, ids: Vec<String>) {
        for id in ids {
            if let Err(error) = self.store.end_upload(&id, EXPIRE_UPLOAD).await {
                tracing::warn!(%error, upload = id, "a file that was used stays on its way until it expires");
            }
        }
    }

    /// Has all files of a run read again, when there is time.
    pub async fn read_again(&self, run: &str) -> Result<()> {
        self.store.run(run).await?;
        if self.store.live_run(run).await?.is_some_and(|live| live.ended.is_none()) {
            let detail =
                "The job of this run goes on, and its report is renewed by itself. Try again when it has ended.";
            return Err(Problem::new(ProblemKind::NotNow, detail));
        }
        if self.store.readable(run).await?.is_empty() {
            let detail = "No file of this run was kept that could be read again.";
            return Err(Problem::new(ProblemKind::NotNow, detail));
        }
        Ok(self.store.add_run_job(READ_RUN, run, run).await?)
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
        let series = Arc::new(self.store.series(run, version).await?);
        let mut cache = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|(known, _)| *known != key);
        cache.truncate(CACHED_SERIES - 1);
        cache.insert(0, (key, Arc::clone(&series)));
        Ok(series)
    }

    /// The columns of a run's versions have changed.
    pub(crate) fn forget_series(&self, run: &str) {
        self.series.lock().unwrap_or_else(PoisonError::into_inner).retain(|((known, _), _)| known != run);
    }

    /// The memory snapshots of a run. They are kept at hand, because one looks at several ranks in a row.
    pub async fn snapshots(&self, run: &str) -> std::result::Result<Arc<Vec<NamedSnapshot>>, StoreError> {
        let key = (run.to_owned(), self.store.run(run).await?.version);
        let cached = {
            let cache = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
            cache.iter().find(|(known, _)| *known == key).map(|(_, snapshots)| Arc::clone(snapshots))
        };
        if let Some(snapshots) = cached {
            return Ok(snapshots);
        }
        let evidence = self.store.evidence_of(run, ArtifactKind::TorchSnapshot).await?;
        let name = |snapshot: &SnapshotEvidence| evidence.artifact_name(snapshot.at.artifact).to_owned();
        let names: Vec<String> = evidence.snapshots.iter().map(name).collect();
        let named = names.into_iter().zip(evidence.snapshots).map(|(name, snapshot)| NamedSnapshot { name, snapshot });
        let snapshots: Arc<Vec<NamedSnapshot>> = Arc::new(named.collect());
        let mut cache = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|((known, _), _)| known != run);
        cache.truncate(CACHED_SNAPSHOTS - 1);
        cache.insert(0, (key, Arc::clone(&snapshots)));
        Ok(snapshots)
    }

    /// A link to a report; with a password its visitors are asked for it.
    pub async fn share(&self, run: &str, options: ShareOptions, password: Option<String>) -> Result<MintedShare> {
        if options.masked && options.raw_files {
            let detail = "Files as they were uploaded hold the names that masking takes out. Choose one of the two.";
            return Err(Problem::invalid(detail));
        }
        let password_hash = match password.filter(|password| !password.is_empty()) {
            None => None,
            Some(password) => {
                share_lock::check_choice(&password)?;
                Some(passwords::hash(password).await?)
            }
        };
        Ok(self.store.create_share_with(run, ShareOptions { password_hash, ..options }).await?)
    }

    /// What a token opens, if it needs no password or `proof` shows that it was given.
    pub async fn open_share(&self, token: &str, proof: Option<&str>) -> Result<SharedReport> {
        let shared = self.store.open_share(token).await?;
        if let Some(hash) = &shared.password_hash
            && !proof.is_some_and(|proof| share_lock::is_proof(proof, token, hash))
        {
            return Err(Problem::new(
                ProblemKind::ShareLocked,
                "Open the link in a browser and give the password there.",
            ));
        }
        Ok(shared)
    }

    /// The report of a share as its visitors may see it.
    pub async fn shared_report(&self, token: &str, proof: Option<&str>) -> Result<(SharedReport, Report)> {
        let shared = self.open_share(token, proof).await?;
        let report = self.store.report(&shared.run_id, Some(shared.version)).await?;
        if !shared.masked {
            return Ok((shared, report));
        }
        let masked =
            tokio::task::spawn_blocking(move || masking::masked(&report)).await.map_err(Problem::internal)??;
        Ok((shared, masked))
    }

    /// The proof for a right password; `None` for a wrong one.
    pub async fn unlock(&self, token: &str, password: String) -> Result<Option<String>> {
        let shared = self.store.open_share(token).await?;
        let Some(hash) = shared.password_hash else { return Ok(Some(String::new())) };
        self.guesses.check(&shared.id)?;
        let proof = share_lock::proof(token, &hash);
        // None that was ever taken is longer.
        if password.len() <= share_lock::MOST_BYTES && passwords::is_right(Some(hash), password).await? {
            return Ok(Some(proof));
        }
        self.guesses.wrong(&shared.id);
        Ok(None)
    }

    pub(crate) async fn diagnose(
        &self,
        run: RunInfo,
        version: u32,
        evidence: Evidence,
    ) -> Result<(Arc<Report>, Arc<SeriesSet>)> {
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
        // No more at once than there are readers, so that uploads of many files take turns with others.
        let read = stream::iter(files).map(|file| self.read_file(file)).buffered(self.limits.parallel_readers.max(1));
        let artifacts = read.try_collect().await?;
        self.metrics.upload(count, total);
        Ok(artifacts)
    }

    async fn read_file(&self, file: Received) -> Result<NewArtifact> {
        let Received { name, bytes, sha256, content } = file;
        let (staged, evidence, read_later) = match content {
            Err(reason) => {
                self.metrics.file_refused();
                (None, engine::unreadable(&name, bytes, reason), None)
            }
            Ok(staged) => {
                let started = Instant::now();
                let path = staged.path().map_err(Problem::internal)?.to_path_buf();
                match self.read_staged(name.clone(), bytes, path).await? {
                    Some(reading) => (Some(staged), self.counted(reading, started, bytes), None),
                    None => (Some(staged), self.too_long(&name, bytes), Some(READ_FILE)),
                }
            }
        };
        Ok(NewArtifact { id: new_id(), name, bytes, sha256, staged, evidence: Arc::new(evidence), read_later })
    }

    /// What was read, counted.
    fn counted(&self, reading: engine::Reading, started: Instant, bytes: u64) -> Evidence {
        self.metrics.read(started.elapsed());
        if reading.panicked {
            self.metrics.reader_panic();
            tracing::error!(bytes, "a reader panicked on a file");
        }
        reading.evidence
    }

    /// What stands for a file that is still to be read to its end.
    fn too_long(&self, name: &str, bytes: u64) -> Evidence {
        let seconds = self.limits.read_within.as_secs();
        tracing::warn!(bytes, seconds, "a file takes too long to read; its answer no longer waits for it");
        let reason = format!(
            "reading takes longer than {seconds} seconds; the file is kept and read in the background, and a new version of \
             the report will count it in"
        );
        engine::unreadable(name, bytes, reason)
    }

    /// Reads a file for which nobody waits. Whoever waits for uploads comes first: it takes one of the same readers.
    pub(crate) async fn read_patiently(&self, name: &str, bytes: u64, staged: Staged) -> Result<Evidence> {
        let started = Instant::now();
        let permit = Arc::clone(&self.readers).acquire_owned().await.map_err(Problem::internal)?;
        let path = staged.path().map_err(Problem::internal)?.to_path_buf();
        let reading = self.begin_reading(name.to_owned(), bytes, path, permit);
        let Ok(read) = timeout(self.limits.read_in_background_within, reading).await else {
            let hours = self.limits.read_in_background_within.as_secs() / 3600;
            return Err(Problem::internal(format_args!(
                "reading a file of {bytes} bytes took longer than {hours} hours"
            )));
        };
        Ok(self.counted(read.map_err(Problem::internal)?, started, bytes))
    }

    /// Reads a staged file. `None`: it takes too long for whoever waits.
    async fn read_staged(&self, name: String, bytes: u64, path: PathBuf) -> Result<Option<engine::Reading>> {
        let Ok(permit) = timeout(self.limits.reader_wait, Arc::clone(&self.readers).acquire_owned()).await else {
            let detail =
                "This server is still reading other files. Nothing of the upload was kept; send it again later.";
            return Err(Problem::new(ProblemKind::Unavailable, detail).because("no reader became free"));
        };
        let permit = permit.map_err(Problem::internal)?;
        match timeout(self.limits.read_within, self.begin_reading(name, bytes, path, permit)).await {
            Ok(read) => read.map(Some).map_err(Problem::internal),
            Err(_) => Ok(None),
        }
    }

    /// Reads on a thread of its own. A thread cannot be ended from outside, so the permit is its own: it counts as a reader
    /// until it is done, also when nobody waits for it any more.
    fn begin_reading(
        &self,
        name: String,
        bytes: u64,
        path: PathBuf,
        permit: OwnedSemaphorePermit,
    ) -> JoinHandle<engine::Reading> {
        let reader = self.reader;
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            match File::open(path) {
                Ok(file) => reader(&name, bytes, &mut BufReader::with_capacity(256 << 10, file)),
                Err(error) => {
                    engine::Reading { evidence: engine::unreadable_io(&name, bytes, &error), panicked: false }
                }
            }
        })
    }
}

/// Does work to its end, also if whoever asked for it goes away: an upload that has arrived is kept or cleared up, but
/// never left in the middle.
pub async fn to_the_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.map_err(Problem::internal)?
}

fn merged(parts: impl IntoIterator<Item = Evidence>) -> Evidence {
    let mut evidence = Evidence::default();
    for part in parts {
        evidence.merge(part);
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        sync::atomic::{AtomicUsize, Ordering},
        thread,
        time::Duration,
    };

    fn received(store: &Store, name: &str) -> Received {
        let (mut file, staged) = store.staging_file().unwrap();
        file.write_all(b"x").unwrap();
        Received { name: name.into(), bytes: 1, sha256: "00".into(), content: Ok(staged) }
    }

    fn upload(store: &Store, names: &[&str]) -> Upload {
        Upload { files: names.iter().map(|name| received(store, name)).collect(), ..Upload::default() }
    }

    static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);

    /// Slow on the files that are called so.
    fn slow(name: &str, bytes: u64, _: &mut dyn ReadSeek) -> engine::Reading {
        MOST.fetch_max(AT_ONCE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        if name == "slow" {
            thread::sleep(Duration::from_millis(400));
        }
        AT_ONCE.fetch_sub(1, Ordering::SeqCst);
        engine::Reading { evidence: engine::unreadable(name, bytes, "read"), panicked: false }
    }

    #[tokio::test]
    async fn a_file_that_takes_too_long_costs_no_other_and_keeps_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let limits = Limits { parallel_readers: 1, read_within: Duration::from_millis(50), ..Limits::default() };
        let service = Service::with_reader(store, limits, slow);
        let taken = service.create_run(upload(&service.store, &["slow", "quick"])).await.unwrap();
        let warnings: Vec<_> = taken.artifacts.iter().map(|artifact| artifact.warnings[0].as_str()).collect();
        assert!(warnings[0].contains("longer than") && warnings[0].contains("background"), "{warnings:?}");
        assert_eq!(service.store.open_jobs_of(&taken.report.run.id).await.unwrap(), 1);
        assert_eq!(warnings[1], "read");

        // Whoever goes away takes no reader along.
        for _ in 0..3 {
            let asked = service.create_run(upload(&service.store, &["slow"]));
            assert!(timeout(Duration::from_millis(20), asked).await.is_err());
        }
        assert_eq!(service.reading(), 1);
        service.create_run(upload(&service.store, &["quick"])).await.unwrap();
        assert_eq!(MOST.load(Ordering::SeqCst), 1);
        assert_eq!(service.reading(), 0);

        let limits = Limits { reader_wait: Duration::from_millis(20), ..limits };
        let service = Service { limits, ..service };
        let hold = service.read_files(vec![received(&service.store, "slow")]).await.unwrap();
        let refused = service.create_run(upload(&service.store, &["quick"])).await.unwrap_err();
        assert_eq!(refused.kind(), ProblemKind::Unavailable);
        drop(hold);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn parallel_additions_to_one_run_and_to_others_all_succeed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let service = Arc::new(Service::new(store, Limits::default()));
        let mut runs = Vec::new();
        for _ in 0..8 {
            runs.push(service.create_run(upload(&service.store, &["a"])).await.unwrap().report.run.id.clone());
        }
        let one = std::iter::repeat_n(&runs[0], 8);
        let additions = one.chain(&runs).map(|run| {
            let (service, run) = (Arc::clone(&service), run.clone());
            to_the_end(async move { service.add_files(&run, upload(&service.store, &["b"])).await })
        });
        for added in futures_util::future::join_all(additions).await {
            added.unwrap();
        }
        assert_eq!(service.store.run(&runs[0]).await.unwrap().version, 10);
        assert_eq!(service.store.artifacts(&runs[0]).await.unwrap().len(), 10);
        for run in &runs[1..] {
            assert_eq!(service.store.run(run).await.unwrap().version, 2);
        }
    }
}
