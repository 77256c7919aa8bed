//! Charts as SVG text, for inlining into the page or as files of their own.

mod canvas;

use crate::bands::{BandsFigure, bands_height, draw_bands};
use crate::composition::{composition_height, draw_composition};
use crate::error::ChartError;
use crate::heatmap::{describe_heatmap, draw_heatmap, heatmap_height};
use crate::palette::{Palette, Theme, Token};
use crate::peaks::{draw_peaks, peaks_height};
use crate::scatter::{draw_scatter, scatter_height};
use crate::segments::{self, draw_segments, segments_height};
use crate::style::{Geometry, Style};
use crate::timeline::{draw_timeline, timeline_height};
use crate::words;
use canvas::{Canvas, UNITS, escaped};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea};
use rankscope_model::{Composition, Peaks, Scatter, SegmentMap, Timeline};

/// Widths in CSS pixels that a drawing is made for; others are taken as the nearest of these.
const WIDTHS: (u32, u32) = (240, 4000);

/// Memory over time.
pub fn timeline(figure: &Timeline, width: u32, theme: Theme) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, timeline_height(figure, width));
    let describe = || words::describe_timeline(figure);
    render("timeline", size, theme, describe, |area, style| draw_timeline(area, figure, style))
}

/// Ranks against steps or time.
pub fn heatmap(figure: &Timeline, width: u32, theme: Theme) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, heatmap_height(figure, width));
    let describe = || describe_heatmap(figure);
    render("heatmap", size, theme, describe, |area, style| draw_heatmap(area, figure, style))
}

/// Input against memory.
pub fn scatter(figure: &Scatter, width: u32, theme: Theme) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, scatter_height(figure, width));
    let describe = || words::describe_scatter(figure);
    render("scatter", size, theme, describe, |area, style| draw_scatter(area, figure, style))
}

/// Live memory over a recording by line of code, described by `label`.
pub fn bands(figure: BandsFigure<'_>, label: &str, width: u32, theme: Theme) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, bands_height(figure, width));
    render("bands", size, theme, || label.to_owned(), |area, style| draw_bands(area, figure, style))
}

/// The allocator's segments.
pub fn segments(figure: &SegmentMap, width: u32, theme: Theme) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, segments_height(figure));
    render("segments", size, theme, || segments::describe(figure), |area, style| draw_segments(area, figure, style))
}

/// The peak of each rank or device.
pub fn peaks(figure: &Peaks, width: u32, theme: Theme) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, peaks_height(figure, width));
    let describe = || words::describe_peaks(figure);
    render("peaks", size, theme, describe, |area, style| draw_peaks(area, figure, style))
}

/// The same with an axis that goes at least to `reaches` bytes, for drawings that stand side by side.
pub fn peaks_reaching(figure: &Peaks, width: u32, theme: Theme, reaches: u64) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let size = (width, peaks_height(figure, width));
    let describe = || words::describe_peaks(figure);
    render("peaks", size, theme, describe, |area, style| draw_peaks(area, figure, &style.clone().reaching(reaches)))
}

/// What fills each device. Pictures that stand alone carry their colour key; on the page the page draws it.
pub fn composition(rows: &[Composition], width: u32, theme: Theme) -> Result<String, ChartError> {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let has_key = theme != Theme::Page;
    let size = (width, composition_height(rows, width, has_key));
    let describe = || words::describe_composition(rows);
    render("composition", size, theme, describe, |area, style| {
        let style = if has_key { style.clone().with_key() } else { style.clone() };
        draw_composition(area, rows, &style)
    })
}

fn render(
    name: &str,
    (width, height): (u32, u32),
    theme: Theme,
    describe: impl FnOnce() -> String,
    draw: impl FnOnce(&DrawingArea<Canvas<'_>, Shift>, &Style) -> Result<Geometry, ChartError>,
) -> Result<String, ChartError> {
    if height == 0 {
        return Err(ChartError::Empty);
    }
    let mut body = String::new();
    // The canvas only borrows the text; the area that owns it is gone before the text is used.
    let geometry = {
        let palette = if theme == Theme::Page { Palette::stand_ins() } else { Palette::of(theme) };
        let style = Style::new(theme).with_palette(palette).with_scale(f64::from(UNITS));
        let area = Canvas::new(&mut body, (width, height), theme == Theme::Page).into_drawing_area();
        let geometry = draw(&area, &style)?;
        area.present()?;
        geometry
    };
    Ok(document(name, (width, height), theme, &describe(), &geometry, &body))
}

fn document(
    name: &str,
    (width, height): (u32, u32),
    theme: Theme,
    description: &str,
    geometry: &Geometry,
    body: &str,
) -> String {
    let Geometry { left, right, top, bottom, x_min, x_max, y_max, axis } = geometry;
    let family = if theme == Theme::Page { "inherit" } else { "Inter, system-ui, sans-serif" };
    let paper = if theme == Theme::Page {
        String::new()
    } else {
        let paper = Palette::of(theme).color(Token::Card);
        format!(r##"<rect width="{width}" height="{height}" fill="#{:02x}{:02x}{:02x}"/>"##, paper.0, paper.1, paper.2)
    };
    format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="chart chart-{name}" role="img" aria-label="{label}" "#,
            r#"width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="{family}" "#,
            r#"font-variant="tabular-nums" stroke-linejoin="round" data-axis="{axis}" data-plot-left="{left:.1}" "#,
            r#"data-plot-right="{right:.1}" data-plot-top="{top:.1}" data-plot-bottom="{bottom:.1}" "#,
            r#"data-x-min="{x_min}" data-x-max="{x_max}" data-y-max="{y_max}">{paper}{body}</svg>"#,
        ),
        name = name,
        label = escaped(description),
        width = width,
        height = height,
        family = family,
        axis = axis.slug(),
        left = left,
        right = right,
        top = top,
        bottom = bottom,
        x_min = x_min,
        x_max = x_max,
        y_max = y_max,
        paper = paper,
        body = body,
    )
}
