//! A plotters backend that writes compact SVG: tenths of a pixel, CSS variables for stand-in colours, and one
//! element for a run of strokes or rectangles of the same look. plotters' own backend knows whole pixels only,
//! which makes steps out of lines, and one element per dash. Knows no chart.

use crate::palette::Palette;
use crate::style::PLOTTERS_EM;
use plotters_backend::text_anchor::HPos;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontStyle,
};
use std::convert::Infallible;
use std::fmt::Write;

/// Backend units per CSS pixel.
pub(super) const UNITS: u32 = 10;

/// Middle of the capitals above the baseline, in em.
const MIDDLE: f64 = 0.36;

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// Writes the inner elements of an SVG to a text.
pub(super) struct Canvas<'a> {
    out: &'a mut String,
    size: (u32, u32),
    has_variables: bool,
    open: Open,
}

/// The element that still grows.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    Nothing,
    /// Strokes of one colour and width (units).
    Strokes(Paint, u32),
    /// Rectangles of one colour.
    Rects(Paint),
}

/// A colour that can be compared.
#[derive(Clone, Copy, PartialEq)]
struct Paint {
    rgb: (u8, u8, u8),
    alpha: f64,
}

impl From<BackendColor> for Paint {
    fn from(color: BackendColor) -> Self {
        Self { rgb: color.rgb, alpha: color.alpha }
    }
}

impl<'a> Canvas<'a> {
    /// `size` in CSS pixels; with `has_variables`, stand-in colours become CSS variables.
    pub fn new(out: &'a mut String, size: (u32, u32), has_variables: bool) -> Self {
        Self { out, size, has_variables, open: Open::Nothing }
    }

    fn open(&mut self, next: Open) {
        if self.open == next {
            return;
        }
        self.close();
        match next {
            Open::Nothing => {}
            Open::Strokes(paint, width) => {
                let paint = self.paint("stroke", paint);
                let width = tenths(i64::from(width));
                let _ = write!(self.out, r#"<path fill="none"{paint} stroke-width="{width}" d=""#);
            }
            Open::Rects(paint) => {
                let paint = self.paint("fill", paint);
                let _ = write!(self.out, r#"<path{paint} d=""#);
            }
        }
        self.open = next;
    }

    fn close(&mut self) {
        if self.open != Open::Nothing {
            self.out.push_str("\"/>");
            self.open = Open::Nothing;
        }
    }

    /// ` fill="..."`, with the opacity where it is not full.
    fn paint(&self, attribute: &str, paint: impl Into<Paint>) -> String {
        let Paint { rgb, alpha } = paint.into();
        let value = self.color(rgb);
        let mut attributes = format!(r#" {attribute}="{value}""#);
        if alpha < 1.0 {
            let _ = write!(attributes, r#" {attribute}-opacity="{alpha:.2}""#);
        }
        attributes
    }

    fn color(&self, rgb: (u8, u8, u8)) -> String {
        if self.has_variables
            && let Some(token) = Palette::stand_in(rgb)
        {
            return format!("var({})", token.variable());
        }
        let (red, green, blue) = rgb;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    /// Moves to the first point, then goes on in relative steps, which are short.
    fn trace(&mut self, points: impl IntoIterator<Item = BackendCoord>) {
        let mut previous: Option<BackendCoord> = None;
        let mut command = ' ';
        for point in points {
            let Some(from) = previous.replace(point) else {
                self.out.push('M');
                self.pair(i64::from(point.0), i64::from(point.1));
                continue;
            };
            let (dx, dy) = (i64::from(point.0) - i64::from(from.0), i64::from(point.1) - i64::from(from.1));
            let next = match (dx, dy) {
                (0, 0) => continue,
                (_, 0) => 'h',
                (0, _) => 'v',
                _ => 'l',
            };
            let first = if next == 'v' { dy } else { dx };
            if next != command {
                self.out.push(next);
            } else if first >= 0 {
                self.out.push(' ');
            }
            command = next;
            match next {
                'h' | 'v' => self.out.push_str(&tenths(first)),
                _ => self.pair(dx, dy),
            }
        }
        if command == ' ' {
            // A line that goes nowhere is still valid.
            self.out.push_str("h0");
        }
    }

    fn pair(&mut self, x: i64, y: i64) {
        let _ = write!(self.out, "{}", tenths(x));
        if y >= 0 {
            self.out.push(' ');
        }
        let _ = write!(self.out, "{}", tenths(y));
    }
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.size.0 * UNITS, self.size.1 * UNITS)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        self.close();
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect(point, (point.0 + 1, point.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S, fill: bool) -> Drawn {
        let (left, right) = (a.0.min(b.0), a.0.max(b.0));
        let (top, bottom) = (a.1.min(b.1), a.1.max(b.1));
        if !fill {
            return self.draw_path([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], style);
        }
        self.open(Open::Rects(style.color().into()));
        let (width, height) = (i64::from(right) - i64::from(left), i64::from(bottom) - i64::from(top));
        self.out.push('M');
        self.pair(i64::from(left), i64::from(top));
        let _ = write!(self.out, "h{}v{}h{}z", tenths(width), tenths(height), tenths(-width));
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.open(Open::Strokes(style.color().into(), style.stroke_width()));
        self.trace(path);
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, center: BackendCoord, radius: u32, style: &S, fill: bool) -> Drawn {
        self.close();
        let paint = self.paint(if fill { "fill" } else { "stroke" }, style.color());
        let hollow = if fill { "" } else { r#" fill="none""# };
        let (x, y) = (tenths(i64::from(center.0)), tenths(i64::from(center.1)));
        let _ = write!(self.out, r#"<circle cx="{x}" cy="{y}" r="{}"{paint}{hollow}/>"#, tenths(i64::from(radius)));
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        // Polygons may turn either way, so two in one element could cancel each other out.
        self.close();
        self.open(Open::Rects(style.color().into()));
        self.trace(path);
        self.out.push('z');
        self.close();
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        self.close();
        let size = style.size() / PLOTTERS_EM / f64::from(UNITS);
        let anchor = match style.anchor().h_pos {
            HPos::Left => "",
            HPos::Center => r#" text-anchor="middle""#,
            HPos::Right => r#" text-anchor="end""#,
        };
        let weight = if matches!(style.style(), FontStyle::Bold) { r#" font-weight="600""# } else { "" };
        let paint = self.paint("fill", style.color());
        let (x, y) = (tenths(i64::from(at.0)), f64::from(at.1) / f64::from(UNITS) + MIDDLE * size);
        let size = (size * 10.0).round() / 10.0;
        let text = escaped(text);
        let _ = write!(self.out, r#"<text x="{x}" y="{y:.1}" font-size="{size}"{weight}{anchor}{paint}>{text}</text>"#);
        Ok(())
    }
}

/// Units as pixels: `12`, `-3.4`, `.5`.
fn tenths(units: i64) -> String {
    let (sign, size) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
    match (size / 10, size % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (0, tenth) => format!("{sign}.{tenth}"),
        (whole, tenth) => format!("{sign}{whole}.{tenth}"),
    }
}

/// Text for an attribute or an element; characters that XML forbids are left out.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {}
            other if other.is_control() => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_written_short() {
        for (units, text) in [(0, "0"), (5, ".5"), (-5, "-.5"), (120, "12"), (-34, "-3.4"), (1001, "100.1")] {
            assert_eq!(tenths(units), text);
        }
    }

    #[test]
    fn equal_strokes_share_an_element_and_colours_become_variables() {
        let mut out = String::new();
        let mut canvas = Canvas::new(&mut out, (100, 50), true);
        let hot = BackendColor { alpha: 1.0, rgb: (0, 0, 5) };
        canvas.draw_line((0, 5), (100, 5), &hot).unwrap();
        canvas.draw_line((0, 25), (100, 20), &hot).unwrap();
        canvas.present().unwrap();
        let expected = r#"<path fill="none" stroke="var(--hot)" stroke-width=".1" d="M0 .5h10M0 2.5l10-.5"/>"#;
        assert_eq!(out, expected);
    }
}
