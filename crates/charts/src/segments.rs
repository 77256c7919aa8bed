//! The allocator's segments as strips, each as long as it is large: what is in use is dark, what is free is pale.
//! Fragmentation is a strip of many small gaps. Knows the figure, no backend.

use crate::error::ChartError;
use crate::ink::{Anchor, Frame, Ink, Stroke, TICK, Type, whole};
use crate::palette::Token;
use crate::style::{Axis, Geometry, Style};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{Bytes, SegmentFill, SegmentMap};

/// Strips at most.
const MOST_STRIPS: usize = 24;
const PITCH: f64 = 21.0;
const STRIP: f64 = 14.0;
const LEAST_STRIP: f64 = 6.0;
const HEADER: f64 = 22.0;
const EDGE: f64 = 8.0;
const LEAST_WIDTH: f64 = 200.0;
/// Steps of darkness.
const STEPS: u8 = 4;

/// The height in CSS pixels that the strips take; 0 without segments.
pub fn segments_height(figure: &SegmentMap) -> u32 {
    let strips = figure.segments.len().min(MOST_STRIPS);
    if strips == 0 { 0 } else { whole(HEADER + PITCH * strips as f64 + 2.0) }
}

/// Draws the segments from the top of the area.
pub fn draw_segments<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &SegmentMap,
    style: &Style,
) -> Result<Geometry, ChartError> {
    let ink = Ink::new(area, style);
    let (width, height) = ink.require(LEAST_WIDTH, 24.0)?;
    let strips: Vec<&SegmentFill> = figure.segments.iter().take(MOST_STRIPS).collect();
    let largest = strips.iter().map(|strip| strip.size).max().filter(|size| size.0 > 0).ok_or(ChartError::Empty)?;
    if height + 0.5 < f64::from(segments_height(figure)) {
        return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
    }
    let words = strips.iter().map(|strip| Type::tick().width(&told(strip))).fold(0.0, f64::max).min(width * 0.45);
    let right = width - words - EDGE;
    ink.text("segments by free bytes", (0.0, TICK / 2.0 + 1.0), Anchor::Start, Type::tick())?;
    ink.text("free of size", (width, TICK / 2.0 + 1.0), Anchor::End, Type::tick())?;
    for step in (0..=STEPS).rev() {
        for (number, strip) in strips.iter().enumerate() {
            let top = HEADER + number as f64 * PITCH;
            let length = (right * strip.size.0 as f64 / largest.0 as f64).max(LEAST_STRIP);
            parts(&ink, strip, step, Frame { left: 0.0, right: length, top, bottom: top + STRIP })?;
        }
    }
    for (number, strip) in strips.iter().enumerate() {
        let top = HEADER + number as f64 * PITCH;
        let length = (right * strip.size.0 as f64 / largest.0 as f64).max(LEAST_STRIP);
        ink.outline(
            Frame { left: 0.5, right: length, top: top + 0.5, bottom: top + STRIP - 0.5 },
            Stroke::new(Token::Rank, 1.0),
        )?;
        let look = Type::tick();
        ink.text(&look.fit(&told(strip), words), (width, top + STRIP / 2.0), Anchor::End, look)?;
    }
    Ok(Geometry {
        left: 0.0,
        right,
        top: HEADER,
        bottom: HEADER + PITCH * strips.len() as f64,
        x_min: 0,
        x_max: i64::try_from(strips.len()).unwrap_or(i64::MAX),
        y_max: largest.0,
        axis: Axis::Subject,
    })
}

fn told(strip: &SegmentFill) -> String {
    let free = strip.size.saturating_sub(strip.active);
    format!("{free} of {}", strip.size)
}

/// The parts of one darkness; neighbours are one rectangle.
fn parts<DB: DrawingBackend>(ink: &Ink<'_, DB>, strip: &SegmentFill, step: u8, frame: Frame) -> Result<(), ChartError> {
    let count = strip.parts.len().max(1) as f64;
    let step_of = |share: &u8| (*share).min(100).div_ceil(100 / STEPS).min(STEPS);
    let mut at = 0;
    while at < strip.parts.len() {
        let from = at;
        while strip.parts.get(at).is_some_and(|share| step_of(share) == step) {
            at += 1;
        }
        if at == from {
            at += 1;
            continue;
        }
        let x = |part: usize| frame.left + frame.width() * part as f64 / count;
        let (color, alpha) =
            if step == 0 { (Token::Free, 1.0) } else { (Token::Alloc, f64::from(step) / f64::from(STEPS)) };
        ink.rect(Frame { left: x(from), right: x(at), ..frame }, color, alpha)?;
    }
    Ok(())
}

/// The segments in one sentence, for readers who cannot see the picture.
pub(crate) fn describe(figure: &SegmentMap) -> String {
    let size: Bytes = figure.segments.iter().map(|segment| segment.size).sum();
    format!(
        "{} segments of {size}, those with most free bytes: {} free in {} pieces, the largest {}.",
        figure.segments.len(),
        figure.free,
        figure.pieces,
        figure.largest_free
    )
}
