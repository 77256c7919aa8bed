//! What each rank was fed against what it used, one dot for each step: a rising cloud says that the input decides.
//! Knows the figure, no backend.

use crate::error::ChartError;
use crate::ink::{Anchor, Frame, Ink, ROW, Stroke, TICK, Type, crisp, whole};
use crate::palette::Token;
use crate::style::{Axis, Geometry, Style};
use crate::ticks::ValueScale;
use crate::timeline::y_max;
use crate::words;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{Scatter, ScatterCloud, Subject};
use std::collections::BTreeSet;

/// From this correlation on the line through the dots is drawn.
const CORRELATED: f64 = 0.7;
const LEAST_WIDTH: f64 = 200.0;
const LEAST_PLOT_HEIGHT: f64 = 60.0;
const HEADER: f64 = 22.0;
/// Room above the capacity line for its label.
const CAPACITY_ROOM: f64 = 14.0;
const BELOW: f64 = 19.0 + ROW;
const EDGE: f64 = 8.0;
const RADIUS: f64 = 2.1;
/// Data that fill less of the card than this are drawn at their own scale.
const LEAST_SHARE: f64 = 0.12;

/// The height in CSS pixels that suits the dots at a width; 0 where there are none.
pub fn scatter_height(figure: &Scatter, width: u32) -> u32 {
    if figure.clouds.iter().all(|cloud| cloud.x.is_empty() || cloud.y.is_empty()) {
        return 0;
    }
    let capacity = if drawn_capacity(figure).is_some() { CAPACITY_ROOM } else { 0.0 };
    whole(HEADER + capacity + (f64::from(width) * 0.34).clamp(150.0, 300.0) + BELOW)
}

/// Draws the dots so that they fill the area.
pub fn draw_scatter<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Scatter,
    style: &Style,
) -> Result<Geometry, ChartError> {
    let ink = Ink::new(area, style);
    let (width, height) = ink.require(LEAST_WIDTH, LEAST_PLOT_HEIGHT)?;
    let plan = Plan::new(figure, width, height - HEADER - BELOW).ok_or(ChartError::Empty)?;
    let above = HEADER + if plan.capacity.is_some() { CAPACITY_ROOM } else { 0.0 };
    let plot = Frame { left: plan.left, top: above, right: width - EDGE, bottom: height - BELOW };
    if plot.height() < LEAST_PLOT_HEIGHT || plot.width() < LEAST_PLOT_HEIGHT {
        return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
    }
    let chart = Chart { ink, figure, plan: &plan, plot };
    chart.grid()?;
    chart.x_axis()?;
    chart.dots()?;
    chart.line()?;
    chart.header()?;
    Ok(Geometry {
        left: plot.left,
        right: plot.right,
        top: plot.top,
        bottom: plot.bottom,
        x_min: 0,
        x_max: i64::try_from(y_max(plan.across.top)).unwrap_or(i64::MAX),
        y_max: y_max(plan.scale.top),
        axis: Axis::Input,
    })
}

/// The capacity, if it belongs into the picture.
fn drawn_capacity(figure: &Scatter) -> Option<u64> {
    let highest = figure.clouds.iter().flat_map(|cloud| cloud.y.iter().take(cloud.x.len())).max()?;
    let capacity = figure.capacity.map(|bytes| bytes.0);
    capacity.filter(|capacity| *capacity > 0 && *highest as f64 >= *capacity as f64 * LEAST_SHARE)
}

struct Plan {
    left: f64,
    scale: ValueScale,
    across: ValueScale,
    capacity: Option<u64>,
}

impl Plan {
    fn new(figure: &Scatter, width: f64, plot_height: f64) -> Option<Self> {
        let points = || figure.clouds.iter().flat_map(|cloud| cloud.x.iter().zip(&cloud.y));
        let highest = points().map(|(_, y)| *y).max()?;
        let widest = points().map(|(x, _)| *x).max()?;
        let capacity = drawn_capacity(figure);
        let scale = ValueScale::new(figure.quantity, highest, capacity, (plot_height / 46.0).clamp(2.0, 5.0));
        let across = ValueScale::new(figure.input, widest, None, (width / 110.0).clamp(2.0, 6.0));
        let ticks = scale.ticks.iter().map(|tick| Type::tick().width(&scale.tick(*tick)));
        let left = ticks.fold(0.0, f64::max) + EDGE;
        Some(Self { left, scale, across, capacity })
    }
}

struct Chart<'a, DB: DrawingBackend> {
    ink: Ink<'a, DB>,
    figure: &'a Scatter,
    plan: &'a Plan,
    plot: Frame,
}

impl<DB: DrawingBackend> Chart<'_, DB> {
    fn x(&self, value: f64) -> f64 {
        self.plot.left + (value / self.plan.across.top).clamp(0.0, 1.0) * self.plot.width()
    }

    fn y(&self, value: f64) -> f64 {
        self.plot.bottom - (value / self.plan.scale.top).clamp(0.0, 1.0) * self.plot.height()
    }

    fn grid(&self) -> Result<(), ChartError> {
        for tick in &self.plan.scale.ticks {
            let y = self.y(*tick);
            let color = if *tick == 0.0 { Token::Rank } else { Token::Line };
            self.ink.across(self.plot.left, self.plot.right, y, color)?;
            let label = self.plan.scale.tick(*tick);
            self.ink.text(&label, (self.plot.left - EDGE + 2.0, y), Anchor::End, Type::tick())?;
        }
        if let Some(capacity) = self.plan.capacity {
            let y = crisp(self.y(capacity as f64));
            self.ink.dashed((self.plot.left, y), (self.plot.right, y), (3.0, 4.0), Stroke::new(Token::Dim, 1.0))?;
            let label = format!("capacity {}", self.plan.scale.long(capacity));
            let at = (self.plot.right, y - CAPACITY_ROOM / 2.0 - 1.0);
            self.ink.text(&label, at, Anchor::End, Type::tick())?;
        }
        Ok(())
    }

    fn x_axis(&self) -> Result<(), ChartError> {
        let center = self.plot.bottom + 19.0 - ROW / 2.0 + 1.0;
        let mut free_from = self.plot.left - 2.0;
        for tick in &self.plan.across.ticks {
            let label = self.plan.across.tick(*tick);
            let width = Type::tick().width(&label);
            let middle = self.x(*tick).min(self.plot.right + EDGE - width / 2.0);
            if middle - width / 2.0 >= free_from {
                free_from = middle + width / 2.0 + EDGE;
                self.ink.text(&label, (middle, center), Anchor::Middle, Type::tick())?;
                let x = crisp(self.x(*tick));
                self.ink.line((x, self.plot.bottom), (x, self.plot.bottom + 3.0), Stroke::new(Token::Rank, 1.0))?;
            }
        }
        let unit = self.plan.across.unit.name;
        let word = self.figure.input.title();
        let word = if unit.is_empty() { word.to_owned() } else { format!("{word}, {unit}") };
        self.ink.text(&word, (self.plot.right, center + ROW - 1.0), Anchor::End, Type::tick())
    }

    /// The innocent below, the accused on top; what would cover each other exactly is drawn once.
    fn dots(&self) -> Result<(), ChartError> {
        let (accused, innocent): (Vec<&ScatterCloud>, Vec<&ScatterCloud>) =
            self.figure.clouds.iter().partition(|cloud| cloud.accused);
        for (clouds, color, radius) in [(innocent, Token::Rank, RADIUS), (accused, Token::Hot, RADIUS + 0.3)] {
            let mut drawn: BTreeSet<(u32, u32)> = BTreeSet::new();
            for cloud in clouds {
                for (x, y) in cloud.x.iter().zip(&cloud.y) {
                    let at = (self.x(*x as f64), self.y(*y as f64));
                    if drawn.insert((whole(at.0 / 2.0), whole(at.1 / 2.0))) {
                        self.dot(at, radius, color)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A dot as a small square: thousands of them become one light element.
    fn dot(&self, (x, y): (f64, f64), radius: f64, color: Token) -> Result<(), ChartError> {
        self.ink.rect(Frame { left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }, color, 0.85)
    }

    fn line(&self) -> Result<(), ChartError> {
        let Some(fit) = self.figure.fit.filter(|fit| fit.r >= CORRELATED) else { return Ok(()) };
        let points = || self.figure.clouds.iter().flat_map(|cloud| cloud.x.iter().zip(&cloud.y));
        let least = points().map(|(x, _)| *x).min().unwrap_or(0) as f64;
        let most = points().map(|(x, _)| *x).max().unwrap_or(0) as f64;
        let at = |x: f64| (self.x(x), self.y(fit.intercept + fit.slope * x));
        self.ink.dashed(at(least), at(most), (6.0, 3.0), Stroke::new(Token::Ink, 1.2))
    }

    fn header(&self) -> Result<(), ChartError> {
        let center = TICK / 2.0 + 1.0;
        let (width, _) = self.ink.size();
        let heading = self.plan.scale.heading(self.figure.quantity);
        self.ink.text(&heading, (0.0, center), Anchor::Start, Type::tick())?;
        let accused: Vec<Subject> =
            self.figure.clouds.iter().filter(|cloud| cloud.accused).map(|cloud| cloud.subject).collect();
        let mut right = width;
        if !accused.is_empty() {
            let look = Type { color: Token::Hot, ..Type::tick().bold() };
            let name = words::group(&accused, false);
            let name = look.fit(&name, (width - Type::tick().width(&heading) - 2.0 * EDGE).max(0.0));
            self.ink.text(&name, (width, center), Anchor::End, look)?;
            right -= look.width(&name) + 2.0 * EDGE;
        }
        if let Some(fit) = self.figure.fit {
            let room = right - Type::tick().width(&heading) - 2.0 * EDGE;
            let told = format!("r {:.2}", fit.r);
            if Type::tick().width(&told) <= room {
                self.ink.text(&told, (right, center), Anchor::End, Type::tick())?;
            }
        }
        Ok(())
    }
}
