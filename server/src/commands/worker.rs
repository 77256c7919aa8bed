//! `rankscope worker`: does jobs for servers that share a database and a bucket, until it is told to stop.

use super::{log, opening, stop::stop_signal};
use crate::{
    cli::WorkerArgs,
    jobs,
    limits::Limits,
    service::Service,
    store::{Store, StoreError},
};
use anyhow::{Context, bail};
use futures_util::future::join_all;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Time for what is written at the moment at which it is told to stop.
const GRACE: Duration = Duration::from_secs(10);
/// For threads that read; they cannot be stopped, and the process must not wait for them.
const LAST_GRACE: Duration = Duration::from_secs(1);

/// Works until SIGINT or SIGTERM.
pub fn run(args: &WorkerArgs) -> anyhow::Result<()> {
    log::init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let worked = runtime.block_on(work(args));
    runtime.shutdown_timeout(LAST_GRACE);
    worked
}

async fn work(args: &WorkerArgs) -> anyhow::Result<()> {
    let (Some(url), Some(bucket)) = (&args.database_url, args.objects.bucket()) else {
        bail!(
            "a worker needs the database and the bucket of its servers: --database-url and --objects. A server with a data \
             folder of its own does this work itself"
        );
    };
    let store = Store::open_worker(&args.data, url, &bucket).await;
    let store = store.with_context(|| opening(&args.data, Some(url)))?;
    // Here nobody else reads, so each job has a reader.
    let limits = Limits { parallel_readers: usize::from(args.at_once), ..Limits::default() };
    let service = Arc::new(Service::new(store, limits));
    let (end, ends) = watch::channel(false);
    let stop = stop_signal()?;
    let workers: Vec<_> =
        (0..args.at_once).map(|_| tokio::spawn(jobs::work(Arc::clone(&service), ends.clone()))).collect();
    // Tests and scripts wait for this line.
    println!("Rankscope works for the servers on {url}, {} at once", super::counted(u64::from(args.at_once), "job"));
    let is_lost = tokio::select! {
        () = stop => false,
        () = service.store.lost() => true,
    };
    end.send_replace(true);
    if timeout(GRACE, join_all(workers)).await.is_err() {
        tracing::warn!("a job was cut off; another worker does it again");
    }
    if timeout(GRACE, service.store.close()).await.is_err() {
        tracing::warn!("the database did not answer any more");
    }
    tracing::info!("ended");
    if is_lost { Err(StoreError::Served(url.clone()).into()) } else { Ok(()) }
}
