//! What fills each device: one stacked bar per device up to its capacity, the sum at its end. What belongs to
//! somebody else is hot, striped and named. Knows the figure, no backend.

use crate::error::ChartError;
use crate::ink::{Anchor, Frame, Ink, ROW, Stroke, Type, whole};
use crate::palette::{Pattern, Token, part_color, part_pattern};
use crate::style::{Axis, Geometry, Style};
use crate::ticks::ValueScale;
use crate::timeline::y_max;
use crate::words;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{Bytes, Composition, Part, PartKind, Quantity};

/// With more devices than this only the accused, the first and the last keep a full row.
const MOST_NAMED: usize = 64;
/// Full rows at most, once there are too many.
const MOST_FULL: usize = 24;
/// Thin rows at most; beyond, each stands for several devices.
const MOST_THIN: usize = 200;
const THIN: f64 = 2.0;
const LEAST_WIDTH: f64 = 200.0;
const LEAST_PLOT_WIDTH: f64 = 40.0;
const AXIS: f64 = 20.0;
const EDGE: f64 = 8.0;
const REMARK: f64 = 15.0;
/// From stripe to stripe of a pattern.
const APART: f64 = 6.0;
const LEVEL_APART: f64 = 4.0;

/// The height in CSS pixels that the rows take at a width; `key` as in [`Style::with_key`].
pub fn composition_height(rows: &[Composition], width: u32, key: bool) -> u32 {
    if rows.is_empty() {
        return 0;
    }
    let plan = Plan::new(rows, f64::from(width), key);
    whole(plan.height())
}

/// Draws the compositions from the top of the area; [`composition_height`] says how much they take.
pub fn draw_composition<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    rows: &[Composition],
    style: &Style,
) -> Result<Geometry, ChartError> {
    if rows.is_empty() {
        return Err(ChartError::Empty);
    }
    let ink = Ink::new(area, style);
    let (width, height) = ink.require(LEAST_WIDTH, 24.0)?;
    let plan = Plan::new(rows, width, style.key);
    if height + 0.5 < plan.height() || width - plan.values - plan.left < LEAST_PLOT_WIDTH {
        return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
    }
    let chart = Chart { ink, plan: &plan, right: width - plan.values };
    let bottom = chart.rows()?;
    chart.axis(bottom)?;
    if style.key {
        chart.key(bottom + AXIS)?;
    }
    Ok(Geometry {
        left: plan.left,
        right: chart.right,
        top: 0.0,
        bottom,
        x_min: 0,
        x_max: i64::try_from(rows.len()).unwrap_or(i64::MAX) - 1,
        y_max: y_max(plan.top),
        axis: Axis::Subject,
    })
}

/// A row of the picture.
enum Row<'a> {
    /// One device with its name, its sum and, where somebody else is on it, a remark.
    Full { device: &'a Composition, remark: String },
    /// Devices too many for a row each: thin bars, the fullest of every `each`.
    Thin { devices: Vec<&'a Composition>, each: usize, others: usize },
}

struct Plan<'a> {
    rows: Vec<Row<'a>>,
    kinds: Vec<PartKind>,
    left: f64,
    /// Room for the sums.
    values: f64,
    pitch: f64,
    bar: f64,
    /// Bytes at the right end.
    top: f64,
    scale: ValueScale,
    /// The capacity, if all have the same.
    capacity: Option<u64>,
    key_rows: usize,
    width: f64,
}

impl<'a> Plan<'a> {
    fn new(devices: &'a [Composition], width: f64, key: bool) -> Self {
        let many = devices.len() > MOST_NAMED;
        let mut rows = Vec::new();
        if many {
            let mut full: Vec<usize> = vec![0, devices.len() - 1];
            full.extend(devices.iter().enumerate().filter(|(_, d)| d.accused).map(|(i, _)| i).take(MOST_FULL));
            full.sort_unstable();
            full.dedup();
            rows.extend(full.iter().filter_map(|place| devices.get(*place)).map(full_row));
            let others: Vec<&Composition> =
                devices.iter().enumerate().filter(|(i, _)| full.binary_search(i).is_err()).map(|(_, d)| d).collect();
            let each = others.len().div_ceil(MOST_THIN);
            let fullest = |group: &[&'a Composition]| group.iter().copied().max_by_key(|device| device.used());
            let thin = others.chunks(each.max(1)).filter_map(fullest).collect();
            rows.push(Row::Thin { devices: thin, each, others: others.len() });
        } else {
            rows.extend(devices.iter().map(full_row));
        }

        let highest = devices.iter().map(|device| device.used().0).max().unwrap_or(0);
        let widest_capacity = devices.iter().filter_map(|device| device.capacity).max().map(|bytes| bytes.0);
        let first = devices.first().and_then(|device| device.capacity);
        let capacity = first.filter(|first| devices.iter().all(|device| device.capacity == Some(*first)));
        let wanted = (width / 130.0).clamp(2.0, 6.0);
        let scale = ValueScale::new(Quantity::DeviceUsed, highest, widest_capacity, wanted);
        let top = (highest.max(widest_capacity.unwrap_or(0)) as f64).max(1.0);
        let names = rows.iter().filter_map(Row::device).map(|d| look(d).bold().width(&d.subject.to_string()));
        let sums = rows.iter().filter_map(Row::device).map(|d| look(d).bold().width(&sum(d, &scale)));
        let mut kinds: Vec<PartKind> =
            devices.iter().flat_map(|d| d.parts.iter()).filter(|part| part.bytes.0 > 0).map(|part| part.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let (pitch, bar) = if devices.len() > 24 { (20.0, 13.0) } else { (27.0, 18.0) };
        let mut plan = Self {
            left: names.fold(24.0, f64::max).min(width * 0.3) + EDGE,
            values: sums.fold(0.0, f64::max) + EDGE,
            rows,
            kinds,
            pitch,
            bar,
            top,
            scale,
            capacity: capacity.map(|bytes| bytes.0).filter(|bytes| *bytes > 0),
            key_rows: 0,
            width,
        };
        plan.key_rows = if key { plan.key_places().last().map_or(0, |place| place.row + 1) } else { 0 };
        plan
    }

    fn row_height(&self, row: &Row) -> f64 {
        match row {
            Row::Full { remark, .. } if !remark.is_empty() => self.pitch + REMARK,
            Row::Full { .. } => self.pitch,
            Row::Thin { devices, .. } => ROW + devices.len() as f64 * THIN + 6.0,
        }
    }

    fn height(&self) -> f64 {
        let rows: f64 = self.rows.iter().map(|row| self.row_height(row)).sum();
        let key = if self.key_rows > 0 { self.key_rows as f64 * (ROW + 2.0) + 6.0 } else { 0.0 };
        rows + AXIS + key
    }

    /// Where the entries of the key stand.
    fn key_places(&self) -> Vec<KeyPlace> {
        let entries = self.kinds.iter().map(|kind| (Some(*kind), words::key_word(*kind))).chain([(None, "free")]);
        let (mut x, mut row) = (0.0, 0);
        let mut places = Vec::new();
        for (kind, word) in entries {
            let width = 17.0 + Type::tick().width(word);
            if x > 0.0 && x + width > self.width {
                x = 0.0;
                row += 1;
            }
            places.push(KeyPlace { kind, word, x, row });
            x += width + 14.0;
        }
        places
    }
}

impl<'a> Row<'a> {
    fn device(&self) -> Option<&'a Composition> {
        match self {
            Row::Full { device, .. } => Some(device),
            Row::Thin { .. } => None,
        }
    }
}

fn full_row(device: &Composition) -> Row<'_> {
    Row::Full { device, remark: words::foreign_parts(device) }
}

struct KeyPlace {
    kind: Option<PartKind>,
    word: &'static str,
    x: f64,
    row: usize,
}

/// A stripe of a pattern.
fn stripe() -> Stroke {
    Stroke { alpha: 0.75, ..Stroke::new(Token::Card, 1.2) }
}

fn look(device: &Composition) -> Type {
    if device.accused { Type { color: Token::Hot, ..Type::tick().bold() } } else { Type::tick() }
}

/// The sum at the end of a row: `31.3 GiB`, `317 MiB`; in the unit of the axis where that is greater than GiB.
fn sum(device: &Composition, scale: &ValueScale) -> String {
    if matches!(scale.unit.name, "TiB" | "PiB" | "EiB") {
        scale.long(device.used().0)
    } else {
        device.used().to_string()
    }
}

struct Chart<'a, DB: DrawingBackend> {
    ink: Ink<'a, DB>,
    plan: &'a Plan<'a>,
    right: f64,
}

impl<DB: DrawingBackend> Chart<'_, DB> {
    fn x(&self, bytes: f64) -> f64 {
        let left = self.plan.left;
        left + (bytes / self.plan.top).clamp(0.0, 1.0) * (self.right - left)
    }

    /// Draws all rows; the lower end of the last.
    fn rows(&self) -> Result<f64, ChartError> {
        let mut top = 0.0;
        for row in &self.plan.rows {
            match row {
                Row::Full { device, remark } => self.full(top, device, remark)?,
                Row::Thin { devices, each, others } => self.thin(top, devices, *each, *others)?,
            }
            top += self.plan.row_height(row);
        }
        Ok(top)
    }

    fn full(&self, top: f64, device: &Composition, remark: &str) -> Result<(), ChartError> {
        let middle = top + self.plan.bar / 2.0 + 2.0;
        let bar = (middle - self.plan.bar / 2.0, middle + self.plan.bar / 2.0);
        let look = look(device);
        let name = look.fit(&device.subject.to_string(), self.plan.left - EDGE);
        self.ink.text(&name, (self.plan.left - EDGE, middle), Anchor::End, look)?;
        let sum = sum(device, &self.plan.scale);
        self.ink.text(&sum, (self.right + EDGE, middle), Anchor::Start, look)?;
        let ends = self.stack(bar, device)?;
        if !remark.is_empty() {
            self.remark(bar.1 + REMARK / 2.0 + 1.0, remark, ends)?;
        }
        Ok(())
    }

    /// The words for what is not this device's own, under it where there is room.
    fn remark(&self, y: f64, remark: &str, (from, to): (f64, f64)) -> Result<(), ChartError> {
        let look = Type { color: Token::Hot, ..Type::tick() };
        let (width, _) = self.ink.size();
        let text = look.fit(remark, width - self.plan.left);
        let own = look.width(&text);
        if to - from > own {
            return self.ink.text(&text, (from, y), Anchor::Start, look);
        }
        // Ends where the part ends, unless that would leave the picture on the left.
        if to - own < self.plan.left {
            return self.ink.text(&text, (self.plan.left, y), Anchor::Start, look);
        }
        self.ink.text(&text, (to, y), Anchor::End, look)
    }

    /// Draws a device's parts over its capacity; where the accused parts begin and end.
    fn stack(&self, (top, bottom): (f64, f64), device: &Composition) -> Result<(f64, f64), ChartError> {
        let frame = |from: f64, to: f64| Frame { left: self.x(from), right: self.x(to), top, bottom };
        if let Some(Bytes(capacity)) = device.capacity {
            self.ink.rect(frame(0.0, capacity as f64), Token::Free, 1.0)?;
        }
        let mut parts: Vec<Part> = device.parts.iter().copied().filter(|part| part.bytes.0 > 0).collect();
        parts.sort_by_key(|part| part.kind);
        let mut from = 0.0;
        let mut accused = (f64::INFINITY, 0.0f64);
        for part in &parts {
            let to = from + part.bytes.0 as f64;
            let mut segment = frame(from, to);
            // Too small to see is still there.
            segment.right = segment.right.max((segment.left + 1.0).min(self.right));
            if part.kind.accused() {
                accused = (accused.0.min(segment.left), accused.1.max(segment.right));
            }
            self.segment(segment, part.kind)?;
            if from > 0.0 && bottom - top > 6.0 {
                let seam = Stroke::new(Token::Card, 1.0);
                self.ink.line((segment.left, top), (segment.left, bottom), seam)?;
            }
            from = to;
        }
        Ok(accused)
    }

    fn segment(&self, frame: Frame, kind: PartKind) -> Result<(), ChartError> {
        let color = part_color(kind);
        let pattern = part_pattern(kind);
        let is_thin = frame.height() < 6.0;
        if pattern == Pattern::Outlined && !is_thin {
            self.ink.rect(frame, color, 0.25)?;
            if frame.width() > 3.0 {
                let inner = Frame {
                    left: frame.left + 0.5,
                    right: frame.right - 0.5,
                    top: frame.top + 0.5,
                    bottom: frame.bottom - 0.5,
                };
                self.ink.outline(inner, Stroke::new(color, 1.0))?;
            }
            return Ok(());
        }
        self.ink.rect(frame, color, 1.0)?;
        if is_thin {
            return Ok(());
        }
        match pattern {
            Pattern::Rising => self.stripes(frame, true),
            Pattern::Falling => self.stripes(frame, false),
            Pattern::Level => self.level(frame),
            Pattern::Upright => self.upright(frame),
            Pattern::Plain | Pattern::Outlined => Ok(()),
        }
    }

    /// Level lines in the colour of the card.
    fn level(&self, frame: Frame) -> Result<(), ChartError> {
        let mut y = frame.top + LEVEL_APART - 1.0;
        while y < frame.bottom - 1.0 {
            self.ink.line((frame.left, y), (frame.right, y), stripe())?;
            y += LEVEL_APART;
        }
        Ok(())
    }

    /// Upright lines in the colour of the card.
    fn upright(&self, frame: Frame) -> Result<(), ChartError> {
        let mut x = frame.left + APART / 2.0;
        while x < frame.right {
            self.ink.line((x, frame.top), (x, frame.bottom), stripe())?;
            x += APART;
        }
        Ok(())
    }

    /// Slanted lines in the colour of the card, cut to the frame.
    fn stripes(&self, frame: Frame, rising: bool) -> Result<(), ChartError> {
        let height = frame.height();
        let mut start = frame.left - height + APART / 2.0;
        while start < frame.right {
            // Along the stripe from its lower (or upper) end; both coordinates move alike.
            let enter = (frame.left - start).max(0.0);
            let leave = (frame.right - start).min(height);
            if leave - enter > 0.5 {
                let point = |along: f64| {
                    let y = if rising { frame.bottom - along } else { frame.top + along };
                    (start + along, y)
                };
                self.ink.line(point(enter), point(leave), stripe())?;
            }
            start += APART;
        }
        Ok(())
    }

    fn thin(&self, top: f64, devices: &[&Composition], each: usize, others: usize) -> Result<(), ChartError> {
        let remark = if each > 1 {
            format!("{others} others, the fullest of every {each}")
        } else {
            format!("{others} others, thin")
        };
        let room = self.ink.size().0 - self.plan.left;
        let look = Type::tick();
        self.ink.text(&look.fit(&remark, room), (self.plan.left, top + ROW / 2.0), Anchor::Start, look)?;
        let mut y = top + ROW + 1.0;
        for device in devices {
            self.stack((y, y + THIN), device)?;
            y += THIN;
        }
        Ok(())
    }

    fn axis(&self, top: f64) -> Result<(), ChartError> {
        let center = top + ROW / 2.0;
        let look = Type::tick();
        let unit = self.plan.scale.unit.name;
        self.ink.text(unit, (self.plan.left - EDGE, center), Anchor::End, look)?;
        let mut end = self.ink.size().0;
        if let Some(capacity) = self.plan.capacity {
            let x = self.x(capacity as f64);
            let label = format!("capacity {}", self.plan.scale.short(capacity));
            let half = look.width(&label) / 2.0;
            let middle = x.min(end - half).max(self.plan.left + half);
            self.ink.text(&label, (middle, center), Anchor::Middle, look)?;
            self.ink.dashed((x, 0.0), (x, top - 2.0), (3.0, 4.0), Stroke::new(Token::Dim, 1.0))?;
            end = middle - half;
        }
        let mut free_from = f64::NEG_INFINITY;
        for tick in &self.plan.scale.ticks {
            let label = self.plan.scale.tick(*tick);
            let x = self.x(*tick);
            let half = look.width(&label) / 2.0;
            if *tick <= self.plan.top && x + half + EDGE <= end && x - half >= free_from {
                free_from = x + half + EDGE;
                self.ink.text(&label, (x, center), Anchor::Middle, look)?;
                self.ink.line((x, top - 3.0), (x, top), Stroke::new(Token::Line, 1.0))?;
            }
        }
        Ok(())
    }

    fn key(&self, top: f64) -> Result<(), ChartError> {
        for place in self.plan.key_places() {
            let middle = top + 6.0 + (place.row as f64 + 0.5) * (ROW + 2.0);
            let swatch = Frame { left: place.x, right: place.x + 11.0, top: middle - 5.5, bottom: middle + 5.5 };
            match place.kind {
                Some(kind) => self.segment(swatch, kind)?,
                None => self.ink.rect(swatch, Token::Free, 1.0)?,
            }
            self.ink.text(place.word, (place.x + 17.0, middle), Anchor::Start, Type::tick())?;
        }
        Ok(())
    }
}
