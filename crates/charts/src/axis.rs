//! The row of steps or times below a plot. Knows no figure.

use crate::error::ChartError;
use crate::ink::{Anchor, Frame, Ink, ROW, Type};
use crate::reduce::Mapping;
use crate::ticks;
use plotters::prelude::DrawingBackend;
use rankscope_model::SeriesAxis;

/// Height of the row of ticks below a plot; its text keeps clear of the zero beside the plot.
pub(crate) const AXIS_ROW: f64 = 19.0;
const EDGE: f64 = 8.0;

/// What the values of an axis are called.
pub(crate) fn word(axis: SeriesAxis) -> &'static str {
    match axis {
        SeriesAxis::Step => "step",
        SeriesAxis::UnixMicros | SeriesAxis::SinceStart => "time",
        SeriesAxis::Index => "index",
    }
}

/// Word and ticks below a plot, as many as have room before `limit`.
pub(crate) fn x_axis<DB: DrawingBackend>(
    ink: &Ink<'_, DB>,
    plot: Frame,
    mapping: &Mapping,
    axis: SeriesAxis,
    limit: f64,
) -> Result<(), ChartError> {
    let center = plot.bottom + AXIS_ROW - ROW / 2.0 + 1.0;
    ink.text(word(axis), (plot.left - EDGE + 2.0, center), Anchor::End, Type::tick())?;
    let wanted = (plot.width() / 66.0).max(1.5);
    let mut free_from = plot.left - 2.0;
    for (x, label) in ticks::x_ticks(axis, mapping.x_min, mapping.x_max, wanted) {
        let width = Type::tick().width(&label);
        let middle = mapping.x(x).min(limit - width / 2.0).max(plot.left + width / 2.0 - 2.0);
        if middle - width / 2.0 >= free_from {
            free_from = middle + width / 2.0 + EDGE;
            ink.text(&label, (middle, center), Anchor::Middle, Type::tick())?;
        }
    }
    Ok(())
}
