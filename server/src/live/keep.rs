//! From the texts of a job to the run that is kept: read, diagnosed, and written as a new version only where the
//! diagnosis says something else than the one before. Knows no node and no sample.

use crate::{
    engine,
    errors::{Problem, Result},
    service::Service,
    store::{LiveFile, LiveStep},
};
use rankscope_model::{CauseLabel, Diagnosis, Evidence, Report, RunInfo, Verdict};
use sha2::{Digest, Sha256};
use std::{
    io::{Cursor, Write},
    sync::Arc,
};

/// A file as text.
pub type NamedText = (String, String);

impl Service {
    /// Keeps the files of a run whose job goes on (or has ended at `ended`), and a diagnosis of all its evidence.
    /// `begin` holds what a new run begins with.
    pub async fn keep_live_run(
        &self,
        run: &str,
        begin: Option<(RunInfo, LiveStep)>,
        texts: Vec<NamedText>,
        ended: Option<i64>,
    ) -> Result<Arc<Report>> {
        let _lock = self.store.lock_run(run).await?;
        let files = self.read_texts(texts).await?;
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let order = self.store.live_order(run, &names).await?;
        let evidence = in_order(order, &files);
        let (info, version, before) = if let Some((info, _)) = &begin {
            (info.clone(), 1, None)
        } else {
            let before = self.store.report(run, None).await?;
            (before.run.clone(), before.version, Some(before))
        };
        let (mut report, series) = self.diagnose(info, version, evidence).await?;
        let step = match (begin, before) {
            (Some((_, step)), _) => step,
            // A share shows a version for good, so the version must stay what it was.
            (None, Some(before))
                if is_new(&before.diagnosis, &report.diagnosis) || self.is_shared(run, version).await? =>
            {
                Arc::make_mut(&mut report).version = version.saturating_add(1);
                LiveStep::Append
            }
            (None, _) => LiveStep::Renew,
        };
        self.store.keep_live(files, Arc::clone(&report), series, step, ended).await?;
        self.forget_series(run);
        Ok(report)
    }

    async fn is_shared(&self, run: &str, version: u32) -> Result<bool> {
        let shares = self.store.shares(run).await?;
        Ok(shares.iter().any(|share| share.version == version && share.revoked_at.is_none()))
    }

    async fn read_texts(&self, texts: Vec<NamedText>) -> Result<Vec<LiveFile>> {
        let mut staged = Vec::with_capacity(texts.len());
        for (name, text) in texts {
            let (file, place) = self.store.staging_file()?;
            staged.push((name, text, file, place));
        }
        let read = tokio::task::spawn_blocking(move || {
            let read = staged.into_iter().map(|(name, text, mut file, staged)| {
                file.write_all(text.as_bytes())?;
                let bytes = text.len() as u64;
                let reading = engine::read(&name, bytes, &mut Cursor::new(text.as_bytes()));
                let sha256 = crate::hex(&Sha256::digest(&text));
                Ok(LiveFile { name, bytes, sha256, staged, evidence: Arc::new(reading.evidence) })
            });
            read.collect::<std::io::Result<Vec<LiveFile>>>()
        });
        read.await.map_err(Problem::internal)?.map_err(|error| crate::store::StoreError::from(error).into())
    }
}

/// All evidence in the order of the run's files; new files come last.
fn in_order(order: Vec<std::result::Result<String, Evidence>>, files: &[LiveFile]) -> Evidence {
    let mut evidence = Evidence::default();
    let mut known = Vec::new();
    for file in order {
        match file {
            Ok(name) => {
                if let Some(file) = files.iter().find(|file| file.name == name) {
                    evidence.merge(Evidence::clone(&file.evidence));
                }
                known.push(name);
            }
            Err(other) => evidence.merge(other),
        }
    }
    for file in files.iter().filter(|file| !known.contains(&file.name)) {
        evidence.merge(Evidence::clone(&file.evidence));
    }
    evidence
}

/// Whether a diagnosis says something else than the one before: another verdict, or another leading cause.
fn is_new(before: &Diagnosis, now: &Diagnosis) -> bool {
    let says = |diagnosis: &Diagnosis| -> (Verdict, Option<CauseLabel>) {
        (diagnosis.verdict, diagnosis.causes.first().map(|cause| cause.label))
    };
    says(before) != says(now)
}
