//! The report's drawings as files: the same functions that draw in the page.

use super::{
    AppState,
    api::{ApiPath, ApiQuery},
};
use crate::{
    errors::{Problem, ProblemBody, ProblemKind, Result},
    live::Live,
    series::{QuantitySeries, Window, cut_timeline},
};
use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use rankscope_app::snapshots::{Drawn, Picture, Wanted, picture as picture_of_snapshots};
use rankscope_charts::{ChartError, Theme, png, svg};
use rankscope_model::Report;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Widths that can be asked for, in CSS pixels.
const WIDTHS: std::ops::RangeInclusive<u32> = 240..=2000;
/// Width when the query does not say.
const DEFAULT_WIDTH: u32 = 960;

/// Pixels of a PNG per CSS pixel: sharp on the screens that engineers have.
const DENSITY: u32 = 2;

/// How to draw.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
pub struct ChartQuery {
    /// First x of a timeline.
    from: Option<i64>,
    /// Last x of a timeline.
    to: Option<i64>,
    /// Of a run that began by itself: the last so many seconds, instead of `from` and `to`.
    last: Option<u32>,
    /// 240 to 2000 CSS pixels; 960 by default.
    width: Option<u32>,
    /// `light` (default), `dark`, or `page`: colours as the variables of the page's style sheet, for inlining.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "light")]
    theme: ThemeName,
    /// The newest by default.
    pub version: Option<u32>,
}

/// Themes by name.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ThemeName {
    #[default]
    Light,
    Dark,
    Page,
}

impl From<ThemeName> for Theme {
    fn from(name: ThemeName) -> Self {
        match name {
            ThemeName::Light => Self::Light,
            ThemeName::Dark => Self::Dark,
            ThemeName::Page => Self::Page,
        }
    }
}

/// A chart as SVG or PNG.
#[utoipa::path(get, path = "/runs/{id}/charts/{chart}", tag = "reports",
    params(("id" = String, Path),
        ("chart" = String, Path, description = "`timeline`, `heatmap`, `imbalance`, `scatter` or `composition`, with `.svg` or `.png`", example = "timeline.svg"),
        ChartQuery),
    responses((status = 200, description = "The picture", body = String, content_type = "image/svg+xml"),
        (status = 404, description = "No such run, or nothing to draw", body = ProblemBody, content_type = "application/problem+json")))]
pub async fn chart(
    State(state): State<AppState>,
    ApiPath((id, chart)): ApiPath<(String, String)>,
    ApiQuery(mut query): ApiQuery<ChartQuery>,
) -> Result<Response> {
    if let Some(last) = query.last
        && let Some(newest) = newest(&state, &id).await
    {
        query.from = Some(newest.saturating_sub(i64::from(last).saturating_mul(1_000_000)));
        query.to = Some(newest);
    }
    let report = state.service.store.report(&id, query.version).await?;
    if query.last.is_some() {
        // A run that is younger than what is asked for has no gap before its first sample.
        let lines = report.figures.timeline.iter().flat_map(|timeline| &timeline.lines);
        let first = lines.filter_map(|line| line.x.first().copied()).min();
        let latest = query.to.map_or(i64::MAX, |to| to.saturating_sub(1_000_000));
        query.from = query.from.map(|from| first.map_or(from, |first| from.max(first.min(latest))));
    }
    chart_of(&state, report, &chart, query, state.live.as_ref()).await
}

/// The same for owners and for visitors with a share; `report` is what they may see. With `live`, a part of a run that
/// began by itself is drawn at the full rate.
pub async fn chart_of(
    state: &AppState,
    mut report: Report,
    chart: &str,
    query: ChartQuery,
    live: Option<&Arc<Live>>,
) -> Result<Response> {
    let (kind, format) = parse_name(chart).ok_or_else(|| {
        Problem::new(
            ProblemKind::NotFound,
            "Charts are timeline, heatmap, imbalance, scatter and composition, each as .svg and .png.",
        )
    })?;
    let width = checked_width(query.width)?;
    let window = Window { from: query.from, to: query.to };
    if let Some(timeline) = report.figures.timeline.as_mut().filter(|_| kind.is_over_time() && !window.is_whole()) {
        let set = state.service.series(&report.run.id, report.version).await?;
        let reduced = set.get(timeline.quantity);
        let full = full_rate(state, live, &report.run.id, reduced, window).await;
        *timeline = cut_timeline(timeline, full.as_ref().or(reduced), window, 2 * width as usize);
    }
    let theme = query.theme.into();
    let drawn = tokio::task::spawn_blocking(move || draw(&report, kind, format, width, theme));
    Ok(picture(format, drawn.await.map_err(Problem::internal)?.map_err(undrawn)?))
}

/// The picture that chats show beside the address of a run, for who may see the run.
pub async fn preview(State(state): State<AppState>, ApiPath(id): ApiPath<String>) -> Result<Response> {
    preview_of(state.service.store.report(&id, None).await?).await
}

/// Verdict and chart of a report in the shape of a chat's card.
pub async fn preview_of(report: Report) -> Result<Response> {
    let drawn = tokio::task::spawn_blocking(move || png::preview(&report));
    Ok(picture(Format::Png, drawn.await.map_err(Problem::internal)?.map_err(Problem::internal)?))
}

/// The newest time that the nodes of a run told, if it began by itself.
async fn newest(state: &AppState, run: &str) -> Option<i64> {
    let row = state.service.store.live_run(run).await.ok().flatten()?;
    state.live.as_ref()?.newest(&row.key)
}

/// Every sample in a window of a run that began by itself, where they are still in the live log.
pub async fn full_rate(
    state: &AppState,
    live: Option<&Arc<Live>>,
    run: &str,
    reduced: Option<&QuantitySeries>,
    window: Window,
) -> Option<QuantitySeries> {
    let (live, reduced) = (live?, reduced.filter(|_| !window.is_whole())?);
    let row = state.service.store.live_run(run).await.ok().flatten()?;
    live.window(&row.key, reduced, window).await
}

/// How to draw a chart of snapshots.
#[derive(Debug, Clone, Deserialize, IntoParams)]
pub struct SnapshotChartQuery {
    /// The rank, as the snapshots page writes it in its address; the fullest by default.
    #[param(example = "0")]
    rank: Option<String>,
    /// 240 to 2000 CSS pixels; 960 by default.
    width: Option<u32>,
    /// `light` (default), `dark` or `page`.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "light")]
    theme: ThemeName,
}

/// A chart of the run's memory snapshots as SVG or PNG.
#[utoipa::path(get, path = "/runs/{id}/snapshots/charts/{chart}", tag = "reports",
    params(("id" = String, Path),
        ("chart" = String, Path, description = "`over-time` or `segments`, with `.svg` or `.png`", example = "over-time.svg"),
        SnapshotChartQuery),
    responses((status = 200, description = "The picture", body = String, content_type = "image/svg+xml"),
        (status = 404, description = "No such run, or nothing to draw", body = ProblemBody, content_type = "application/problem+json")))]
pub async fn snapshot_chart(
    State(state): State<AppState>,
    ApiPath((id, chart)): ApiPath<(String, String)>,
    ApiQuery(query): ApiQuery<SnapshotChartQuery>,
) -> Result<Response> {
    let known = chart.split_once('.').and_then(|(name, format)| Some((Picture::named(name)?, parse_format(format)?)));
    let (which, format) = known.ok_or_else(|| {
        Problem::new(ProblemKind::NotFound, "Charts of snapshots are over-time and segments, each as .svg and .png.")
    })?;
    let width = checked_width(query.width)?;
    let snapshots = state.service.snapshots(&id).await?;
    let wanted = Wanted { rank: query.rank, ..Wanted::default() };
    let density = (format == Format::Png).then_some(DENSITY);
    let drawn = Drawn { width, theme: query.theme.into(), density };
    let made = tokio::task::spawn_blocking(move || picture_of_snapshots(&snapshots, &wanted, which, drawn)).await;
    Ok(picture(format, made.map_err(Problem::internal)?.map_err(undrawn)?))
}

fn checked_width(width: Option<u32>) -> Result<u32> {
    let width = width.unwrap_or(DEFAULT_WIDTH);
    if WIDTHS.contains(&width) {
        return Ok(width);
    }
    Err(Problem::invalid(format!("width must be {} to {} pixels.", WIDTHS.start(), WIDTHS.end())))
}

fn undrawn(error: ChartError) -> Problem {
    match error {
        ChartError::Empty => Problem::new(ProblemKind::NoSuchChart, "The evidence has nothing for this chart."),
        ChartError::TooSmall { .. } => Problem::invalid("width is too small for this chart."),
        error => Problem::internal(error),
    }
}

/// The answer that carries a picture. An SVG opened on its own may load and run nothing.
pub fn picture(format: Format, bytes: Vec<u8>) -> Response {
    let kind = match format {
        Format::Svg => "image/svg+xml",
        Format::Png => "image/png",
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox"),
        ),
    ];
    (headers, bytes).into_response()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Timeline,
    Heatmap,
    Imbalance,
    Scatter,
    Composition,
}

impl Kind {
    /// Drawn from the columns over time, which a window can cut.
    fn is_over_time(self) -> bool {
        matches!(self, Self::Timeline | Self::Heatmap)
    }
}

/// Picture formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text that scales.
    Svg,
    /// Pixels, for places that show no SVG.
    Png,
}

fn parse_name(name: &str) -> Option<(Kind, Format)> {
    let (kind, format) = name.split_once('.')?;
    let kind = match kind {
        "timeline" => Kind::Timeline,
        "heatmap" => Kind::Heatmap,
        "imbalance" => Kind::Imbalance,
        "scatter" => Kind::Scatter,
        "composition" => Kind::Composition,
        _ => return None,
    };
    Some((kind, parse_format(format)?))
}

fn parse_format(format: &str) -> Option<Format> {
    match format {
        "svg" => Some(Format::Svg),
        "png" => Some(Format::Png),
        _ => None,
    }
}

fn draw(report: &Report, kind: Kind, format: Format, width: u32, theme: Theme) -> Result<Vec<u8>, ChartError> {
    let figures = &report.figures;
    let timeline = || figures.timeline.as_ref().ok_or(ChartError::Empty);
    let scatter = || figures.scatter.as_ref().ok_or(ChartError::Empty);
    let peaks = || figures.peaks.as_ref().ok_or(ChartError::Empty);
    match (kind, format) {
        (Kind::Timeline, Format::Svg) => svg::timeline(timeline()?, width, theme).map(String::into_bytes),
        (Kind::Timeline, Format::Png) => png::timeline(timeline()?, width, theme, DENSITY),
        (Kind::Heatmap, Format::Svg) => svg::heatmap(timeline()?, width, theme).map(String::into_bytes),
        (Kind::Heatmap, Format::Png) => png::heatmap(timeline()?, width, theme, DENSITY),
        (Kind::Scatter, Format::Svg) => svg::scatter(scatter()?, width, theme).map(String::into_bytes),
        (Kind::Scatter, Format::Png) => png::scatter(scatter()?, width, theme, DENSITY),
        (Kind::Imbalance, Format::Svg) => svg::peaks(peaks()?, width, theme).map(String::into_bytes),
        (Kind::Imbalance, Format::Png) => png::peaks(peaks()?, width, theme, DENSITY),
        (Kind::Composition, Format::Svg) => {
            svg::composition(&figures.composition, width, theme).map(String::into_bytes)
        }
        (Kind::Composition, Format::Png) => png::composition(&figures.composition, width, theme, DENSITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_asked_for_by_name_and_format() {
        assert_eq!(parse_name("imbalance.png"), Some((Kind::Imbalance, Format::Png)));
        assert_eq!(parse_name("heatmap.svg"), Some((Kind::Heatmap, Format::Svg)));
        for wrong in ["timeline", "timeline.gif", "heat.svg", ".svg", "timeline.svg.png"] {
            assert_eq!(parse_name(wrong), None, "{wrong}");
        }
    }
}
