//! What a share opens beside its page: the preview picture, the charts and their values. Read-only, and only of the
//! version that was shared.

use super::{
    AppState,
    api::{ApiPath, ApiQuery, SeriesAnswer, SeriesQuery, series_of},
    charts::{self, ChartQuery, Format},
};
use crate::errors::{Problem, Result};
use axum::{Json, extract::State, response::Response};

/// The picture that chats show beside the link.
pub async fn preview(State(state): State<AppState>, ApiPath(token): ApiPath<String>) -> Result<Response> {
    let report = state.service.store.shared_report(&token).await?;
    let drawn = tokio::task::spawn_blocking(move || rankscope_charts::png::preview(&report));
    let png = drawn.await.map_err(Problem::internal)?.map_err(Problem::internal)?;
    Ok(charts::picture(Format::Png, png))
}

/// Values behind the timeline.
pub async fn series(
    State(state): State<AppState>,
    ApiPath(token): ApiPath<String>,
    ApiQuery(query): ApiQuery<SeriesQuery>,
) -> Result<Json<SeriesAnswer>> {
    let shared = state.service.store.open_share(&token).await?;
    series_of(&state, &shared.run_id, Some(shared.version), &query).await
}

/// A chart.
pub async fn chart(
    State(state): State<AppState>,
    ApiPath((token, chart)): ApiPath<(String, String)>,
    ApiQuery(query): ApiQuery<ChartQuery>,
) -> Result<Response> {
    let shared = state.service.store.open_share(&token).await?;
    charts::chart_of(&state, &shared.run_id, Some(shared.version), &chart, query).await
}
