//! The peak of each rank or device as a column, with the median and the capacity; who stands out is hot, named on
//! a flag and set in bold below. Knows the figure, no backend.

use crate::error::ChartError;
use crate::flags::{self, Arrangement, Flag};
use crate::ink::{Anchor, Frame, Ink, ROW, Stroke, TICK, Type, crisp, whole};
use crate::labels::{self, Label};
use crate::palette::Token;
use crate::style::{Axis, Geometry, Style};
use crate::ticks::ValueScale;
use crate::timeline::y_max;
use crate::words;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{PeakBar, Peaks};

/// With more bars than this only the accused, the first and the last are named below.
const MOST_NAMED: usize = 64;
/// Neighbours drawn as one where the evidence does not say how many share a node.
const USUAL_GROUP: usize = 8;
/// Width of a column that stands for several, at least.
const LEAST_COLUMN: f64 = 3.0;
/// More flags than this would be read by nobody.
const MOST_FLAGS: usize = 6;
const WIDEST_BAR: f64 = 56.0;
const LEAST_WIDTH: f64 = 200.0;
const LEAST_PLOT_HEIGHT: f64 = 50.0;
const HEADER: f64 = 22.0;
/// Height of the row of names below the plot; its text keeps clear of the zero beside the plot.
const AXIS_ROW: f64 = 19.0;
const CAPACITY_ROOM: f64 = 14.0;
/// Room between flags and a plot without a capacity line, for the tick at its top.
const FLAG_ROOM: f64 = 7.0;
const EDGE: f64 = 8.0;
/// Free space between two names, so that `60` and `62` are not read as one number.
const NAME_GAP: f64 = 8.0;
/// Intervals of an axis that several drawings share.
const SHARED_TICKS: f64 = 3.0;

/// The height in CSS pixels that suits the peaks at a width.
pub fn peaks_height(figure: &Peaks, width: u32) -> u32 {
    let width = f64::from(width);
    let plot = (width * 0.22).clamp(130.0, 200.0);
    Plan::new(figure, width, plot, 0).map_or(0, |plan| whole(plan.above + plot + plan.below))
}

/// Draws the peaks so that they fill the area.
pub fn draw_peaks<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Peaks,
    style: &Style,
) -> Result<Geometry, ChartError> {
    let ink = Ink::new(area, style);
    let (width, height) = ink.require(LEAST_WIDTH, LEAST_PLOT_HEIGHT)?;
    let plan = Plan::new(figure, width, height - HEADER - 2.0 * ROW, style.reaches()).ok_or(ChartError::Empty)?;
    let plot = Frame { left: plan.left, top: plan.above, right: width - plan.gutter, bottom: height - plan.below };
    if plot.height() < LEAST_PLOT_HEIGHT {
        return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
    }
    let scale = plan.scale(plot.height());
    let chart = Chart { ink, figure, plan: &plan, plot, scale: &scale };
    chart.grid()?;
    chart.bars()?;
    chart.lines()?;
    chart.flags()?;
    chart.names()?;
    chart.header()?;
    Ok(Geometry {
        left: plot.left,
        right: plot.right,
        top: plot.top,
        bottom: plot.bottom,
        x_min: 0,
        x_max: i64::try_from(figure.bars.len()).unwrap_or(i64::MAX) - 1,
        y_max: y_max(scale.top),
        axis: Axis::Subject,
    })
}

/// What is decided before the height of the plot is known.
struct Plan<'a> {
    figure: &'a Peaks,
    /// The axis goes at least so far.
    reaches: u64,
    left: f64,
    gutter: f64,
    above: f64,
    /// Part of `above` between the flags and the plot.
    clearance: f64,
    below: f64,
    pitch: f64,
    /// The word for all subjects, if they are of one kind.
    kind: Option<&'static str>,
    /// Whether every bar has its value below its name.
    values: bool,
    /// How many neighbours one column stands for, where there are too many for one each, and what they are.
    grouped: Option<(usize, String)>,
    capacity: Option<u64>,
    /// Accused bars, each group under one name, the heaviest first.
    groups: Vec<Group>,
    /// Of the first of them.
    flags: Arrangement,
}

/// Accused bars that stand side by side and are numbered on: they share a flag and a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    first: usize,
    last: usize,
    highest: u64,
}

impl Group {
    fn len(self) -> usize {
        self.last - self.first + 1
    }

    fn holds(self, place: usize) -> bool {
        (self.first..=self.last).contains(&place)
    }

    /// The accused, the heaviest first. `each` leaves every bar on its own.
    fn of(bars: &[PeakBar], each: bool) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for (place, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.accused) {
            let goes_on = |group: &Self| {
                let before = bars.get(group.last).map(|bar| bar.subject);
                !each && group.last + 1 == place && before.is_some_and(|before| words::is_next(before, bar.subject))
            };
            match groups.last_mut() {
                Some(group) if goes_on(group) => {
                    group.last = place;
                    group.highest = group.highest.max(bar.peak.0);
                }
                _ => groups.push(Self { first: place, last: place, highest: bar.peak.0 }),
            }
        }
        groups.sort_by_key(|group| (std::cmp::Reverse(group.highest), group.first));
        groups
    }
}

impl<'a> Plan<'a> {
    fn new(figure: &'a Peaks, width: f64, plot_height: f64, reaches: u64) -> Option<Self> {
        let highest = figure.bars.iter().map(|bar| bar.peak.0).max()?.max(reaches);
        let capacity = figure.capacity.map(|bytes| bytes.0).filter(|capacity| *capacity > 0);
        // As in the timeline: a card that is nearly empty is not drawn to its full height.
        let capacity = capacity.filter(|capacity| highest as f64 >= *capacity as f64 * 0.12);
        let kind = words::common_kind(figure.bars.iter().map(|bar| bar.subject));
        let mut plan = Self {
            figure,
            reaches,
            left: 0.0,
            gutter: 0.0,
            above: HEADER,
            clearance: 0.0,
            below: AXIS_ROW + 4.0,
            pitch: 0.0,
            kind,
            values: false,
            grouped: None,
            capacity,
            groups: Vec::new(),
            flags: Arrangement { flags: Vec::new(), rows: 0 },
        };
        let scale = plan.scale(plot_height);
        let ticks = scale.ticks.iter().map(|tick| Type::tick().width(&scale.tick(*tick)));
        let words = [kind.unwrap_or(""), scale.unit.name].map(|word| Type::tick().width(word));
        plan.left = ticks.chain(words).fold(0.0, f64::max) + EDGE;
        let median = median_lines(figure, &scale);
        plan.gutter = median.iter().map(|line| Type::tick().width(line)).fold(0.0, f64::max) + EDGE;
        plan.pitch = (width - plan.left - plan.gutter).max(1.0) / figure.bars.len() as f64;

        let hot = Type::tick().bold();
        let widest_value = figure.bars.iter().map(|bar| hot.width(&scale.short(bar.peak.0))).fold(0.0, f64::max);
        plan.values = figure.bars.len() <= MOST_NAMED && widest_value + 4.0 <= plan.pitch;
        plan.grouped = plan.grouping();
        if plan.values || plan.grouped.is_some() {
            plan.below += ROW - 1.0;
        }

        // A bar with its value below it speaks for itself.
        plan.groups = Group::of(&figure.bars, plan.values);
        let flags: Vec<Flag> = plan
            .groups
            .iter()
            .take(MOST_FLAGS)
            .map(|group| Flag {
                x: crisp(plan.middle(*group)),
                wordings: words::bar_wordings(
                    figure.bars.get(group.first..=group.last).unwrap_or_default(),
                    figure.median,
                    &scale,
                ),
            })
            .collect();
        plan.flags = flags::arrange(&flags, Type::label(Token::Hot).bold(), 0.0, width);
        plan.clearance = match plan.capacity {
            Some(_) => CAPACITY_ROOM,
            None if plan.flags.rows > 0 => FLAG_ROOM,
            None => 0.0,
        };
        plan.above += plan.flags.height() + plan.clearance;
        Some(plan)
    }

    fn scale(&self, plot_height: f64) -> ValueScale {
        let highest = self
            .figure
            .bars
            .iter()
            .map(|bar| bar.peak.0)
            .max()
            .unwrap_or(0)
            .max(self.figure.median.0)
            .max(self.reaches);
        // Drawings that share a scale must not choose their ticks by their own height.
        let wanted = if self.reaches > 0 { SHARED_TICKS } else { (plot_height / 46.0).clamp(2.0, 5.0) };
        ValueScale::new(self.figure.quantity, highest, self.capacity, wanted)
    }

    /// Many bars are drawn node by node; beyond what has room, several nodes as one.
    fn grouping(&self) -> Option<(usize, String)> {
        let count = self.figure.bars.len();
        if count <= MOST_NAMED {
            return None;
        }
        let node = self.figure.per_node.and_then(|n| usize::try_from(n).ok()).filter(|n| (2..count).contains(n));
        let one = node.unwrap_or(USUAL_GROUP);
        let least = (LEAST_COLUMN / self.pitch).ceil();
        let times = (1..=count).find(|times| (one * times) as f64 >= least).unwrap_or(1);
        let kind = self.kind.unwrap_or("subject");
        let words = match (node, times) {
            (Some(node), 1) => format!("a column is a node of {node} {kind}s: highest, and mark of the lowest"),
            (Some(_), n) => format!("a column is {n} nodes ({} {kind}s): highest, and mark of the lowest", one * n),
            (None, n) => format!("a column is {} {kind}s: highest, and mark of the lowest", one * n),
        };
        Some((one * times, words))
    }

    fn center(&self, place: usize) -> f64 {
        self.left + (place as f64 + 0.5) * self.pitch
    }

    fn middle(&self, group: Group) -> f64 {
        f64::midpoint(self.center(group.first), self.center(group.last))
    }
}

fn median_lines(figure: &Peaks, scale: &ValueScale) -> [String; 2] {
    ["median".to_owned(), scale.long(figure.median.0)]
}

struct Chart<'a, DB: DrawingBackend> {
    ink: Ink<'a, DB>,
    figure: &'a Peaks,
    plan: &'a Plan<'a>,
    plot: Frame,
    scale: &'a ValueScale,
}

impl<DB: DrawingBackend> Chart<'_, DB> {
    fn y(&self, value: f64) -> f64 {
        self.plot.bottom - (value / self.scale.top).clamp(0.0, 1.0) * self.plot.height()
    }

    fn grid(&self) -> Result<(), ChartError> {
        for tick in &self.scale.ticks {
            let y = self.y(*tick);
            if *tick > 0.0 {
                self.ink.across(self.plot.left, self.plot.right, y, Token::Line)?;
            }
            self.ink.text(&self.scale.tick(*tick), (self.plot.left - EDGE + 2.0, y), Anchor::End, Type::tick())?;
        }
        Ok(())
    }

    fn bars(&self) -> Result<(), ChartError> {
        let bars = self.figure.bars.iter().enumerate();
        if let Some((size, _)) = self.plan.grouped {
            self.groups(size)?;
        } else {
            for (place, bar) in bars.clone().filter(|(_, bar)| !bar.accused) {
                self.bar(place, bar, Token::Rank, 0.0)?;
            }
        }
        // On top, and never too thin to be seen.
        for (place, bar) in bars.filter(|(_, bar)| bar.accused) {
            self.bar(place, bar, Token::Hot, 2.0)?;
        }
        self.ink.across(self.plot.left, self.plot.right, self.plot.bottom, Token::Rank)
    }

    fn bar(&self, place: usize, bar: &PeakBar, color: Token, least: f64) -> Result<(), ChartError> {
        let pitch = self.plan.pitch;
        let gap = if pitch > 24.0 { pitch * 0.28 } else { (pitch * 0.25).clamp(0.5, 6.0) };
        let half = (pitch - gap).clamp(least, WIDEST_BAR) / 2.0;
        let center = self.plan.center(place);
        let (left, right) = (center - half, center + half);
        let (top, bottom) = (self.y(bar.peak.0 as f64), self.plot.bottom);
        if half < 4.0 || bottom - top < 4.0 {
            return self.ink.rect(Frame { left, top, right, bottom }, color, 1.0);
        }
        // Upper corners rounded by 2 px, in two steps each.
        let corner = [
            (left, bottom),
            (left, top + 2.0),
            (left + 0.6, top + 0.6),
            (left + 2.0, top),
            (right - 2.0, top),
            (right - 0.6, top + 0.6),
            (right, top + 2.0),
            (right, bottom),
        ];
        self.ink.polygon(corner, color, 1.0)
    }

    /// Innocent bars, several as one column up to the highest; a mark in it stands at the lowest.
    fn groups(&self, size: usize) -> Result<(), ChartError> {
        let width = self.plan.pitch * size as f64;
        let gap = (width * 0.25).clamp(0.5, 3.0);
        let columns = self.figure.bars.chunks(size).enumerate().filter_map(|(number, bars)| {
            let innocent = || bars.iter().filter(|bar| !bar.accused).map(|bar| bar.peak.0);
            let left = self.plot.left + number as f64 * width;
            let right = left + self.plan.pitch * bars.len() as f64 - gap;
            Some((left, right.max(left + 0.5), innocent().min()?, innocent().max()?))
        });
        let columns: Vec<(f64, f64, u64, u64)> = columns.collect();
        for &(left, right, _, highest) in &columns {
            self.ink.rect(
                Frame { left, right, top: self.y(highest as f64), bottom: self.plot.bottom },
                Token::Rank,
                1.0,
            )?;
        }
        for &(left, right, lowest, highest) in &columns {
            let (lowest, highest) = (self.y(lowest as f64), self.y(highest as f64));
            if lowest - highest >= 2.0 {
                self.ink.rect(Frame { left, right, top: lowest - 0.5, bottom: lowest + 0.5 }, Token::Card, 1.0)?;
            }
        }
        Ok(())
    }

    fn lines(&self) -> Result<(), ChartError> {
        if let Some(capacity) = self.plan.capacity {
            let y = crisp(self.y(capacity as f64));
            self.ink.dashed((self.plot.left, y), (self.plot.right, y), (3.0, 4.0), Stroke::new(Token::Dim, 1.0))?;
            if let Some(right) = self.capacity_end(capacity) {
                let at = (right, y - CAPACITY_ROOM / 2.0 - 1.0);
                self.ink.text(&self.capacity_label(capacity), at, Anchor::End, Type::tick())?;
            }
        }
        let y = crisp(self.y(self.figure.median.0 as f64));
        self.ink.line((self.plot.left, y), (self.plot.right + EDGE - 3.0, y), Stroke::new(Token::Ink, 1.0))?;
        let label = Label { y, height: 2.0 * (TICK + 2.0), weight: 1, content: () };
        let highest = self.plot.top - self.plan.clearance.max(2.0);
        for label in labels::spread(vec![label], highest, self.plot.bottom + 2.0) {
            for (line, offset) in median_lines(self.figure, self.scale).iter().zip([-0.5, 0.5]) {
                let at = (self.plot.right + EDGE, label.y + offset * (TICK + 2.0));
                let look = if offset < 0.0 { Type::tick() } else { Type { color: Token::Ink, ..Type::tick() } };
                self.ink.text(line, at, Anchor::Start, look)?;
            }
        }
        Ok(())
    }

    fn capacity_label(&self, capacity: u64) -> String {
        format!("capacity {}", self.scale.long(capacity))
    }

    /// Where the label of the capacity ends, between the poles of the flags that pass through its row.
    fn capacity_end(&self, capacity: u64) -> Option<f64> {
        let width = Type::tick().width(&self.capacity_label(capacity));
        let flagged = self.plan.groups.iter().take(MOST_FLAGS);
        let poles: Vec<f64> = flagged.map(|group| crisp(self.plan.middle(*group))).collect();
        flags::between_poles(&poles, width, self.plot.left, self.plot.right)
    }

    fn flags(&self) -> Result<(), ChartError> {
        let rows_bottom = self.plan.above - self.plan.clearance;
        for (&group, flag) in self.plan.groups.iter().zip(&self.plan.flags.flags) {
            let Some(flag) = flag else { continue };
            let x = crisp(self.plan.middle(group));
            let row_top = rows_bottom - ROW * (flag.row as f64 + 1.0);
            let (at, anchor) = if flag.left > x { (flag.left, Anchor::Start) } else { (flag.right, Anchor::End) };
            let look = Type::label(Token::Hot).bold();
            self.ink.text(&flag.text, (at, row_top + ROW / 2.0), anchor, look)?;
            let top = self.y(group.highest as f64);
            if group.len() > 1 {
                // Over all that it speaks of, with its ends turned down.
                let (y, left, right) = (crisp(top - 5.0), self.plan.center(group.first), self.plan.center(group.last));
                self.ink.line((x, row_top + 2.0), (x, y), Stroke::new(Token::Hot, 1.0))?;
                let ends = [(left, y + 3.0), (left, y), (right, y), (right, y + 3.0)];
                self.ink.path(ends, Stroke::new(Token::Hot, 1.0))?;
                continue;
            }
            self.ink.line((x, row_top + 2.0), (x, top), Stroke::new(Token::Hot, 1.0))?;
            if self.plan.pitch < 9.0 {
                self.ink.dot((x, top), 3.0, Token::Hot)?;
            }
        }
        Ok(())
    }

    /// Names below the bars, the most telling first, as many as have room; then values, where all have room.
    fn names(&self) -> Result<(), ChartError> {
        let bars = &self.figure.bars;
        let center = self.plot.bottom + AXIS_ROW - ROW / 2.0 + 1.0;
        let margin = self.plot.left - EDGE + 2.0;
        self.ink.text(self.plan.kind.unwrap_or(""), (margin, center), Anchor::End, Type::tick())?;
        let alone = |place: usize| Group { first: place, last: place, highest: 0 };
        let mut order: Vec<Group> = self.plan.groups.clone();
        let is_named = |place: &usize| !self.plan.groups.iter().any(|group| group.holds(*place));
        order.extend([0, bars.len() - 1].into_iter().filter(is_named).map(alone));
        if bars.len() <= MOST_NAMED {
            let least = Type::tick().bold().width(&words::number(bars[bars.len() - 1].subject)) + NAME_GAP;
            let every = [1, 2, 4, 5, 8, 10, 16].into_iter().find(|every| *every as f64 * self.plan.pitch >= least);
            let ticks = (0..bars.len()).step_by(every.unwrap_or(bars.len()));
            order.extend(ticks.filter(is_named).map(alone));
        }
        let name = |bar: &PeakBar| {
            if self.plan.kind.is_some() { words::number(bar.subject) } else { bar.subject.to_string() }
        };
        let mut taken: Vec<(f64, f64)> = Vec::new();
        for group in order {
            let (Some(first), Some(last)) = (bars.get(group.first), bars.get(group.last)) else { continue };
            let name = if group.len() > 1 { format!("{}\u{2013}{}", name(first), name(last)) } else { name(first) };
            let look = look(first);
            let half = look.width(&name) / 2.0;
            let (width, _) = self.ink.size();
            let middle = self.plan.middle(group).clamp(self.plot.left + half - 4.0, width - half);
            if taken.iter().all(|(from, to)| middle + half + NAME_GAP <= *from || middle - half >= *to + NAME_GAP) {
                taken.push((middle - half, middle + half));
                self.ink.text(&name, (middle, center), Anchor::Middle, look)?;
            }
        }
        if let Some((_, told)) = &self.plan.grouped {
            let (width, _) = self.ink.size();
            let told = Type::tick().fit(told, width);
            self.ink.text(&told, (width, center + ROW - 1.0), Anchor::End, Type::tick())?;
        }
        if self.plan.values {
            let center = center + ROW - 1.0;
            self.ink.text(self.scale.unit.name, (margin, center), Anchor::End, Type::tick())?;
            for (place, bar) in bars.iter().enumerate() {
                let value = self.scale.short(bar.peak.0);
                self.ink.text(&value, (self.plan.center(place), center), Anchor::Middle, look(bar))?;
            }
        }
        Ok(())
    }

    fn header(&self) -> Result<(), ChartError> {
        let center = TICK / 2.0 + 1.0;
        let (width, _) = self.ink.size();
        let heading = self.scale.heading(self.figure.quantity);
        self.ink.text(&heading, (0.0, center), Anchor::Start, Type::tick())?;
        let room = width - Type::tick().width(&heading) - 2.0 * EDGE;
        let accused = self.figure.bars.iter().filter(|bar| bar.accused).count();
        let flagged = self.plan.groups.iter().zip(&self.plan.flags.flags).filter(|(_, flag)| flag.is_some());
        let named: usize = flagged.map(|(group, _)| group.len()).sum();
        let stand_out = format!("{accused} of {} stand out", self.figure.bars.len());
        let told = match (self.plan.capacity, self.figure.capacity) {
            (Some(capacity), _) if self.capacity_end(capacity).is_none() => Some(self.capacity_label(capacity)),
            (None, Some(capacity)) if capacity.0 > 0 => Some(format!("capacity {capacity}, above this scale")),
            _ => None,
        };
        let (remark, look) = match told {
            Some(told) if accused > named => (format!("{stand_out}, {told}"), Type::tick().bold()),
            Some(told) => (told, Type::tick()),
            None if accused > named => (stand_out, Type::tick().bold()),
            None => return Ok(()),
        };
        let look = if look.bold { Type { color: Token::Hot, ..look } } else { look };
        self.ink.text(&look.fit(&remark, room), (width, center), Anchor::End, look)
    }
}

fn look(bar: &PeakBar) -> Type {
    if bar.accused { Type { color: Token::Hot, ..Type::tick().bold() } } else { Type::tick() }
}
