//! Ranks against steps or time, coloured by how far each is from the median of its moment: who is always heavy is a
//! stripe, who takes turns is a scatter, what happened once is a spot. Knows the figure, no backend.

use crate::axis::{self, AXIS_ROW};
use crate::error::ChartError;
use crate::ink::{Anchor, Frame, Ink, ROW, TICK, Type, whole};
use crate::palette::Token;
use crate::reduce::Mapping;
use crate::style::{Geometry, Style};
use crate::ticks::ValueScale;
use crate::words;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{SeriesAxis, Subject, Timeline, TimelineLine, UnixMicros, lower_median};
use std::collections::BTreeSet;

/// Rows at most; beyond, each stands for several ranks and shows the one that is furthest from the median.
const MOST_ROWS: usize = 84;
/// Cells at most, so that a picture of noise stays light.
const MOST_CELLS: usize = 3200;
/// Width of a cell in CSS pixels, at least.
const LEAST_CELL: f64 = 5.0;
/// Shades on each side of the median.
const SHADES: i8 = 4;
/// Distances below this part of the highest value are ordinary, however small all distances are.
const CALM: f64 = 0.04;
/// From this shade on a rank counts as far above the median, in words.
const FAR_ABOVE: f64 = 2.0;
/// Who is far above at this part of all such moments is always the same one.
const MOSTLY: f64 = 0.7;
/// From so many moments on "each time" is said of them.
const OFTEN: usize = 3;
/// Of that many parts of the axis the last one must be calm for what was before it to be told as past.
const PAST_AFTER: usize = 10;
/// Places of all ranks together that the words are made of, at most: beyond, moments are taken together.
const MOST_WORDED: usize = 1 << 20;
/// The width by which the words take moments together.
const WORDED_WIDTH: f64 = 720.0;
const LEAST_WIDTH: f64 = 200.0;
const HEADER: f64 = 22.0;
const KEY: f64 = ROW + 6.0;
const SWATCH: f64 = 11.0;
const EDGE: f64 = 8.0;

/// The height in CSS pixels that the heatmap takes at a width; 0 where there is nothing to compare.
pub fn heatmap_height(figure: &Timeline, width: u32) -> u32 {
    Plan::new(figure, f64::from(width)).map_or(0, |plan| whole(plan.height()))
}

/// Whether a heatmap says more than the lines: at least two ranks, and three moments at which they can be compared.
pub fn has_heatmap(figure: &Timeline) -> bool {
    let with_points = figure.lines.iter().filter(|line| !line.x.is_empty() && !line.y.is_empty());
    with_points.count() >= 2 && moments(figure, 3) >= 3
}

/// Distinct places on the axis, counted up to `most`.
fn moments(figure: &Timeline, most: usize) -> usize {
    let mut seen = BTreeSet::new();
    for x in figure.lines.iter().flat_map(|line| line.x.iter().take(line.y.len())) {
        seen.insert(*x);
        if seen.len() >= most {
            break;
        }
    }
    seen.len()
}

/// Draws the heatmap from the top of the area; [`heatmap_height`] says how much it takes.
pub fn draw_heatmap<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Timeline,
    style: &Style,
) -> Result<Geometry, ChartError> {
    let ink = Ink::new(area, style);
    let (width, height) = ink.require(LEAST_WIDTH, 24.0)?;
    let plan = Plan::new(figure, width).ok_or(ChartError::Empty)?;
    if height + 0.5 < plan.height() || width - plan.left < LEAST_WIDTH / 2.0 {
        return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
    }
    let plot = Frame {
        left: plan.left,
        top: HEADER,
        right: width - 1.0,
        bottom: HEADER + plan.pitch * plan.rows.len() as f64,
    };
    let chart = Chart { ink, plan: &plan, plot };
    chart.cells()?;
    chart.names()?;
    chart.header()?;
    let mapping = Mapping {
        left: plot.left,
        width: plot.width(),
        bottom: plot.bottom,
        height: plot.height(),
        x_min: plan.x_min,
        x_max: plan.x_max,
        y_top: 1.0,
    };
    axis::x_axis(&chart.ink, plot, &mapping, figure.axis, width)?;
    chart.key(plot.bottom + AXIS_ROW + KEY / 2.0)?;
    Ok(Geometry {
        left: plot.left,
        right: plot.right,
        top: plot.top,
        bottom: plot.bottom,
        x_min: plan.x_min,
        x_max: plan.x_max,
        y_max: plan.highest,
        axis: figure.axis.into(),
    })
}

/// Who leaves the median, how often and whether it is always the same: what the picture shows at a glance, in words.
pub fn heatmap_pattern(figure: &Timeline) -> String {
    Plan::worded(figure).map_or(String::new(), |plan| plan.pattern())
}

/// Whether every moment is even. The picture is an empty field then, and [`heatmap_pattern`] says all of it.
pub fn heatmap_is_even(figure: &Timeline) -> bool {
    Plan::worded(figure).is_none_or(|plan| plan.is_even())
}

/// What one rank's row of the heatmap shows, in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeatmapRow {
    /// Whose row it is.
    pub subject: Subject,
    /// Whether the diagnosis names it.
    pub accused: bool,
    /// At how many moments it is far above the median.
    pub far_above: usize,
    /// Furthest above the median of a moment, in the unit of the figure.
    pub above: u64,
    /// Furthest below.
    pub below: u64,
}

/// The heatmap as a table; empty where there is nothing to compare.
pub fn heatmap_rows(figure: &Timeline) -> Vec<HeatmapRow> {
    Plan::worded(figure).map_or_else(Vec::new, |plan| plan.table)
}

/// The heatmap in one sentence, for readers who cannot see the picture.
pub fn describe_heatmap(figure: &Timeline) -> String {
    let subjects: Vec<Subject> = figure.lines.iter().map(|line| line.subject).collect();
    let quantity = figure.quantity.title();
    format!(
        "Distance of {} from the median {quantity} of each moment: {}.",
        words::count(&subjects),
        heatmap_pattern(figure)
    )
}

/// One row of cells.
struct Row {
    /// First and last subject that it stands for.
    subjects: (Subject, Subject),
    accused: bool,
    /// Shade per column, `None` before the first and after the last value.
    shades: Vec<Option<i8>>,
}

struct Plan<'a> {
    figure: &'a Timeline,
    rows: Vec<Row>,
    /// Subjects per row.
    each: usize,
    columns: usize,
    x_min: i64,
    x_max: i64,
    highest: u64,
    /// Greatest distance above and below the median, in the unit of the figure.
    above: u64,
    below: u64,
    left: f64,
    pitch: f64,
    kind: Option<&'static str>,
    /// Columns with two values or more.
    compared: usize,
    /// What a column is: a moment, or several of them.
    unit: &'static str,
    /// Columns with someone far above the median.
    hot_columns: usize,
    /// The time of the last of them, where the axis has times and nobody is far above in the last tenth of them: told as
    /// past.
    hot_last: Option<UnixMicros>,
    /// In how many columns each subject is far above; those without are left out.
    hot: Vec<(Subject, usize)>,
    table: Vec<HeatmapRow>,
}

impl<'a> Plan<'a> {
    /// For a picture of this width.
    fn new(figure: &'a Timeline, width: f64) -> Option<Self> {
        Self::over(figure, width, |rows, room| {
            let most = room.min(MOST_CELLS as f64 / rows as f64).max(8.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small positive number
            let most = most as usize;
            (moments(figure, most), false)
        })
    }

    /// For words and figures: every moment by itself, where the ranks have them in common and they are not too many.
    fn worded(figure: &'a Timeline) -> Option<Self> {
        let ranks = figure.lines.len().max(1);
        let most = MOST_WORDED / ranks;
        let all = moments(figure, most.saturating_add(1));
        let points: usize = figure.lines.iter().map(|line| line.x.len().min(line.y.len())).sum();
        if all > most || points.saturating_mul(2) < all.saturating_mul(ranks) {
            return Self::new(figure, WORDED_WIDTH);
        }
        Self::over(figure, WORDED_WIDTH, |_, _| (all, true))
    }

    /// `columns` of rows and the columns that have room says how many, and whether each is a moment.
    fn over(figure: &'a Timeline, width: f64, columns: impl FnOnce(usize, f64) -> (usize, bool)) -> Option<Self> {
        let lines: Vec<&TimelineLine> =
            figure.lines.iter().filter(|line| !line.x.is_empty() && !line.y.is_empty()).collect();
        if lines.len() < 2 {
            return None;
        }
        let points = || lines.iter().flat_map(|line| line.x.iter().zip(&line.y));
        let (x_min, x_max) = (points().map(|(x, _)| *x).min()?, points().map(|(x, _)| *x).max()?);
        let highest = points().map(|(_, y)| *y).max()?;
        if x_min == x_max {
            return None;
        }
        let each = lines.len().div_ceil(MOST_ROWS);
        let rows = lines.len().div_ceil(each);
        let kind = words::common_kind(lines.iter().map(|line| line.subject));
        let name = |line: &&TimelineLine| Type::tick().bold().width(&name(line.subject, kind));
        let pitch = pitch(rows);
        // Rows of several, and several thin rows under one name, are named from one to another.
        let has_spans = each > 1 || (is_thin(pitch) && lines.iter().filter(|line| line.accused).count() > 1);
        let range = if has_spans { Type::tick().width("\u{2013}") + 2.0 } else { 0.0 };
        let names = lines.iter().map(name).fold(0.0, f64::max) * if has_spans { 2.0 } else { 1.0 } + range;
        let words = Type::tick().width(kind.unwrap_or("")).max(Type::tick().width(axis::word(figure.axis)));
        let left = names.max(words).min(width * 0.3) + EDGE;
        let room = ((width - left) / LEAST_CELL).max(1.0);
        let (columns, is_exact) = columns(rows, room);
        let columns = columns.max(2);

        let places = is_exact.then(|| places(&lines));
        let grid = Grid { x_min, x_max, columns, places };
        let values: Vec<Vec<Option<u64>>> = lines.iter().map(|line| grid.values(line)).collect();
        let distances = distances(&values, columns);
        let all = || distances.iter().flatten().flatten().copied();
        let above = all().max().unwrap_or(0).max(0);
        let below = all().min().unwrap_or(0).min(0).abs();
        // The same shade means the same distance on both sides.
        let reach = (above.max(below) as f64).max(highest as f64 * CALM).max(1.0);
        let is_hot =
            |distance: Option<i128>| distance.is_some_and(|d| d as f64 / reach * f64::from(SHADES) >= FAR_ABOVE);
        let hot_in = |row: &Vec<Option<i128>>| row.iter().filter(|distance| is_hot(**distance)).count();
        let clamp = |distance: i128| u64::try_from(distance).unwrap_or(u64::MAX);
        let table: Vec<HeatmapRow> = lines
            .iter()
            .zip(&distances)
            .map(|(line, row)| HeatmapRow {
                subject: line.subject,
                accused: line.accused,
                far_above: hot_in(row),
                above: clamp(row.iter().flatten().copied().max().unwrap_or(0).max(0)),
                below: clamp(row.iter().flatten().copied().min().unwrap_or(0).min(0).abs()),
            })
            .collect();
        let hot = table.iter().filter(|row| row.far_above > 0).map(|row| (row.subject, row.far_above)).collect();
        let any = |column: usize, holds: &dyn Fn(Option<i128>) -> bool| {
            distances.iter().any(|row| holds(row.get(column).copied().flatten()))
        };
        let compared = (0..columns).filter(|column| any(*column, &|distance| distance.is_some())).count();
        let hot_columns = (0..columns).filter(|column| any(*column, &is_hot)).count();
        let hot_last = (0..columns)
            .rfind(|column| any(*column, &is_hot))
            .filter(|last| figure.axis == SeriesAxis::UnixMicros && last + 1 + columns.div_ceil(PAST_AFTER) <= columns)
            .map(|last| UnixMicros(grid.end(last)));
        let rows = lines
            .chunks(each)
            .zip(distances.chunks(each))
            .map(|(lines, distances)| Row {
                subjects: (lines[0].subject, lines[lines.len() - 1].subject),
                accused: lines.iter().any(|line| line.accused),
                shades: (0..columns).map(|column| shade(distances, column, reach)).collect(),
            })
            .collect();
        Some(Self {
            figure,
            rows,
            each,
            columns,
            x_min,
            x_max,
            highest,
            above: clamp(above),
            below: clamp(below),
            left,
            pitch,
            kind,
            compared,
            unit: if is_exact { "moments" } else { "stretches" },
            hot_columns,
            hot_last,
            hot,
            table,
        })
    }

    /// First and last of neighbouring accused rows. Where each has room for its name they stand alone.
    fn accused(&self) -> Vec<(usize, usize)> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        let has_span = is_thin(self.pitch) && self.kind.is_some();
        for (number, row) in self.rows.iter().enumerate().filter(|(_, row)| row.accused) {
            let goes_on = |(_, last): (usize, usize)| {
                let before = self.rows.get(last).map(|before| before.subjects.1);
                last + 1 == number && before.is_some_and(|before| words::is_next(before, row.subjects.0))
            };
            match spans.last_mut() {
                Some(span) if has_span && goes_on(*span) => span.1 = number,
                _ => spans.push((number, number)),
            }
        }
        spans
    }

    fn is_even(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.shades).flatten().all(|shade| *shade == 0)
    }

    /// Fixed, taking turns, or once.
    fn pattern(&self) -> String {
        let of = |n: usize| format!("{n} of {} {}", self.compared, self.unit);
        let always: Vec<Subject> = self
            .hot
            .iter()
            .filter(|(_, n)| *n as f64 >= self.hot_columns as f64 * MOSTLY)
            .map(|(subject, _)| *subject)
            .collect();
        // What is over is told in the past, with its time.
        let (is, are, last) = match self.hot_last {
            Some(last) => ("was", "were", format!(", last at {}", last.clock())),
            None => ("is", "are", String::new()),
        };
        let said = match (self.hot_columns, self.hot.as_slice(), always.as_slice()) {
            (0, ..) if self.is_even() => "nobody leaves the median".to_owned(),
            (0, ..) => "nobody is far above the median".to_owned(),
            (1, [(one, _)], _) => format!("{one} {is} far above the median at one moment only"),
            (n, _, [_, ..]) if always.len() <= 8 => {
                // Who stands out at half of all moments is not always heavy: only never another. Two moments are no habit.
                let how = match n {
                    n if n == self.compared => "always the same: ",
                    n if n >= OFTEN => "each time the same: ",
                    _ => "",
                };
                let verb = if always.len() == 1 { is } else { are };
                format!("{how}{} {verb} far above the median at {}", words::named(&always), of(n))
            }
            (n, hot, []) if n > 1 => {
                format!("taking turns: {} {are} far above the median, at {}", words::count(&subjects(hot)), of(n))
            }
            (n, hot, _) => format!("{} {are} far above the median, at {}", words::count(&subjects(hot)), of(n)),
        };
        format!("{said}{last}")
    }

    fn height(&self) -> f64 {
        HEADER + self.pitch * self.rows.len() as f64 + AXIS_ROW + KEY
    }
}

fn subjects(hot: &[(Subject, usize)]) -> Vec<Subject> {
    hot.iter().map(|(subject, _)| *subject).collect()
}

/// Too thin for a name at each row.
fn is_thin(pitch: f64) -> bool {
    pitch < TICK + 1.5
}

/// Height of a row among so many.
fn pitch(rows: usize) -> f64 {
    match rows {
        0..=8 => 20.0,
        9..=16 => 16.0,
        17..=32 => 10.0,
        33..=64 => 6.0,
        _ => 4.0,
    }
}

/// Equal columns over the axis.
struct Grid {
    x_min: i64,
    x_max: i64,
    columns: usize,
    /// A column for each of these instead of equal ones.
    places: Option<Vec<i64>>,
}

/// The distinct places on the axis, ascending.
fn places(lines: &[&TimelineLine]) -> Vec<i64> {
    let seen: BTreeSet<i64> = lines.iter().flat_map(|line| line.x.iter().take(line.y.len()).copied()).collect();
    seen.into_iter().collect()
}

impl Grid {
    fn column(&self, x: i64) -> usize {
        if let Some(places) = &self.places {
            return places.partition_point(|place| *place < x).min(self.columns - 1);
        }
        let span = i128::from(self.x_max) - i128::from(self.x_min) + 1;
        let at = i128::from(x) - i128::from(self.x_min);
        // Both factors are far below 2^64 and 2^12.
        usize::try_from(at * self.columns as i128 / span).unwrap_or(0).min(self.columns - 1)
    }

    /// The last place of a column.
    fn end(&self, column: usize) -> i64 {
        if let Some(places) = &self.places {
            return places.get(column).copied().unwrap_or(self.x_max);
        }
        let span = i128::from(self.x_max) - i128::from(self.x_min) + 1;
        let next = (column as i128 + 1) * span / self.columns.max(1) as i128;
        i64::try_from(i128::from(self.x_min) + next - 1).unwrap_or(self.x_max).min(self.x_max)
    }

    /// The highest value of each column. Between two values the earlier one holds.
    fn values(&self, line: &TimelineLine) -> Vec<Option<u64>> {
        let mut values: Vec<Option<u64>> = vec![None; self.columns];
        for (x, y) in line.x.iter().zip(&line.y) {
            if let Some(slot) = values.get_mut(self.column(*x)) {
                *slot = (*slot).max(Some(*y));
            }
        }
        let last = values.iter().rposition(Option::is_some).unwrap_or(0);
        let mut held = None;
        for value in values.iter_mut().take(last) {
            held = value.or(held);
            *value = held;
        }
        values
    }
}

/// Distance of each value from the median of its column; `None` where fewer than two can be compared.
fn distances(values: &[Vec<Option<u64>>], columns: usize) -> Vec<Vec<Option<i128>>> {
    let medians: Vec<Option<u64>> = (0..columns)
        .map(|column| {
            let present: Vec<u64> = values.iter().filter_map(|row| row.get(column).copied().flatten()).collect();
            lower_median(&present).filter(|_| present.len() >= 2)
        })
        .collect();
    let distance = |value: &Option<u64>, median: &Option<u64>| Some(i128::from((*value)?) - i128::from((*median)?));
    values.iter().map(|row| row.iter().zip(&medians).map(|(value, median)| distance(value, median)).collect()).collect()
}

/// The shade of a cell: of several subjects the one that is furthest from the median.
fn shade(distances: &[Vec<Option<i128>>], column: usize, reach: f64) -> Option<i8> {
    let of = |row: &Vec<Option<i128>>| row.get(column).copied().flatten();
    let distance = distances.iter().filter_map(of).max_by_key(|distance| (distance.abs(), *distance))?;
    #[allow(clippy::cast_possible_truncation)] // within the number of shades
    Some((distance as f64 / reach * f64::from(SHADES)).round().clamp(f64::from(-SHADES), f64::from(SHADES)) as i8)
}

/// Colour of a shade: blue below the median, hot above; the opacity tells them apart in print too.
fn paint(shade: i8) -> (Token, f64) {
    match shade {
        0 => (Token::Free, 1.0),
        1.. => (Token::Hot, f64::from(shade) / f64::from(SHADES)),
        _ => (Token::Alloc, f64::from(-shade) / f64::from(SHADES)),
    }
}

fn name(subject: Subject, kind: Option<&str>) -> String {
    if kind.is_some() { words::number(subject) } else { subject.to_string() }
}

struct Chart<'a, DB: DrawingBackend> {
    ink: Ink<'a, DB>,
    plan: &'a Plan<'a>,
    plot: Frame,
}

impl<DB: DrawingBackend> Chart<'_, DB> {
    /// Shade by shade, so that cells of one look become one element; neighbours of one shade are one rectangle.
    fn cells(&self) -> Result<(), ChartError> {
        let gap = if self.plan.pitch >= 10.0 { 1.5 } else { 0.0 };
        let width = self.plot.width() / self.plan.columns as f64;
        // Calm ones first; cells on top of them lie on the card's own paper, not on grey.
        let shades = std::iter::once(0).chain((1..=SHADES).flat_map(|shade| [-shade, shade]));
        for wanted in shades {
            let (color, alpha) = paint(wanted);
            for (number, row) in self.plan.rows.iter().enumerate() {
                let top = self.plot.top + number as f64 * self.plan.pitch;
                let mut column = 0;
                while column < row.shades.len() {
                    let from = column;
                    while row.shades.get(column) == Some(&Some(wanted)) {
                        column += 1;
                    }
                    if column > from {
                        let frame = Frame {
                            left: self.plot.left + from as f64 * width,
                            right: self.plot.left + column as f64 * width,
                            top,
                            bottom: top + self.plan.pitch - gap,
                        };
                        self.ink.rect(frame, color, alpha)?;
                    } else {
                        column += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Names beside the rows, those of the accused first, as many as have room.
    fn names(&self) -> Result<(), ChartError> {
        let rows = &self.plan.rows;
        let accused = self.plan.accused();
        let alone = |row: usize| (row, row);
        let is_free = |row: &usize| !accused.iter().any(|(from, to)| (*from..=*to).contains(row));
        let mut order = accused.clone();
        order.extend([0, rows.len() - 1].into_iter().filter(is_free).map(alone));
        let every = [1, 2, 4, 5, 8, 10, 16, 20].into_iter().find(|every| *every as f64 * self.plan.pitch >= TICK + 2.0);
        let ticks = (0..rows.len()).step_by(every.unwrap_or(rows.len()));
        order.extend(ticks.filter(is_free).map(alone));
        let mut taken: Vec<f64> = Vec::new();
        for (from, to) in order {
            let (row, end) = (&rows[from], &rows[to]);
            let half = (TICK / 2.0).min(self.plot.height() / 2.0);
            let y = self.plot.top + (f64::midpoint(from as f64, to as f64) + 0.5) * self.plan.pitch;
            let y = y.clamp(self.plot.top + half - 2.0, self.plot.bottom - half + 3.0);
            if taken.iter().any(|other| (other - y).abs() < TICK + 1.5) {
                continue;
            }
            taken.push(y);
            let (first, last) = (name(row.subjects.0, self.plan.kind), name(end.subjects.1, self.plan.kind));
            let text = if row.subjects.0 == end.subjects.1 { first } else { format!("{first}\u{2013}{last}") };
            let look = if row.accused { Type { color: Token::Hot, ..Type::tick().bold() } } else { Type::tick() };
            let text = look.fit(&text, self.plot.left - EDGE + 2.0);
            self.ink.text(&text, (self.plot.left - EDGE + 2.0, y), Anchor::End, look)?;
        }
        Ok(())
    }

    fn header(&self) -> Result<(), ChartError> {
        let center = TICK / 2.0 + 1.0;
        let (width, _) = self.ink.size();
        // What the numbers below it are.
        let margin = self.plot.left - EDGE + 2.0;
        self.ink.text(self.plan.kind.unwrap_or(""), (margin, center), Anchor::End, Type::tick())?;
        let left = if self.plan.kind.is_some() { self.plot.left } else { 0.0 };
        let heading = format!("{}, from the median of the moment", self.plan.figure.quantity.title());
        let heading = Type::tick().fit(&heading, width - left);
        self.ink.text(&heading, (left, center), Anchor::Start, Type::tick())?;
        if self.plan.each > 1 {
            let told = format!("a row is {} {}s", self.plan.each, self.plan.kind.unwrap_or("subject"));
            // Where it has no room the names of the rows tell it.
            if Type::tick().width(&told) <= width - left - Type::tick().width(&heading) - 2.0 * EDGE {
                self.ink.text(&told, (width, center), Anchor::End, Type::tick())?;
            }
        }
        Ok(())
    }

    /// The shades in a row, with the distance at both ends.
    fn key(&self, center: f64) -> Result<(), ChartError> {
        let plan = self.plan;
        let furthest = plan.above.max(plan.below);
        let scale = ValueScale::new(plan.figure.quantity, furthest, None, 2.0);
        let end = |sign: &str, value: u64| format!("{sign}{}", scale.long(value));
        // A side on which no cell has a shade is left out.
        let shown =
            |holds: &dyn Fn(i8) -> bool| plan.rows.iter().flat_map(|row| &row.shades).flatten().any(|s| holds(*s));
        let lowest = if shown(&|shade| shade < 0) { -SHADES } else { 0 };
        let highest = if shown(&|shade| shade > 0) { SHADES } else { 0 };
        let low = if lowest < 0 { end("\u{2212}", furthest) } else { "median".to_owned() };
        let high = if highest > 0 { end("+", furthest) } else { "median".to_owned() };
        let (width, _) = self.ink.size();
        // Both words must leave the shades between them their least width.
        let least = 3.0 * f64::from(highest - lowest + 1);
        let room = (width - 3.0 * EDGE - least) / 2.0;
        let (low, high) = (Type::tick().fit(&low, room), Type::tick().fit(&high, room));
        let words = Type::tick().width(&low) + Type::tick().width(&high) + 3.0 * EDGE;
        let swatch = ((width - words) / f64::from(highest - lowest + 1) - 1.0).clamp(2.0, SWATCH);
        let mut x = 0.0;
        self.ink.text(&low, (x, center), Anchor::Start, Type::tick())?;
        x += Type::tick().width(&low) + EDGE;
        for shade in lowest..=highest {
            let (color, alpha) = paint(shade);
            let half = SWATCH / 2.0;
            self.ink.rect(
                Frame { left: x, right: x + swatch, top: center - half, bottom: center + half },
                color,
                alpha,
            )?;
            x += swatch + 1.0;
        }
        if lowest < highest {
            self.ink.text(&high, (x + EDGE - 1.0, center), Anchor::Start, Type::tick())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{GIB, Quantity, Rank, SeriesAxis};

    fn figure(ranks: u32, steps: i64, value: impl Fn(u32, i64) -> u64) -> Timeline {
        let line = |rank: u32| TimelineLine {
            subject: Subject::Rank(Rank(rank)),
            x: (0..steps).collect(),
            y: (0..steps).map(|step| value(rank, step) * GIB).collect(),
            accused: false,
        };
        Timeline {
            quantity: Quantity::PeakAllocated,
            axis: SeriesAxis::Step,
            lines: (0..ranks).map(line).collect(),
            capacity: None,
            phases: vec![],
            marks: vec![],
        }
    }

    fn hot(plan: &Plan<'_>) -> Vec<(usize, usize)> {
        let cells = plan.rows.iter().enumerate().flat_map(|(row, cells)| {
            cells.shades.iter().enumerate().filter(|(_, shade)| **shade == Some(SHADES)).map(move |(c, _)| (row, c))
        });
        cells.collect()
    }

    #[test]
    fn fixed_rotating_and_single_heavy_ranks_look_different() {
        let fixed = figure(4, 20, |rank, _| if rank == 2 { 30 } else { 20 });
        let cells = hot(&Plan::new(&fixed, 720.0).unwrap());
        assert_eq!(cells.len(), 20);
        assert!(cells.iter().all(|(row, _)| *row == 2), "a stripe");

        let rotating = figure(4, 20, |rank, step| if i64::from(rank) == step % 4 { 30 } else { 20 });
        let cells = hot(&Plan::new(&rotating, 720.0).unwrap());
        assert_eq!(cells.len(), 20);
        assert!(cells.iter().all(|(row, column)| *row == column % 4), "one in each column");

        let once = figure(4, 20, |rank, step| if rank == 1 && step == 7 { 30 } else { 20 });
        assert_eq!(hot(&Plan::new(&once, 720.0).unwrap()), [(1, 7)], "a spot");
    }

    #[test]
    fn what_all_ranks_do_together_and_noise_are_calm() {
        let phases = figure(8, 40, |_, step| if step > 20 { 60 } else { 10 });
        assert!(heatmap_is_even(&phases));
        assert_eq!(heatmap_pattern(&phases), "nobody leaves the median");
        let mut noise = figure(8, 40, |_, _| 60);
        noise.lines[3].y[5] += GIB / 8;
        assert!(heatmap_is_even(&noise));
        assert!(!heatmap_is_even(&figure(4, 20, |rank, step| if rank == 1 && step == 7 { 30 } else { 20 })));
    }

    #[test]
    fn the_table_says_what_the_picture_shows() {
        let seldom = figure(4, 20, |rank, step| if rank == 1 && step % 4 == 3 { 30 } else { 20 });
        let rows = heatmap_rows(&seldom);
        assert_eq!(rows.iter().map(|row| row.far_above).collect::<Vec<_>>(), [0, 5, 0, 0]);
        assert_eq!((rows[1].above, rows[1].below), (10 * GIB, 0));
        let said = heatmap_pattern(&seldom);
        assert_eq!(said, "each time the same: rank 1 is far above the median at 5 of 20 moments");
        let always = heatmap_pattern(&figure(4, 20, |rank, _| if rank == 1 { 30 } else { 20 }));
        assert!(always.starts_with("always the same: rank 1 "), "{always}");
        let below = figure(4, 20, |rank, _| if rank == 1 { 10 } else { 20 });
        assert_eq!((heatmap_rows(&below)[1].below, heatmap_is_even(&below)), (10 * GIB, false));
        assert_eq!(heatmap_pattern(&below), "nobody is far above the median");
    }

    #[test]
    fn words_count_moments_however_few_columns_the_picture_has() {
        let many = figure(1000, 40, |rank, _| if rank == 7 { 30 } else { 20 });
        assert!(Plan::new(&many, 720.0).unwrap().columns < 40);
        assert_eq!(heatmap_pattern(&many), "always the same: rank 7 is far above the median at 40 of 40 moments");
        assert_eq!(heatmap_rows(&many)[7].far_above, 40);
        // Steps that are not equally far apart.
        let mut uneven = figure(4, 10, |rank, step| if rank == 1 && step == 9 { 30 } else { 20 });
        uneven.lines.iter_mut().for_each(|line| line.x[9] = 5000);
        assert_eq!(heatmap_pattern(&uneven), "rank 1 is far above the median at one moment only");
        // Ranks that were read at times of their own have no moments in common.
        let mut apart = figure(4, 100, |rank, _| if rank == 1 { 30 } else { 20 });
        for (n, line) in (0..).zip(&mut apart.lines) {
            line.x.iter_mut().for_each(|x| *x = *x * 10 + n);
        }
        assert!(heatmap_pattern(&apart).ends_with(" stretches"), "{}", heatmap_pattern(&apart));
    }

    #[test]
    fn what_is_over_is_told_in_the_past_with_its_time() {
        let timed = |until: i64| {
            let mut made = figure(4, 60, |rank, step| if rank == 2 && (10..until).contains(&step) { 30 } else { 20 });
            made.axis = SeriesAxis::UnixMicros;
            for line in &mut made.lines {
                line.x.iter_mut().for_each(|x| *x = 1_764_467_297_000_000 + *x * 1_000_000);
            }
            heatmap_pattern(&made)
        };
        assert_eq!(
            timed(14),
            "each time the same: rank 2 was far above the median at 4 of 60 moments, last at 01:48:30"
        );
        assert_eq!(timed(60), "each time the same: rank 2 is far above the median at 50 of 60 moments");
    }

    #[test]
    fn one_of_a_thousand_is_not_lost() {
        let many = figure(1000, 30, |rank, step| if rank == 777 && step == 11 { 30 } else { 20 });
        let plan = Plan::new(&many, 720.0).unwrap();
        assert!(plan.rows.len() <= MOST_ROWS);
        let cells = hot(&plan);
        assert_eq!(cells.len(), 1);
        let row = &plan.rows[cells[0].0];
        assert!((row.subjects.0..=row.subjects.1).contains(&Subject::Rank(Rank(777))));
    }

    #[test]
    fn a_line_that_ends_early_has_no_cells_after_its_end() {
        let mut ended = figure(3, 10, |_, _| 20);
        ended.lines[0].x.truncate(4);
        let plan = Plan::new(&ended, 720.0).unwrap();
        assert_eq!(plan.rows[0].shades.iter().filter(|shade| shade.is_some()).count(), 4);
    }
}
