//! What can go wrong while drawing. For the caller of this crate only: pages show a figure or leave it out.

use plotters::drawing::DrawingAreaErrorKind;
use std::error::Error;

/// Why a chart was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The figure holds no point, bar or row.
    #[error("there is nothing to draw")]
    Empty,
    /// No readable chart fits into the area (sizes in CSS pixels).
    #[error("an area of {width} by {height} px is too small for this chart")]
    TooSmall {
        /// Width of the area.
        width: u32,
        /// Height of the area.
        height: u32,
    },
    /// The drawing backend failed.
    #[error("the drawing surface failed: {0}")]
    Surface(String),
    /// The picture could not be encoded.
    #[error("the picture could not be encoded: {0}")]
    Encode(String),
}

impl<E: Error + Send + Sync> From<DrawingAreaErrorKind<E>> for ChartError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Surface(error.to_string())
    }
}
