//! Charts as PNG, for previews and for places that take no SVG. Needs no font on the machine.

mod preview;
mod raster;

use crate::bands::{BandsFigure, bands_height, draw_bands};
use crate::composition::{composition_height, draw_composition};
use crate::error::ChartError;
use crate::heatmap::{draw_heatmap, heatmap_height};
use crate::palette::{Palette, Theme, Token};
use crate::peaks::{draw_peaks, peaks_height};
use crate::scatter::{draw_scatter, scatter_height};
use crate::segments::{draw_segments, segments_height};
use crate::style::{PLOTTERS_EM, Style};
use crate::timeline::{draw_timeline, timeline_height};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea};
use rankscope_model::{Composition, Peaks, Scatter, SegmentMap, Timeline};
use raster::{Raster, UNITS};

pub use preview::{PREVIEW_SIZE, preview};

/// Widths in CSS pixels that a picture is made for; others are taken as the nearest of these.
const WIDTHS: (u32, u32) = (240, 2000);

/// Memory over time, `width` CSS pixels wide at `density` picture points each (1 to 3).
pub fn timeline(figure: &Timeline, width: u32, theme: Theme, density: u32) -> Result<Vec<u8>, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, timeline_height(figure, width));
    render(size, theme, density, |area, style| draw_timeline(area, figure, style).map(drop))
}

/// Ranks against steps or time; sizes as in [`timeline`].
pub fn heatmap(figure: &Timeline, width: u32, theme: Theme, density: u32) -> Result<Vec<u8>, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, heatmap_height(figure, width));
    render(size, theme, density, |area, style| draw_heatmap(area, figure, style).map(drop))
}

/// Input against memory; sizes as in [`timeline`].
pub fn scatter(figure: &Scatter, width: u32, theme: Theme, density: u32) -> Result<Vec<u8>, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, scatter_height(figure, width));
    render(size, theme, density, |area, style| draw_scatter(area, figure, style).map(drop))
}

/// Live memory over a recording by line of code; sizes as in [`timeline`].
pub fn bands(figure: BandsFigure<'_>, width: u32, theme: Theme, density: u32) -> Result<Vec<u8>, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, bands_height(figure, width));
    render(size, theme, density, |area, style| draw_bands(area, figure, style).map(drop))
}

/// The allocator's segments; sizes as in [`timeline`].
pub fn segments(figure: &SegmentMap, width: u32, theme: Theme, density: u32) -> Result<Vec<u8>, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, segments_height(figure));
    render(size, theme, density, |area, style| draw_segments(area, figure, style).map(drop))
}

/// The peak of each rank or device; sizes as in [`timeline`].
pub fn peaks(figure: &Peaks, width: u32, theme: Theme, density: u32) -> Result<Vec<u8>, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, peaks_height(figure, width));
    render(size, theme, density, |area, style| draw_peaks(area, figure, style).map(drop))
}

/// What fills each device, with its colour key; sizes as in [`timeline`].
pub fn composition(rows: &[Composition], width: u32, theme: Theme, density: u32) -> Result<Vec<u8>, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, composition_height(rows, width, true));
    render(size, theme, density, |area, style| draw_composition(area, rows, &style.clone().with_key()).map(drop))
}

/// Free paper around the drawing, so that it can stand in a chat.
const MARGIN: u32 = 12;

fn render(
    (width, height): (u32, u32),
    theme: Theme,
    density: u32,
    draw: impl FnOnce(&DrawingArea<Raster, Shift>, &Style) -> Result<(), ChartError>,
) -> Result<Vec<u8>, ChartError> {
    if height == 0 {
        return Err(ChartError::Empty);
    }
    let density = density.clamp(1, 3);
    let size = ((width + 2 * MARGIN) * density, (height + 2 * MARGIN) * density);
    let unit = density * UNITS;
    picture(size, &Palette::of(theme), Token::Card, |area| {
        let inner = area.margin(MARGIN * unit, MARGIN * unit, MARGIN * unit, MARGIN * unit);
        draw(&inner, &style(theme, f64::from(unit)))
    })
}

fn style(theme: Theme, units_per_pixel: f64) -> Style {
    Style::new(theme).with_scale(units_per_pixel).with_text_scale(PLOTTERS_EM)
}

/// Draws on paper of one colour and encodes the picture; `size` in picture points.
fn picture(
    (width, height): (u32, u32),
    palette: &Palette,
    paper: Token,
    draw: impl FnOnce(&DrawingArea<Raster, Shift>) -> Result<(), ChartError>,
) -> Result<Vec<u8>, ChartError> {
    let paper = palette.color(paper);
    let raster = Raster::new((width, height), (paper.0, paper.1, paper.2));
    let pixels = raster.pixels();
    let area = raster.into_drawing_area();
    draw(&area)?;
    area.present()?;
    let pixels = pixels.take();
    encode((width, height), &pixels)
}

fn encode((width, height): (u32, u32), rgb: &[u8]) -> Result<Vec<u8>, ChartError> {
    let failed = |error: png::EncodingError| ChartError::Encode(error.to_string());
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(rgb).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}
