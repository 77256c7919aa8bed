//! Live memory over a recording, stacked by line of code: the widest lines below, each with its number, all others
//! on top. Who is accused is hot. Knows the figure, no backend.

use crate::axis::{self, AXIS_ROW};
use crate::band_numbers::{Band, Place, Room, places};
use crate::error::ChartError;
use crate::ink::{Anchor, Frame, Ink, LABEL, ROW, Stroke, TICK, Type, crisp, whole};
use crate::palette::Token;
use crate::reduce::Mapping;
use crate::style::{Geometry, Style};
use crate::ticks::ValueScale;
use crate::timeline::y_max;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{Quantity, SeriesAxis, SiteBands};

const LEAST_WIDTH: f64 = 200.0;
const LEAST_PLOT_HEIGHT: f64 = 60.0;
const HEADER: f64 = 22.0;
const EDGE: f64 = 8.0;
/// Room for the word at the peak.
const PEAK_ROOM: f64 = 15.0;
/// Width of one column of data in CSS pixels.
const COLUMN: f64 = 3.0;
/// From this width on the key has two columns.
const TWO_COLUMNS: f64 = 620.0;
const KEY_GAP: f64 = 8.0;
const SWATCH: f64 = 10.0;
/// Colours of ordinary lines in turn; neighbours always differ.
const SHADES: [(Token, f64); 6] = [
    (Token::Alloc, 1.0),
    (Token::Cached, 1.0),
    (Token::Ctx, 0.75),
    (Token::Alloc, 0.6),
    (Token::Rank, 0.55),
    (Token::Cached, 0.6),
];

/// What is drawn: the lines over time, which of them are accused, and the peak.
#[derive(Debug, Clone, Copy)]
pub struct BandsFigure<'a> {
    /// The lines over time.
    pub bands: &'a SiteBands,
    /// By position in `bands.sites`; what is not listed is not accused.
    pub accused: &'a [bool],
    /// Where the peak is, on the axis of the bands.
    pub peak: Option<i64>,
    /// Names of the lines, by position, for a key under a drawing that stands alone; none where a page has its own.
    pub names: &'a [String],
}

impl BandsFigure<'_> {
    fn key_height(&self, width: f64) -> f64 {
        if self.names.is_empty() {
            return 0.0;
        }
        let entries = self.names.len().min(self.bands.sites.len()) + usize::from(rest_most(self.bands) > 0);
        KEY_GAP + entries.div_ceil(key_columns(width)) as f64 * (ROW + 2.0)
    }
}

/// What the band of all other lines is called.
pub const REST_NAME: &str = "all other lines";

/// Most bytes of all other lines together at one moment; 0 where there are none.
pub fn rest_most(bands: &SiteBands) -> u64 {
    bands.rest.iter().max().copied().unwrap_or(0)
}

/// Colour and opacity of all other lines, as [`band_look`] gives those of one.
pub fn rest_look() -> (&'static str, f64) {
    (Token::Free.variable(), 1.0)
}

fn key_columns(width: f64) -> usize {
    if width >= TWO_COLUMNS { 2 } else { 1 }
}

/// Colour and opacity of a line, for its key beside the drawing: a CSS variable's name and a number from 0 to 1.
pub fn band_look(position: usize, accused: bool) -> (&'static str, f64) {
    let (token, alpha) = shade(position, accused);
    (token.variable(), alpha)
}

fn shade(position: usize, accused: bool) -> (Token, f64) {
    if accused {
        return (Token::Hot, if position.is_multiple_of(2) { 0.85 } else { 0.65 });
    }
    SHADES.get(position % SHADES.len()).copied().unwrap_or((Token::Rank, 1.0))
}

/// The height in CSS pixels that suits the bands at a width; 0 where there is nothing to draw.
pub fn bands_height(figure: BandsFigure<'_>, width: u32) -> u32 {
    if Columns::new(figure.bands, f64::from(width)).is_none() {
        return 0;
    }
    let plot = (f64::from(width) * 0.36).clamp(170.0, 320.0);
    whole(HEADER + PEAK_ROOM + plot + AXIS_ROW + figure.key_height(f64::from(width)))
}

/// Draws the bands so that they fill the area.
pub fn draw_bands<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: BandsFigure<'_>,
    style: &Style,
) -> Result<Geometry, ChartError> {
    let ink = Ink::new(area, style);
    let (width, height) = ink.require(LEAST_WIDTH, LEAST_PLOT_HEIGHT)?;
    let columns = Columns::new(figure.bands, width).ok_or(ChartError::Empty)?;
    let above = HEADER + PEAK_ROOM;
    let height = height - figure.key_height(width);
    let plot_height = height - above - AXIS_ROW;
    let scale = ValueScale::new(Quantity::Requested, columns.highest, None, (plot_height / 46.0).clamp(2.0, 5.0));
    let ticks = scale.ticks.iter().map(|tick| Type::tick().width(&scale.tick(*tick)));
    let word = Type::tick().width(axis::word(columns.axis));
    let left = ticks.chain([word]).fold(0.0, f64::max) + EDGE;
    let plot = Frame { left, top: above, right: width - EDGE, bottom: height - AXIS_ROW };
    if plot.height() < LEAST_PLOT_HEIGHT || plot.width() < LEAST_PLOT_HEIGHT {
        return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
    }
    let (x_min, x_max) = (columns.x[0], columns.x[columns.x.len() - 1]);
    let mapping = Mapping {
        left: plot.left,
        width: plot.width(),
        bottom: plot.bottom,
        height: plot.height(),
        x_min,
        x_max,
        y_top: scale.top,
    };
    let chart = Chart { ink, figure, columns: &columns, plot, scale: &scale, mapping };
    chart.grid()?;
    chart.bands()?;
    chart.peak()?;
    chart.key(height + KEY_GAP)?;
    chart.ink.text(&scale.heading(Quantity::Requested), (0.0, TICK / 2.0 + 1.0), Anchor::Start, Type::tick())?;
    axis::x_axis(&chart.ink, plot, &mapping, columns.axis, width)?;
    Ok(Geometry {
        left: plot.left,
        right: plot.right,
        top: plot.top,
        bottom: plot.bottom,
        x_min,
        x_max,
        y_max: y_max(scale.top),
        axis: columns.axis.into(),
    })
}

/// The moments that are drawn: of neighbours that would share a column the one at which most was live.
struct Columns {
    axis: SeriesAxis,
    x: Vec<i64>,
    /// Positions in the figure's columns.
    at: Vec<usize>,
    highest: u64,
}

impl Columns {
    /// `None` for less than two moments.
    fn new(bands: &SiteBands, width: f64) -> Option<Self> {
        let axis = bands.axis?;
        let count =
            bands.sites.iter().map(|site| site.bytes.len()).fold(bands.x.len().min(bands.rest.len()), usize::min);
        let total = |at: usize| {
            let sites = bands.sites.iter().filter_map(|site| site.bytes.get(at));
            sites.fold(bands.rest.get(at).copied().unwrap_or(0), |sum, bytes| sum.saturating_add(*bytes))
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small positive number
        let most = (width / COLUMN).max(2.0) as usize;
        let each = count.div_ceil(most).max(1);
        let mut at = Vec::new();
        let mut from = 0;
        while from < count {
            let to = (from + each).min(count);
            at.extend((from..to).max_by_key(|at| total(*at)));
            from = to;
        }
        let x: Vec<i64> = at.iter().filter_map(|at| bands.x.get(*at)).copied().collect();
        if x.len() < 2 || !x.is_sorted() || x.first() == x.last() {
            return None;
        }
        let highest = at.iter().map(|at| total(*at)).max()?;
        Some(Self { axis, x, at, highest })
    }
}

struct Chart<'a, DB: DrawingBackend> {
    ink: Ink<'a, DB>,
    figure: BandsFigure<'a>,
    columns: &'a Columns,
    plot: Frame,
    scale: &'a ValueScale,
    mapping: Mapping,
}

impl<DB: DrawingBackend> Chart<'_, DB> {
    fn grid(&self) -> Result<(), ChartError> {
        for tick in &self.scale.ticks {
            let y = self.mapping.y(*tick);
            self.ink.across(self.plot.left, self.plot.right, y, Token::Line)?;
            let label = self.scale.tick(*tick);
            self.ink.text(&label, (self.plot.left - EDGE + 2.0, y), Anchor::End, Type::tick())?;
        }
        Ok(())
    }

    /// Number, colour, name and most bytes of each line, and of all others.
    fn key(&self, top: f64) -> Result<(), ChartError> {
        let (width, _) = self.ink.size();
        let columns = key_columns(width);
        let named =
            self.figure.bands.sites.iter().zip(self.figure.names).enumerate().map(|(position, (site, name))| {
                let accused = self.figure.accused.get(position).copied().unwrap_or(false);
                let most = site.bytes.iter().max().copied().unwrap_or(0);
                Entry { number: (position + 1).to_string(), color: shade(position, accused), name, most, accused }
            });
        let mut entries: Vec<Entry> = named.collect();
        let rest = rest_most(self.figure.bands);
        if !entries.is_empty() && rest > 0 {
            let color = (Token::Free, 1.0);
            entries.push(Entry { number: String::new(), color, name: REST_NAME, most: rest, accused: false });
        }
        let rows = entries.len().div_ceil(columns).max(1);
        let pitch = width / columns as f64;
        for (position, entry) in entries.iter().enumerate() {
            let (left, right) = ((position / rows) as f64 * pitch, (position / rows + 1) as f64 * pitch - 2.0 * EDGE);
            let center = top + ((position % rows) as f64 + 0.5) * (ROW + 2.0);
            self.entry(entry, (left, right), center)?;
        }
        Ok(())
    }

    fn entry(&self, entry: &Entry<'_>, (left, right): (f64, f64), center: f64) -> Result<(), ChartError> {
        let look = if entry.accused { Type::label(Token::Hot).bold() } else { Type::tick() };
        let number = Type::tick().width("00");
        if !entry.number.is_empty() {
            self.ink.text(&entry.number, (left + number, center), Anchor::End, Type::tick())?;
        }
        let swatch = left + number + EDGE;
        let (color, alpha) = entry.color;
        let half = SWATCH / 2.0;
        let frame = Frame { left: swatch, right: swatch + SWATCH, top: center - half, bottom: center + half };
        self.ink.rect(frame, color, alpha)?;
        if color == Token::Free {
            self.ink.outline(frame, Stroke::new(Token::Line, 1.0))?;
        }
        let most = self.scale.long(entry.most);
        self.ink.text(&most, (right, center), Anchor::End, look)?;
        let start = swatch + SWATCH + EDGE;
        let room = right - look.width(&most) - EDGE - start;
        self.ink.text(&look.fit(entry.name, room), (start, center), Anchor::Start, look)
    }

    fn bands(&self) -> Result<(), ChartError> {
        let xs: Vec<f64> = self.columns.x.iter().map(|x| self.mapping.x(*x)).collect();
        let mut lower = vec![0.0; xs.len()];
        let mut numbered: Vec<Band> = Vec::new();
        let sites = self.figure.bands.sites.iter().map(|site| &site.bytes);
        let all = sites.chain([&self.figure.bands.rest]).enumerate();
        let count = self.figure.bands.sites.len();
        for (position, bytes) in all {
            let at = |column: &usize| bytes.get(*column).copied().unwrap_or(0) as f64;
            let upper: Vec<f64> = self.columns.at.iter().zip(&lower).map(|(column, low)| low + at(column)).collect();
            let heights = |values: &[f64]| values.iter().map(|value| self.mapping.y(*value)).collect::<Vec<f64>>();
            let (top, bottom) = (heights(&upper), heights(&lower));
            let edge = |ys: &[f64]| xs.iter().copied().zip(ys.iter().copied()).collect::<Vec<_>>();
            let outline = edge(&top).into_iter().chain(edge(&bottom).into_iter().rev());
            let accused = self.is_accused(position);
            let (color, alpha) = if position == count { (Token::Free, 1.0) } else { shade(position, accused) };
            self.ink.polygon(outline, color, alpha)?;
            self.ink.path(edge(&top), Stroke::new(Token::Card, 0.8))?;
            if position < count {
                numbered.push(Band {
                    upper: top,
                    lower: bottom,
                    width: self.number_look(position).width(&number(position)),
                });
            }
            lower = upper;
        }
        self.numbers(&xs, &numbered)?;
        self.ink.across(self.plot.left, self.plot.right, self.plot.bottom, Token::Rank)
    }

    fn is_accused(&self, position: usize) -> bool {
        self.figure.accused.get(position).copied().unwrap_or(false)
    }

    fn number_look(&self, position: usize) -> Type {
        if self.is_accused(position) { Type::label(Token::Card).bold() } else { Type::label(Token::Ink) }
    }

    /// Each number of the key once: in its band, or above the plot with a line to it.
    fn numbers(&self, xs: &[f64], bands: &[Band]) -> Result<(), ChartError> {
        let word = self.peak_word();
        let room = Room {
            plot: self.plot,
            row: HEADER + ROW / 2.0 - 1.0,
            word: word.as_ref().map(|word| (word.left, word.right)),
            peak: word.as_ref().map(|word| word.line),
        };
        for (position, place) in places(xs, bands, room).into_iter().enumerate() {
            match place {
                Place::Inside(at) => {
                    self.ink.text(&number(position), at, Anchor::Middle, self.number_look(position))?;
                }
                Place::Above { number: at, tip } => {
                    let color = if self.is_accused(position) { Token::Hot } else { Token::Ink };
                    self.ink.line((at.0, at.1 + LABEL / 2.0 + 1.0), tip, Stroke::new(color, 0.8))?;
                    self.ink.dot(tip, 1.6, color)?;
                    self.ink.text(&number(position), at, Anchor::Middle, Type::label(color))?;
                }
                Place::Nowhere => {}
            }
        }
        Ok(())
    }

    /// The word at the peak and where it stands; `None` where the peak is not in the drawing.
    fn peak_word(&self) -> Option<PeakWord> {
        let peak = self.figure.peak.filter(|peak| (self.mapping.x_min..=self.mapping.x_max).contains(peak))?;
        let line = crisp(self.mapping.x(peak));
        let text = format!("peak {}", self.scale.long(self.columns.highest));
        let width = Type::tick().width(&text);
        let after = line + 5.0 + width <= self.plot.right + EDGE;
        let left = if after { line + 5.0 } else { line - 5.0 - width };
        Some(PeakWord { text, line, left, right: left + width, after })
    }

    fn peak(&self) -> Result<(), ChartError> {
        let Some(word) = self.peak_word() else { return Ok(()) };
        let (from, to) = ((word.line, HEADER + 2.0), (word.line, self.plot.bottom));
        self.ink.dashed(from, to, (2.0, 3.0), Stroke::new(Token::Ink, 1.0))?;
        let (at, anchor) = if word.after { (word.left, Anchor::Start) } else { (word.right, Anchor::End) };
        self.ink.text(&word.text, (at, HEADER + ROW / 2.0 - 1.0), anchor, Type::tick())
    }
}

/// A line of the key.
struct Entry<'a> {
    /// Empty for all other lines.
    number: String,
    color: (Token, f64),
    name: &'a str,
    most: u64,
    accused: bool,
}

/// The word at the peak.
struct PeakWord {
    text: String,
    /// x of the peak's line.
    line: f64,
    left: f64,
    right: f64,
    /// It stands to the right of the line.
    after: bool,
}

/// What a band is called in the drawing and in its key.
fn number(position: usize) -> String {
    (position + 1).to_string()
}
