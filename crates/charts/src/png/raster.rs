//! A plotters backend that fills exact coverage in fractions of a pixel, with the embedded font. plotters' own
//! bitmap backend knows whole pixels only, places glyphs on them, and its wide strokes break at sharp turns.
//! Knows no chart.

use crate::style::PLOTTERS_EM;
use ab_glyph::{Font, FontRef, GlyphId, PxScale, ScaleFont};
use ab_glyph_rasterizer::{Point, Rasterizer, point};
use plotters_backend::text_anchor::HPos;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontStyle,
};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::OnceLock;

/// Backend units per picture point.
pub(super) const UNITS: u32 = 8;

/// Middle of the capitals above the baseline, in em: half of Ubuntu's capitals.
const MIDDLE: f32 = 0.347;
/// How much the light face is thickened to each side, in em, for normal and for bold text.
const NORMAL_WEIGHT: f32 = 0.009;
const BOLD_WEIGHT: f32 = 0.034;

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// The picture: RGB, row by row. Shared, because plotters keeps the backend for itself.
pub(super) type Pixels = Rc<RefCell<Vec<u8>>>;

/// The font of all pictures.
pub(super) fn font() -> Option<&'static FontRef<'static>> {
    static FONT: OnceLock<Option<FontRef<'static>>> = OnceLock::new();
    FONT.get_or_init(|| FontRef::try_from_slice(epaint_default_fonts::UBUNTU_LIGHT).ok()).as_ref()
}

/// Whether the font has all letters of a text.
pub(super) fn can_write(text: &str) -> bool {
    font().is_some_and(|font| text.chars().all(|character| font.glyph_id(character) != GlyphId(0)))
}

/// Width of a text in the unit of its em; the exact one, as the font is known here.
pub(super) fn measure(text: &str, em: f64) -> f64 {
    font().map_or(0.0, |font| f64::from(shape(font, text, 1000.0).1) / 1000.0 * em)
}

/// Scale of the font at an em.
fn scale_of(font: &FontRef<'_>, em: f32) -> PxScale {
    PxScale::from(em * font.height_unscaled() / font.units_per_em().unwrap_or(1000.0))
}

/// Glyphs of a line with their offsets, and the width of the line.
fn shape(font: &FontRef<'_>, text: &str, em: f32) -> (Vec<(GlyphId, f32)>, f32) {
    let scaled = font.as_scaled(scale_of(font, em));
    let mut glyphs: Vec<(GlyphId, f32)> = Vec::new();
    let mut advance = 0.0f32;
    for character in text.chars() {
        let id = font.glyph_id(character);
        if let Some((previous, _)) = glyphs.last() {
            advance += scaled.kern(*previous, id);
        }
        glyphs.push((id, advance));
        advance += scaled.h_advance(id);
    }
    (glyphs, advance)
}

pub(super) struct Raster {
    pixels: Pixels,
    width: usize,
    height: usize,
}

impl Raster {
    /// Paper of one colour; `size` in picture points.
    pub fn new((width, height): (u32, u32), (red, green, blue): (u8, u8, u8)) -> Self {
        let (width, height) = (width as usize, height as usize);
        let pixels = [red, green, blue].repeat(width * height);
        Self { pixels: Rc::new(RefCell::new(pixels)), width, height }
    }

    /// The picture, to be taken when the drawing is done.
    pub fn pixels(&self) -> Pixels {
        Rc::clone(&self.pixels)
    }

    /// Fills the union of shapes, each a closed line of corners in picture points.
    fn fill(&self, shapes: &[Vec<Point>], color: BackendColor) {
        let (mut least, mut most) = (point(f32::MAX, f32::MAX), point(0.0f32, 0.0f32));
        for corner in shapes.iter().flatten() {
            least = point(least.x.min(corner.x), least.y.min(corner.y));
            most = point(most.x.max(corner.x), most.y.max(corner.y));
        }
        let (left, top) = (pixel(least.x, self.width), pixel(least.y, self.height));
        let (right, bottom) = (pixel(most.x.ceil(), self.width), pixel(most.y.ceil(), self.height));
        if right <= left || bottom <= top {
            return;
        }
        let (columns, rows) = (right - left, bottom - top);
        let mut rasterizer = Rasterizer::new(columns, rows);
        let inside = |corner: Point| {
            let (x, y) = (corner.x - left as f32, corner.y - top as f32);
            point(x.clamp(0.0, columns as f32), y.clamp(0.0, rows as f32))
        };
        for shape in shapes {
            // Shapes that overlap add up only when all turn the same way.
            let turns_right = doubled_area(shape) >= 0.0;
            for (a, b) in shape.iter().zip(shape.iter().cycle().skip(1)) {
                let (a, b) = (inside(*a), inside(*b));
                if turns_right { rasterizer.draw_line(a, b) } else { rasterizer.draw_line(b, a) }
            }
        }
        let mut pixels = self.pixels.borrow_mut();
        rasterizer.for_each_pixel_2d(|x, y, coverage| {
            let place = ((top + y as usize) * self.width + left + x as usize) * 3;
            blend(&mut pixels, place, color, coverage);
        });
    }

    fn stroke(&self, path: &[Point], width: f32, color: BackendColor) {
        let half = width / 2.0;
        let mut shapes = Vec::with_capacity(path.len() * 2);
        for (a, b) in path.iter().zip(path.iter().skip(1)) {
            let (dx, dy) = (b.x - a.x, b.y - a.y);
            let length = dx.hypot(dy);
            if length > 0.0 {
                let (nx, ny) = (-dy / length * half, dx / length * half);
                shapes.push(vec![
                    point(a.x + nx, a.y + ny),
                    point(b.x + nx, b.y + ny),
                    point(b.x - nx, b.y - ny),
                    point(a.x - nx, a.y - ny),
                ]);
            }
        }
        // Round joints; hairlines need none.
        if width > 1.2 && path.len() > 2 {
            shapes.extend(path[1..path.len() - 1].iter().map(|joint| disc(*joint, half, 10)));
        }
        self.fill(&shapes, color);
    }

    fn write(&self, text: &str, (x, y): (f32, f32), em: f32, anchor: HPos, is_bold: bool, color: BackendColor) {
        let Some(font) = font() else { return };
        let scale = scale_of(font, em);
        let (glyphs, advance) = shape(font, text, em);
        let start = match anchor {
            HPos::Left => x,
            HPos::Center => x - advance / 2.0,
            HPos::Right => x - advance,
        };
        let baseline = y + MIDDLE * em;
        let weight = em * if is_bold { BOLD_WEIGHT } else { NORMAL_WEIGHT };
        for (id, offset) in glyphs {
            self.glyph(font, id, scale, (start + offset, baseline), weight, color);
        }
    }

    /// One glyph, thickened by the union of shifted copies.
    fn glyph(
        &self,
        font: &FontRef<'_>,
        id: GlyphId,
        scale: PxScale,
        (x, y): (f32, f32),
        weight: f32,
        color: BackendColor,
    ) {
        let shifts = [(-weight, 0.0), (weight, 0.0), (0.0, -weight * 0.6), (0.0, weight * 0.6)];
        let outlines: Vec<_> = shifts
            .iter()
            .filter_map(|(dx, dy)| {
                font.outline_glyph(id.with_scale_and_position(scale, ab_glyph::point(x + dx, y + dy)))
            })
            .collect();
        let bounds: Vec<ab_glyph::Rect> = outlines.iter().map(ab_glyph::OutlinedGlyph::px_bounds).collect();
        let left = bounds.iter().map(|rect| rect.min.x).fold(f32::MAX, f32::min);
        let top = bounds.iter().map(|rect| rect.min.y).fold(f32::MAX, f32::min);
        let right = bounds.iter().map(|rect| rect.max.x).fold(f32::MIN, f32::max);
        let bottom = bounds.iter().map(|rect| rect.max.y).fold(f32::MIN, f32::max);
        if right <= left || bottom <= top {
            return;
        }
        let (columns, rows) = (pixel(right - left, 4096), pixel(bottom - top, 4096));
        let mut coverage = vec![0.0f32; columns * rows];
        for (outline, rect) in outlines.iter().zip(&bounds) {
            let (dx, dy) = (pixel(rect.min.x - left, columns), pixel(rect.min.y - top, rows));
            outline.draw(|x, y, share| {
                let (column, row) = (dx + x as usize, dy + y as usize);
                if column < columns
                    && let Some(cell) = coverage.get_mut(row * columns + column)
                {
                    *cell = cell.max(share);
                }
            });
        }
        let mut pixels = self.pixels.borrow_mut();
        for (index, share) in coverage.into_iter().enumerate().filter(|(_, share)| *share > 0.0) {
            let (column, row) = (left + (index % columns) as f32, top + (index / columns) as f32);
            if column < 0.0 || row < 0.0 || column >= self.width as f32 || row >= self.height as f32 {
                continue;
            }
            let place = (pixel(row, self.height) * self.width + pixel(column, self.width)) * 3;
            blend(&mut pixels, place, color, share);
        }
    }
}

/// Mixes a colour into the pixel that begins at `place`; nothing outside the picture.
fn blend(pixels: &mut [u8], place: usize, color: BackendColor, coverage: f32) {
    let Some([red, green, blue]) = pixels.get_mut(place..place + 3) else { return };
    #[allow(clippy::cast_possible_truncation)] // an opacity
    let share = (coverage * color.alpha as f32).clamp(0.0, 1.0);
    let (r, g, b) = color.rgb;
    for (under, over) in [(red, r), (green, g), (blue, b)] {
        let mixed = f32::from(*under) + (f32::from(over) - f32::from(*under)) * share;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between two bytes
        let mixed = mixed.round() as u8;
        *under = mixed;
    }
}

/// The pixel that a coordinate lies in, at most `end`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped first
fn pixel(coordinate: f32, end: usize) -> usize {
    (coordinate.max(0.0) as usize).min(end)
}

fn doubled_area(shape: &[Point]) -> f32 {
    shape.iter().zip(shape.iter().cycle().skip(1)).map(|(a, b)| a.x * b.y - b.x * a.y).sum()
}

fn disc(center: Point, radius: f32, corners: u16) -> Vec<Point> {
    (0..corners)
        .map(|corner| {
            let angle = f32::from(corner) / f32::from(corners) * std::f32::consts::TAU;
            point(center.x + radius * angle.cos(), center.y + radius * angle.sin())
        })
        .collect()
}

fn points(coordinate: BackendCoord) -> Point {
    point(coordinate.0 as f32 / UNITS as f32, coordinate.1 as f32 / UNITS as f32)
}

impl DrawingBackend for Raster {
    type ErrorType = Infallible;

    #[allow(clippy::cast_possible_truncation)] // made from two u32
    fn get_size(&self) -> (u32, u32) {
        (self.width as u32 * UNITS, self.height as u32 * UNITS)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect(at, (at.0 + 1, at.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S, fill: bool) -> Drawn {
        let corners = [a, (b.0, a.1), b, (a.0, b.1)];
        if fill { self.fill_polygon(corners, style) } else { self.draw_path(corners.into_iter().chain([a]), style) }
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        let path: Vec<Point> = path.into_iter().map(points).collect();
        self.stroke(&path, style.stroke_width() as f32 / UNITS as f32, style.color());
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, center: BackendCoord, radius: u32, style: &S, fill: bool) -> Drawn {
        let corners = disc(points(center), radius as f32 / UNITS as f32, 48);
        if fill {
            self.fill(&[corners], style.color());
        } else {
            let closed: Vec<Point> = corners.iter().copied().chain(corners.first().copied()).collect();
            self.stroke(&closed, style.stroke_width() as f32 / UNITS as f32, style.color());
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        let shape: Vec<Point> = path.into_iter().map(points).collect();
        self.fill(&[shape], style.color());
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        #[allow(clippy::cast_possible_truncation)] // a font size
        let em = (style.size() / PLOTTERS_EM) as f32 / UNITS as f32;
        let at = points(at);
        let is_bold = matches!(style.style(), FontStyle::Bold);
        self.write(text, (at.x, at.y), em, style.anchor().h_pos, is_bold, style.color());
        Ok(())
    }
}
