//! Draws lines, shapes and text in CSS pixels with named colours on any plotters area. Knows no chart.

use crate::error::ChartError;
use crate::palette::Token;
use crate::style::Style;
use crate::text;
use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::{Color, DrawingArea, DrawingBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontDesc, FontFamily, FontStyle, RGBAColor, ShapeStyle};

/// A point in CSS pixels.
pub(crate) type Point = (f64, f64);

/// Size of ticks and remarks in CSS pixels. Nothing is smaller.
pub(crate) const TICK: f64 = 11.5;
/// Size of labels in CSS pixels.
pub(crate) const LABEL: f64 = 12.0;
/// Height of a row of text in CSS pixels.
pub(crate) const ROW: f64 = 16.0;

/// An upright rectangle in CSS pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Frame {
    pub fn width(self) -> f64 {
        self.right - self.left
    }

    pub fn height(self) -> f64 {
        self.bottom - self.top
    }
}

/// A line's look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stroke {
    pub color: Token,
    pub width: f64,
    pub alpha: f64,
}

impl Stroke {
    pub fn new(color: Token, width: f64) -> Self {
        Self { color, width, alpha: 1.0 }
    }
}

/// A text's look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type {
    pub color: Token,
    pub size: f64,
    pub bold: bool,
}

impl Type {
    pub fn tick() -> Self {
        Self { color: Token::Dim, size: TICK, bold: false }
    }

    pub fn label(color: Token) -> Self {
        Self { color, size: LABEL, bold: false }
    }

    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub fn width(self, content: &str) -> f64 {
        text::width(content, self.size, self.bold)
    }

    pub fn fit(self, content: &str, max: f64) -> String {
        text::fit(content, self.size, self.bold, max)
    }
}

/// Which point of a text is given; vertically it is always the middle of the capitals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The pen: an area and a style.
pub(crate) struct Ink<'a, DB: DrawingBackend> {
    area: &'a DrawingArea<DB, Shift>,
    style: &'a Style,
}

impl<'a, DB: DrawingBackend> Ink<'a, DB> {
    pub fn new(area: &'a DrawingArea<DB, Shift>, style: &'a Style) -> Self {
        Self { area, style }
    }

    /// Size of the area.
    pub fn size(&self) -> (f64, f64) {
        let (width, height) = self.area.dim_in_pixel();
        (f64::from(width) / self.style.scale, f64::from(height) / self.style.scale)
    }

    /// Fails when a chart would be squeezed beyond reading.
    pub fn require(&self, least_width: f64, least_height: f64) -> Result<(f64, f64), ChartError> {
        let (width, height) = self.size();
        if width < least_width || height < least_height {
            return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
        }
        Ok((width, height))
    }

    fn unit(&self, pixels: f64) -> i32 {
        to_i32(pixels * self.style.scale)
    }

    fn at(&self, point: Point) -> (i32, i32) {
        (self.unit(point.0), self.unit(point.1))
    }

    fn rgba(&self, token: Token, alpha: f64) -> RGBAColor {
        self.style.palette.color(token).mix(alpha)
    }

    fn stroke(&self, stroke: Stroke) -> ShapeStyle {
        let width = self.unit(stroke.width).max(1).unsigned_abs();
        ShapeStyle { color: self.rgba(stroke.color, stroke.alpha), filled: false, stroke_width: width }
    }

    fn fill(&self, token: Token, alpha: f64) -> ShapeStyle {
        ShapeStyle { color: self.rgba(token, alpha), filled: true, stroke_width: 0 }
    }

    pub fn path(&self, points: impl IntoIterator<Item = Point>, stroke: Stroke) -> Result<(), ChartError> {
        let points: Vec<(i32, i32)> = points.into_iter().map(|point| self.at(point)).collect();
        if points.len() > 1 {
            self.area.draw(&PathElement::new(points, self.stroke(stroke)))?;
        }
        Ok(())
    }

    pub fn line(&self, from: Point, to: Point, stroke: Stroke) -> Result<(), ChartError> {
        self.path([from, to], stroke)
    }

    /// A horizontal hairline, sharp on whole pixels.
    pub fn across(&self, left: f64, right: f64, y: f64, color: Token) -> Result<(), ChartError> {
        let y = crisp(y);
        self.line((left, y), (right, y), Stroke::new(color, 1.0))
    }

    /// Dashes of `on` pixels with gaps of `off` pixels.
    pub fn dashed(&self, from: Point, to: Point, (on, off): (f64, f64), stroke: Stroke) -> Result<(), ChartError> {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let mut start = 0.0;
        while start < length {
            let end = (start + on).min(length);
            let point = |along: f64| (from.0 + dx * along / length, from.1 + dy * along / length);
            self.line(point(start), point(end), stroke)?;
            start += on + off;
        }
        Ok(())
    }

    pub fn rect(&self, frame: Frame, color: Token, alpha: f64) -> Result<(), ChartError> {
        let corners = [self.at((frame.left, frame.top)), self.at((frame.right, frame.bottom))];
        self.area.draw(&Rectangle::new(corners, self.fill(color, alpha)))?;
        Ok(())
    }

    pub fn outline(&self, frame: Frame, stroke: Stroke) -> Result<(), ChartError> {
        let Frame { left, top, right, bottom } = frame;
        self.path([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], stroke)
    }

    pub fn polygon(&self, points: impl IntoIterator<Item = Point>, color: Token, alpha: f64) -> Result<(), ChartError> {
        let points: Vec<(i32, i32)> = points.into_iter().map(|point| self.at(point)).collect();
        if points.len() > 2 {
            self.area.draw(&Polygon::new(points, self.fill(color, alpha)))?;
        }
        Ok(())
    }

    /// A filled disc.
    pub fn dot(&self, center: Point, radius: f64, color: Token) -> Result<(), ChartError> {
        self.area.draw(&Circle::new(self.at(center), self.unit(radius), self.fill(color, 1.0)))?;
        Ok(())
    }

    /// One line of text; `at` is the middle of its capitals at the anchored end.
    pub fn text(&self, content: &str, at: Point, anchor: Anchor, look: Type) -> Result<(), ChartError> {
        if content.is_empty() {
            return Ok(());
        }
        let horizontal = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let weight = if look.bold { FontStyle::Bold } else { FontStyle::Normal };
        let size = look.size * self.style.scale * self.style.text_scale;
        let font = FontDesc::new(FontFamily::Name(&self.style.font), size, weight);
        let style = font.color(&self.rgba(look.color, 1.0)).pos(Pos::new(horizontal, VPos::Center));
        self.area.draw_text(content, &style, self.at(at))?;
        Ok(())
    }
}

/// Moves a hairline to the middle of a pixel, where it is sharp.
pub(crate) fn crisp(position: f64) -> f64 {
    position.floor() + 0.5
}

/// Beyond this nothing is drawn; keeps sums of coordinates far from overflow.
const FAR: f64 = 1e7;

#[allow(clippy::cast_possible_truncation)] // clamped first
fn to_i32(value: f64) -> i32 {
    if value.is_nan() { 0 } else { value.round().clamp(-FAR, FAR) as i32 }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped first
pub(crate) fn whole(value: f64) -> u32 {
    if value.is_nan() { 0 } else { value.round().clamp(0.0, FAR) as u32 }
}
