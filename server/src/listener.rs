//! Accepts connections, bounds them, and lets them end in order. Knows nothing of what is served.

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use std::{future::Future, pin::pin, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};
use tower::ServiceExt;

/// Connections at the same time; more wait in the system's queue.
const MAX_CONNECTIONS: usize = 1024;
/// A request's head must have arrived by then, also the first one of a connection.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Pause after the system could not give a connection, for instance because files ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then waits for requests in flight, `grace` at most.
pub async fn serve(listener: TcpListener, app: Router, stop: impl Future<Output = ()>, grace: Duration) {
    let mut stop = pin!(stop);
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let service = TowerToHyperService::new(app.map_request(|request: Request<Incoming>| request.map(Body::new)));
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accept => accepted,
            () = &mut stop => break,
        };
        let (Ok((stream, _)), Ok(place)) = (accepted, place) else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Small answers are not held back to be joined with later ones.
        let _ = stream.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended early");
            }
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = sleep(grace) => tracing::warn!("requests in flight were cut off"),
    }
}
