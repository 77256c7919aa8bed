//! `/samples` and `/nodes`: what agents and probes send, and how the nodes are.

use super::{super::AppState, ApiJson, ApiPath, ApiQuery};
use crate::{
    access::{Principal, Who},
    accounts::Action,
    errors::{Problem, ProblemBody, ProblemKind, Result},
    listener::Peer,
    live::{
        Live, NotRemoved, Refused,
        batch::{BatchError, MAX_BODY},
        ended_event,
    },
};
use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt};
use rankscope_model::{Acknowledged, NodeStatus};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

/// A batch must have arrived within this.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// Seconds after which a sender that was sent back may try again.
const RETRY_AFTER: &str = "2";

/// The answer to a batch.
#[derive(Debug, Serialize, ToSchema)]
pub struct AcknowledgedAnswer {
    /// Every line of the source up to and with this one is on disk.
    acknowledged: u64,
}

/// All nodes.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodesAnswer {
    /// By name.
    #[schema(value_type = Vec<Object>)]
    nodes: Vec<NodeStatus>,
}

fn live(state: &AppState) -> Result<Arc<Live>> {
    let off = || Problem::new(ProblemKind::Unavailable, "This server takes no live data.");
    state.live.clone().ok_or_else(off)
}

/// Take a batch of an agent or a probe.
///
/// Lines of JSON, gzip-compressed with `Content-Encoding: gzip` or plain. The first line heads the batch and names its
/// source; each line after it has its position, `seq`. A line that comes twice counts once, so a batch without an
/// answer is simply sent again. The answer comes when the lines are on disk.
#[utoipa::path(post, path = "/samples", tag = "live",
    request_body(content = String, content_type = "application/x-ndjson", description = "`rankscope.live/1` or `rankscope.probe/1`"),
    responses(
        (status = 200, body = AcknowledgedAnswer),
        (status = 400, description = "Not a batch; `detail` says which line", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No token, or not this server's", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "The server has no token and takes live data from its own machine only", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Lines after `acknowledged` are missing and no line says that they were dropped", body = AcknowledgedAnswer),
        (status = 413, description = "The batch is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Too much is on its way; `Retry-After` says when to come back", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Nothing can be written now", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn post_samples(State(state): State<AppState>, request: Request) -> Result<Response> {
    let live = live(&state)?;
    let behind_proxy = state.front.is_behind_proxy();
    let who = Who::of(request.extensions());
    match who.principal {
        // The gate has seen that it may.
        Principal::Token(_) => {}
        Principal::SingleUser => may_send(live.token(), request.headers(), request.extensions(), behind_proxy)?,
        // On a server with accounts being on this machine is no reason to be listened to.
        Principal::Nobody | Principal::User(_) if live.token().is_none() => {
            let detail = "Send a token with the scope samples as Authorization: Bearer TOKEN.";
            return Err(Problem::new(ProblemKind::TokenMissing, detail));
        }
        Principal::Nobody | Principal::User(_) => {
            may_send(live.token(), request.headers(), request.extensions(), behind_proxy)?;
        }
    }
    let gzip = match request.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => false,
        Some(b"gzip") => true,
        Some(_) => {
            let detail = "Batches are sent with Content-Encoding gzip, or without one.";
            return Err(Problem::new(ProblemKind::UnsupportedMedia, detail));
        }
    };
    let body = body(request.into_body()).await?;
    match live.accept(body, gzip).await {
        Ok(acknowledged) => Ok(Json(Acknowledged { acknowledged }).into_response()),
        Err(Refused::Gap(acknowledged)) => {
            Ok((StatusCode::CONFLICT, Json(Acknowledged { acknowledged })).into_response())
        }
        Err(Refused::Batch(BatchError::TooLarge(why))) => Err(Problem::new(ProblemKind::RequestTooLarge, why)),
        Err(Refused::Batch(BatchError::Invalid(why))) => Err(Problem::invalid(why)),
        Err(Refused::Busy) => {
            let problem = Problem::new(ProblemKind::TooBusy, "Nothing of the batch was kept. Send it again later.");
            Ok(([(header::RETRY_AFTER, RETRY_AFTER)], problem).into_response())
        }
        Err(Refused::Failed { is_full }) => {
            let detail = if is_full {
                "The disk of this server is full. Nothing of the batch was kept; its operator must make room."
            } else {
                "The batch could not be written. Nothing of it was kept. Send it again later."
            };
            let problem = Problem::new(ProblemKind::Unavailable, detail).because("the live log");
            Ok(([(header::RETRY_AFTER, RETRY_AFTER)], problem).into_response())
        }
    }
}

async fn body(body: Body) -> Result<bytes::Bytes> {
    match timeout(BODY_WITHIN, axum::body::to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_over_limit(&error) => {
            let detail = format!("A batch may have {MAX_BODY} bytes; send fewer lines.");
            Err(Problem::new(ProblemKind::RequestTooLarge, detail))
        }
        Ok(Err(error)) => Err(Problem::invalid("The batch did not arrive whole.").because(error)),
        Err(_) => Err(Problem::new(ProblemKind::TooSlow, "The batch did not arrive in time. Nothing of it was kept.")),
    }
}

fn is_over_limit(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        cause = error.source();
    }
    false
}

/// With a token: whoever shows it. Without: this machine, unless somebody may come through a proxy on it.
fn may_send(token: Option<&str>, headers: &HeaderMap, extensions: &Extensions, behind_proxy: bool) -> Result<()> {
    if let Some(token) = token {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown =
            shown.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        // Digests: how long the comparison takes says nothing of the token.
        let is_it = shown.is_some_and(|(_, shown)| Sha256::digest(shown.trim()) == Sha256::digest(token));
        return if is_it {
            Ok(())
        } else {
            let detail =
                "Send the server's token as Authorization: Bearer TOKEN. Its operator set it with --agent-token-file.";
            Err(Problem::new(ProblemKind::TokenMissing, detail))
        };
    }
    let is_forwarded = headers.contains_key(header::FORWARDED) || headers.contains_key("x-forwarded-for");
    let is_here = extensions.get::<Peer>().is_some_and(|Peer(peer)| peer.ip().to_canonical().is_loopback());
    if is_here && !is_forwarded && !behind_proxy {
        return Ok(());
    }
    let detail = "This server has no token for senders, so it takes live data from its own machine only. Start it with \
        --agent-token-file FILE and give the same token to the agent.";
    Err(Problem::new(ProblemKind::SenderNotAllowed, detail))
}

/// All nodes as they are now.
#[utoipa::path(get, path = "/nodes", tag = "live", responses((status = 200, body = NodesAnswer)))]
pub async fn nodes(State(state): State<AppState>) -> Result<Json<NodesAnswer>> {
    let live = live(&state)?;
    let (nodes, _) = tokio::task::spawn_blocking(move || live.nodes()).await.map_err(Problem::internal)?;
    Ok(Json(NodesAnswer { nodes }))
}

/// Which node.
#[derive(Debug, Deserialize, ToSchema)]
pub struct NodeName {
    /// Its name, as `GET /nodes` tells it.
    node: String,
}

/// Remove a node that is gone for good.
///
/// It must be silent. Its runs stay, and it is there again as soon as its agent speaks.
#[utoipa::path(post, path = "/nodes/remove", tag = "live", request_body = NodeName,
    responses((status = 204),
        (status = 404, description = "No such node", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "It still sends", body = ProblemBody, content_type = "application/problem+json")))]
pub async fn remove_node(
    State(state): State<AppState>,
    who: Who,
    ApiJson(body): ApiJson<NodeName>,
) -> Result<StatusCode> {
    remove(&state, &who, body.node).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// For the API and for the form of the page.
pub async fn remove(state: &AppState, who: &Who, node: String) -> Result<()> {
    let live = live(state)?;
    match live.remove_node(&node).await {
        Ok(()) => {
            state.record(&who.principal, who.from, Action::NodeRemoved, &node).await;
            Ok(())
        }
        Err(NotRemoved::Unknown) => Err(Problem::new(ProblemKind::NotFound, "There is no node of this name.")),
        Err(NotRemoved::Speaks) => {
            let detail = "Its agent sends samples, so it would be back at once. End the agent first.";
            Err(Problem::new(ProblemKind::StillSpeaks, detail))
        }
        Err(NotRemoved::Failed(error)) => {
            let detail = "That the node is removed could not be written down, so it was left. Look at the server's disk or database.";
            Err(Problem::new(ProblemKind::Unavailable, detail).because(error))
        }
    }
}

/// Where a stream goes on.
#[derive(Debug, Deserialize, IntoParams)]
pub struct SinceQuery {
    /// The position of a page; a connection that comes back sends it as `Last-Event-ID`.
    since: Option<String>,
}

/// What changes on the nodes, as an event stream.
///
/// Each event `nodes` is an array: of a node of which only figures changed its `gpus`, of others its markup, `html`.
/// Whoever is slow gets the newest state of what it missed, never a queue.
#[utoipa::path(get, path = "/live/events", tag = "live", params(SinceQuery),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn node_events(
    State(state): State<AppState>,
    ApiQuery(query): ApiQuery<SinceQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let live = live(&state)?;
    let since = last_event(&headers).map(ToOwned::to_owned).or(query.since);
    Ok(event_stream(live.node_events(since.as_deref())))
}

/// How a run stands whose job goes on, as an event stream.
///
/// An event `run` for each change: `version` and `diagnosed_at` of the newest diagnosis, what was found meanwhile
/// (`notices`), and whether the job has `ended`; then the stream ends too.
#[utoipa::path(get, path = "/runs/{id}/live", tag = "live", params(("id" = String, Path)),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = 404, description = "No such run, or not one that began by itself", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub async fn run_events(
    State(state): State<AppState>,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let since = last_event(&headers).and_then(|id| id.parse().ok());
    let live = live(&state)?;
    if let Some(events) = live.run_events(&id, since) {
        return Ok(event_stream(events));
    }
    if let Some(row) = state.service.store.live_run(&id).await? {
        if row.ended.is_none()
            && let Some(events) = live.run_events_soon(&id, since).await
        {
            return Ok(event_stream(events));
        }
        // Whoever lost the connection before the end hears of it now.
        let report = state.service.store.report(&id, None).await?;
        let ended = ended_event(report.version, report.diagnosed_at.0);
        return Ok(event_stream(futures_util::stream::once(std::future::ready(ended))));
    }
    Err(Problem::new(ProblemKind::NotFound, "No run with this address began by itself."))
}

fn last_event(headers: &HeaderMap) -> Option<&str> {
    headers.get("last-event-id").and_then(|id| id.to_str().ok())
}

fn event_stream(events: impl Stream<Item = String> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Proxies that gather answers would hold events back.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events.map(Ok::<_, Infallible>))).into_response()
}
