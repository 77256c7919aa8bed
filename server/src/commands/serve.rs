//! `rankscope serve`: opens the store, listens, and ends in order.

use super::{front_door, log, opening, own_gpus, stop::stop_signal};
use crate::{
    cli::ServeArgs,
    http::{AppState, Front, router},
    jobs,
    limits::Limits,
    listener,
    live::{self, Follower, Live, LiveOptions, Webhook},
    prometheus::Sources,
    service::Service,
    store::{Store, StoreError},
};
use anyhow::{Context, bail};
use futures_util::future::join_all;
use std::{path::Path, sync::Arc, time::Duration};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch, time::timeout};

/// Time for requests in flight when the server is told to end.
const GRACE: Duration = Duration::from_secs(10);

/// Time for what still runs when the requests are over: the database, readers.
const LAST_GRACE: Duration = Duration::from_secs(3);

/// How often it is tried to remove what could not be removed.
const CLEARS_EVERY: Duration = Duration::from_mins(1);

/// The same where other servers may have ended amid an upload.
const LOOKS_AFTER_OTHERS: Duration = Duration::from_secs(5);

/// A shorter token for agents could be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Serves until SIGINT or SIGTERM.
pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    log::init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(args));
    end(runtime, LAST_GRACE);
    served
}

/// Ends the runtime. A thread that reads a file cannot be stopped; the process must not wait for it.
fn end(runtime: Runtime, grace: Duration) {
    runtime.shutdown_timeout(grace);
}

async fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let contradictions = args.contradictions();
    if !contradictions.is_empty() {
        bail!("{}", contradictions.join("; "));
    }
    let limits =
        Limits { max_file_bytes: args.max_file_bytes, max_request_bytes: args.max_request_bytes, ..Limits::default() };
    let url = args.database_url.as_ref();
    let bucket = args.objects.bucket();
    // With the rows in a database and the files in a bucket nothing is left that only one server could have.
    let opened = match (url, &bucket) {
        (Some(url), Some(bucket)) => Store::open_replica(&args.data, url, bucket).await,
        _ => Store::open_with(&args.data, url, bucket.as_ref()).await,
    };
    let store = opened.with_context(|| opening(&args.data, url))?;
    let token = args.agent_token_file.as_deref().map(read_token).transpose()?;
    let options = LiveOptions { keep_bytes: args.live_keep_bytes, token };
    let live = live(&args.data, &store, options).await.context("opening the live data")?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    let address = listener.local_addr()?;
    let gate = Arc::new(front_door::gate(args, &store));
    let provider = front_door::provider(args)?;
    let service = Arc::new(Service::new(store, limits));
    let front = Front::new(address, args.public_url.clone());
    let base_url = args.public_url.as_ref().map_or_else(|| format!("http://{address}"), ToString::to_string);
    let webhook = args.webhook_url.as_deref().map(|url| Webhook::new(url, &base_url)).transpose();
    let webhook = webhook.map_err(anyhow::Error::msg).context("--webhook-url")?;
    let mut state = AppState::new(Arc::clone(&service), front)
        .with_live(Arc::clone(&live))
        .with_prometheus(Sources::new(args.prometheus.clone()))
        .with_gate(Arc::clone(&gate));
    if let Some(provider) = provider {
        state = state.with_sign_in(provider, args.oidc.oidc_new_users);
    }
    let held = Arc::clone(&service);
    let clearing = tokio::spawn(async move {
        let every = if held.store.replica().is_some() { LOOKS_AFTER_OTHERS } else { CLEARS_EVERY };
        loop {
            tokio::time::sleep(every).await;
            held.store.clear_unfinished().await;
            if let Err(error) = held.store.clear_after_others().await {
                tracing::warn!(%error, "what other servers may have left behind could not be looked for");
            }
        }
    });
    let (end_work, work_ends) = watch::channel(false);
    let workers: Vec<_> =
        (0..args.workers).map(|_| tokio::spawn(jobs::work(Arc::clone(&service), work_ends.clone()))).collect();
    let frames = tokio::spawn(Arc::clone(&live).make_frames());
    let follower = Follower { live: Arc::clone(&live), service: Arc::clone(&service), webhook };
    let following = tokio::spawn(live::follow(follower));
    if !state.site.has_bundle {
        tracing::warn!("built without the browser bundle: pages are complete but do not move");
    }
    let stop = stop_signal()?;
    // Tests and scripts wait for this line.
    println!("Rankscope serves http://{address} (data in {})", args.data.display());
    front_door::announce(args, &gate, address, service.store.replica().is_some()).await?;
    let wanted =
        own_gpus::Wanted { library: args.nvml_library.clone(), proc: args.proc.clone(), sample: !args.no_sampler };
    let into = Arc::clone(&live);
    let own_gpus = tokio::task::spawn_blocking(move || own_gpus::start(&wanted, &into));

    let streams = Arc::clone(&live);
    let held = Arc::clone(&service);
    let (tell, is_taken) = tokio::sync::oneshot::channel();
    let stop = async move {
        tokio::select! {
            () = stop => {}
            () = held.store.lost() => {
                // Whoever waits for it is this function.
                let _ = tell.send(());
            }
        }
        // Streams never end by themselves; browsers come back when the server does.
        streams.end_streams();
    };
    listener::serve(listener, router(state), stop, GRACE).await;
    let own_gpus = async {
        if let Ok(Some(own_gpus)) = own_gpus.await {
            own_gpus.end().await;
        }
    };
    if timeout(LAST_GRACE, own_gpus).await.is_err() {
        tracing::warn!("the last readings of this machine's own GPUs were cut off");
    }
    end_work.send_replace(true);
    if timeout(LAST_GRACE, join_all(workers)).await.is_err() {
        tracing::warn!("a job in the background was cut off; it is done again by whoever is there");
    }
    clearing.abort();
    following.abort();
    frames.abort();
    if timeout(LAST_GRACE, live.close()).await.is_err() {
        tracing::warn!("live data that were still being written were cut off; what was acknowledged is kept");
    }
    if timeout(LAST_GRACE, service.store.close()).await.is_err() {
        tracing::warn!("uploads that were still being kept were cut off; the next start clears them up");
    }
    match service.reading() {
        0 => {}
        files => tracing::warn!(files, "files that were still being read were cut off"),
    }
    tracing::info!("ended");
    // What was told stays readable after the sender has gone.
    match (is_taken.await, url) {
        (Ok(()), Some(url)) => Err(StoreError::Served(url.clone()).into()),
        _ => Ok(()),
    }
}

/// Live data: in the data folder, or what all replicas have in common.
async fn live(data: &Path, store: &Store, options: LiveOptions) -> anyhow::Result<Arc<Live>> {
    let folder = data.join("live");
    let Some(place) = store.live_place() else {
        return Ok(tokio::task::spawn_blocking(move || Live::open(&folder, options)).await??);
    };
    if folder.exists() {
        tracing::warn!(
            folder = %folder.display(),
            "live samples of the time before the database and the bucket are not used any more; the folder may go"
        );
    }
    tracing::info!("live data are in the database, and other servers may share it and the bucket");
    Ok(Live::open_shared(place, options).await?)
}

/// A token from its file, without the line's end.
pub(super) fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let token = text.trim();
    if token.len() < SHORTEST_TOKEN {
        bail!("{} holds a token of fewer than {SHORTEST_TOKEN} characters; it could be guessed", path.display());
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Instant};

    #[test]
    fn a_thread_that_is_stuck_does_not_hold_the_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.spawn_blocking(|| thread::sleep(Duration::from_secs(20)));
        let started = Instant::now();
        end(runtime, Duration::from_millis(50));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
