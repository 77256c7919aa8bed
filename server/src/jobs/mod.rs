//! Work that nobody waits for, and who does it: a loop that takes jobs, in `serve` and in `rankscope worker` alike.
//!
//! The queue is rows of our own (`store::jobs`): it has to be the same on both databases, and a job must end in the one
//! transaction with what it has changed. Kept crates were looked at: apalis' stores are typed by one database each, with
//! connections and migrations of their own, so neither is possible with them. Knows no HTTP.

mod expiry;
mod reading;
mod retention;

pub use retention::FIRST_LOOK;

use crate::{
    errors::{Problem, ProblemKind},
    service::Service,
    store::{Job, JobCounts, LEASE, StoreError, new_id},
};
use std::{fmt::Write, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};

/// A file that took too long for the upload to wait for; the subject is its id.
pub const READ_FILE: &str = "read_file";
/// All files of a run, once more; the subject is the run.
pub const READ_RUN: &str = "read_run";
/// The limits of a project; the subject is the project.
pub const RETENTION: &str = "retention";

/// A file on its way that nobody goes on with; the subject is the upload.
pub const EXPIRE_UPLOAD: &str = "expire_upload";

/// Time between two looks for work.
const LOOK: Duration = Duration::from_secs(1);
/// The same when the database did not answer.
const LOOK_AFTER_TROUBLE: Duration = Duration::from_secs(5);

/// What becomes of a job.
enum Outcome {
    /// It has ended, with what it has changed.
    Ended,
    /// There was nothing to do, or nothing that belongs into one transaction with its end.
    Done,
    /// It is due again then.
    Again(i64),
}

/// Why a job was not done.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the service says of it.
    #[error("{0}")]
    Problem(String),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        if problem.kind() == ProblemKind::NotFound {
            return Self::Store(StoreError::Missing);
        }
        Self::Problem(problem.told())
    }
}

/// Takes jobs one after the other until it is told to stop. What it is at then is left for another.
pub async fn work(service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    let holder = new_id();
    loop {
        // Not broken off by a stop: a job that was taken in the same moment would be forgotten.
        let pause = match service.store.take_job(&holder).await {
            Ok(Some(job)) => {
                one(&service, &job, &mut stop).await;
                Duration::ZERO
            }
            Ok(None) => LOOK,
            Err(error) => {
                tracing::warn!(%error, "jobs cannot be looked for");
                LOOK_AFTER_TROUBLE
            }
        };
        tokio::select! {
            biased;
            () = told_to_stop(&mut stop) => return,
            () = sleep(pause) => {}
        }
    }
}

/// Also when whoever could tell is gone.
async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One job, to its end or to the end of the worker.
async fn one(service: &Arc<Service>, job: &Job, stop: &mut watch::Receiver<bool>) {
    let (kind, subject) = (job.kind.as_str(), job.subject.as_str());
    tracing::info!(kind, subject, attempt = job.attempts, "a job begins");
    let outcome = tokio::select! {
        outcome = done(service, job) => outcome,
        () = lost(service, job) => {
            tracing::warn!(kind, subject, "another worker has taken the job over; it is left to that one");
            return;
        }
        () = told_to_stop(stop) => {
            if let Err(error) = service.store.leave_job(job).await {
                tracing::warn!(%error, kind, subject, "the job stays taken until its lease ends");
            }
            return;
        }
    };
    let told = match outcome {
        Ok(Outcome::Ended) => Ok(()),
        Ok(Outcome::Done) => service.store.job_done(job).await,
        Ok(Outcome::Again(due)) => service.store.repeat_job(job, due).await,
        // With its run, its project or other limits the job has gone too.
        Err(Failure::Store(StoreError::Missing | StoreError::TakenOver)) => {
            tracing::info!(kind, subject, "what the job was about is gone");
            match service.store.job_done(job).await {
                Err(StoreError::TakenOver) => Ok(()),
                other => other,
            }
        }
        Err(failure) => match service.store.job_failed(job, &failure.to_string()).await {
            Ok(true) => {
                tracing::error!(%failure, kind, subject, "a job is given up");
                Ok(())
            }
            Ok(false) => {
                tracing::warn!(%failure, kind, subject, attempt = job.attempts, "a job failed and is tried again");
                Ok(())
            }
            Err(error) => Err(error),
        },
    };
    match told {
        Ok(()) => tracing::info!(kind, subject, "a job has ended"),
        Err(error) => tracing::warn!(%error, kind, subject, "how a job ended could not be written down"),
    }
}

async fn done(service: &Arc<Service>, job: &Job) -> Result<Outcome, Failure> {
    match job.kind.as_str() {
        READ_FILE | READ_RUN => reading::read(service, job).await,
        RETENTION => retention::look(service, job).await,
        EXPIRE_UPLOAD => expiry::look(service, job).await,
        kind => Err(Failure::Problem(format!("this version knows no job {kind:?}"))),
    }
}

/// Renews the lease; comes back when another has the job.
async fn lost(service: &Service, job: &Job) {
    let mut often = interval(LEASE / 4);
    often.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        often.tick().await;
        match service.store.hold_job(job).await {
            Ok(true) => {}
            Ok(false) => return,
            // The end of the job decides; until then the lease may last.
            Err(error) => tracing::warn!(%error, "the lease of a job could not be renewed"),
        }
    }
}

/// Prometheus text.
pub fn metrics(counts: JobCounts) -> String {
    let mut out = String::new();
    let name = "rankscope_jobs";
    crate::metrics::head(
        &mut out,
        name,
        "gauge",
        "Jobs in the background by state; jobs that are given up need a person.",
    );
    for (state, count) in [("waiting", counts.waiting), ("held", counts.held), ("given_up", counts.given_up)] {
        let _ = writeln!(out, "{name}{{state=\"{state}\"}} {count}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        accounts::{Accounts, Action},
        engine,
        intake::{Received, Upload},
        limits::Limits,
        store::{Keep, Store, now},
    };
    use rankscope_ingest::ReadSeek;
    use std::{
        io::Write,
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Instant,
    };

    fn upload(store: &Store, names: &[&str]) -> Upload {
        let file = |name: &&str| {
            let (mut file, staged) = store.staging_file().unwrap();
            file.write_all(name.as_bytes()).unwrap();
            let bytes = name.len() as u64;
            Received { name: (*name).into(), bytes, sha256: "00".into(), content: Ok(staged) }
        };
        Upload { files: names.iter().map(file).collect(), ..Upload::default() }
    }

    /// Says what the file holds; slow the first time for one that is called so.
    fn reader(name: &str, bytes: u64, input: &mut dyn ReadSeek) -> engine::Reading {
        static WAS_SLOW: AtomicBool = AtomicBool::new(false);
        if name == "slow" && !WAS_SLOW.swap(true, Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(400));
        }
        let mut content = String::new();
        input.read_to_string(&mut content).unwrap();
        let read = format!("read {content} {}", now().0);
        engine::Reading { evidence: engine::unreadable(name, bytes, read), panicked: false }
    }

    async fn service() -> (tempfile::TempDir, Arc<Service>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let limits = Limits { read_within: Duration::from_millis(60), ..Limits::default() };
        (folder, Arc::new(Service::with_reader(store, limits, reader)))
    }

    async fn all_done(service: &Service) {
        let until = Instant::now() + Duration::from_mins(1);
        while service.store.job_counts().await.unwrap() != JobCounts::default() {
            assert!(Instant::now() < until, "{:?}", service.store.job_counts().await);
            sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_slow_file_is_read_in_the_background_and_a_new_version_counts_it_in() {
        let (_folder, service) = service().await;
        let taken = service.create_run(upload(&service.store, &["before", "slow", "behind"])).await.unwrap();
        let run = taken.report.run.id.clone();
        assert!(taken.artifacts[1].warnings[0].contains("read in the background"), "{:?}", taken.artifacts[1]);
        let (end, ends) = watch::channel(false);
        let working = tokio::spawn(work(Arc::clone(&service), ends));
        all_done(&service).await;
        let report = service.store.report(&run, None).await.unwrap();
        assert_eq!(report.version, 2);
        let names: Vec<_> = report.diagnosis.artifacts.iter().map(|artifact| artifact.name.as_str()).collect();
        assert_eq!(names, ["before", "slow", "behind"]);
        assert!(report.diagnosis.artifacts[1].warnings[0].starts_with("read slow"));
        // The one before stays as it was.
        let before = service.store.report(&run, Some(1)).await.unwrap();
        assert!(before.diagnosis.artifacts[1].warnings[0].contains("background"));
        assert!(service.store.artifacts(&run).await.unwrap()[1].infos[0].warnings[0].starts_with("read slow"));
        end.send_replace(true);
        working.await.unwrap();
    }

    #[tokio::test]
    async fn all_files_are_read_again_when_somebody_asks_and_runs_that_are_gone_cost_nothing() {
        let (_folder, service) = service().await;
        let mut runs = Vec::new();
        for name in ["a", "b"] {
            runs.push(service.create_run(upload(&service.store, &[name, "c"])).await.unwrap().report.run.id.clone());
        }
        for run in &runs {
            service.read_again(run).await.unwrap();
            service.read_again(run).await.unwrap();
            assert_eq!(service.store.open_jobs_of(run).await.unwrap(), 1);
        }
        assert_eq!(service.read_again("nowhere").await.unwrap_err().kind(), ProblemKind::NotFound);
        service.store.delete_run(&runs[1]).await.unwrap();
        let (end, ends) = watch::channel(false);
        let workers: Vec<_> = (0..3).map(|_| tokio::spawn(work(Arc::clone(&service), ends.clone()))).collect();
        all_done(&service).await;
        let first = service.store.report(&runs[0], Some(1)).await.unwrap();
        let second = service.store.report(&runs[0], None).await.unwrap();
        assert_eq!(second.version, 2, "once, whoever asked how often");
        for (before, after) in first.diagnosis.artifacts.iter().zip(&second.diagnosis.artifacts) {
            assert_ne!(before.warnings, after.warnings);
        }
        end.send_replace(true);
        for worker in workers {
            worker.await.unwrap();
        }
    }

    #[tokio::test]
    async fn runs_past_the_limits_go_and_the_record_says_so() {
        let (_folder, service) = service().await;
        let mut runs = Vec::new();
        for name in ["aaaa", "bb", "c"] {
            runs.push(service.create_run(upload(&service.store, &[name])).await.unwrap().report.run.id.clone());
        }
        let keep = Keep { days: None, bytes: Some(3) };
        service.store.set_keep("default", keep, RETENTION, now().0).await.unwrap();
        let job = service.store.take_job("x").await.unwrap().unwrap();
        assert!(matches!(done(&service, &job).await.unwrap(), Outcome::Again(due) if due > now().0));
        let left: Vec<_> =
            service.store.recent_runs(None, 9).await.unwrap().into_iter().map(|run| run.run.id).collect();
        assert_eq!(left, [runs[2].clone(), runs[1].clone()]);
        let record = Accounts::of(&service.store).audit(9).await.unwrap();
        assert_eq!(
            (record[0].user_name.as_str(), record[0].action.as_str()),
            ("retention", Action::RunExpired.words())
        );
        assert!(record[0].subject.contains("aaaa"), "{record:?}");
        // Limits that somebody took back while it was at it.
        service.store.set_keep("default", Keep::default(), RETENTION, now().0).await.unwrap();
        assert!(matches!(done(&service, &job).await.unwrap(), Outcome::Done));
    }

    #[tokio::test]
    async fn what_a_worker_leaves_or_does_not_know_is_not_lost() {
        let (_folder, service) = service().await;
        let run = service.create_run(upload(&service.store, &["a"])).await.unwrap().report.run.id.clone();
        service.store.add_run_job("from a later version", &run, &run).await.unwrap();
        let (end, ends) = watch::channel(false);
        let working = tokio::spawn(work(Arc::clone(&service), ends));
        let until = Instant::now() + Duration::from_mins(1);
        while service.store.job_due("from a later version", &run).await.unwrap().is_none_or(|due| due < now().0) {
            assert!(Instant::now() < until);
            sleep(Duration::from_millis(20)).await;
        }
        end.send_replace(true);
        working.await.unwrap();
        assert_eq!(service.store.open_jobs_of(&run).await.unwrap(), 1, "another may know it");

        // Told to stop while it works: the job is free at once, and the attempt does not count.
        service.store.add_run_job(READ_RUN, &run, &run).await.unwrap();
        let job = service.store.take_job("y").await.unwrap().unwrap();
        let (_end, mut ends) = watch::channel(true);
        let permits = service.hold_readers().await;
        one(&service, &job, &mut ends).await;
        drop(permits);
        assert_eq!(service.store.take_job("z").await.unwrap().unwrap().attempts, 1);
    }
}
