//! The drawings of a report: memory over time, ranks against steps, peaks, input against memory, and what fills each
//! device.
//!
//! The generic functions draw on any plotters area, a canvas in the browser too. With the feature `native`, [`svg`]
//! writes SVG for the page or for files and [`png`] pictures for previews, from the same functions and with a font
//! of its own. A chart decides nothing: who stands out, the median and the capacity come with the figures.

mod axis;
mod band_numbers;
mod bands;
mod composition;
mod error;
mod flags;
mod heatmap;
mod ink;
mod labels;
mod palette;
mod peaks;
#[cfg(feature = "native")]
pub mod png;
mod reduce;
mod scatter;
mod segments;
mod style;
#[cfg(feature = "native")]
pub mod svg;
mod text;
mod ticks;
mod timeline;
mod words;

pub use bands::{BandsFigure, REST_NAME, band_look, bands_height, draw_bands, rest_look, rest_most};
pub use composition::{composition_height, draw_composition};
pub use error::ChartError;
pub use heatmap::{
    HeatmapRow, describe_heatmap, draw_heatmap, has_heatmap, heatmap_height, heatmap_is_even, heatmap_pattern,
    heatmap_rows,
};
pub use palette::{Pattern, Theme, Token, part_pattern, part_token};
pub use peaks::{draw_peaks, peaks_height};
pub use scatter::{draw_scatter, scatter_height};
pub use segments::{draw_segments, segments_height};
pub use style::{Axis, Geometry, Style};
pub use ticks::{peaks_unit, timeline_unit};
pub use timeline::{draw_timeline, timeline_height};
pub use words::{describe_composition, describe_peaks, describe_scatter, describe_timeline};

#[cfg(test)]
mod layout_tests;
