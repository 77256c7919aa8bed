//! Memory over time: one line per rank, the ordinary ones calm (a band when they are many), the accused hot and
//! named at their end. Knows the figure, no backend.

use crate::axis::{self, AXIS_ROW};
use crate::error::ChartError;
use crate::flags::{self, Arrangement, Flag};
use crate::ink::{Anchor, Frame, Ink, LABEL, ROW, Stroke, TICK, Type, crisp, whole};
use crate::labels::{self, Label};
use crate::palette::Token;
use crate::reduce::{self, Mapping};
use crate::style::{Geometry, Style};
use crate::text;
use crate::ticks::ValueScale;
use crate::words;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{Phase, PhaseSpan, Subject, Timeline, TimelineLine};

/// With more lines than this the innocent become a band.
const MOST_LINES: usize = 16;
/// With more accused than this only the highest stay lines; the rest become a hot band.
const MOST_ACCUSED: usize = 8;
/// Data that fill less of the card than this are drawn at their own scale, the capacity is only told.
const LEAST_SHARE: f64 = 0.12;
/// Height of a line of a label.
const LINE: f64 = LABEL + 2.0;
const LEAST_WIDTH: f64 = 200.0;
const LEAST_PLOT_HEIGHT: f64 = 60.0;
/// Room above the capacity line for its label.
const CAPACITY_ROOM: f64 = 14.0;
const HEADER: f64 = 22.0;
/// Room between flags and a plot without a capacity line, for the tick at its top.
const FLAG_ROOM: f64 = 7.0;
const EDGE: f64 = 8.0;

/// The height in CSS pixels that suits a timeline of a width.
pub fn timeline_height(figure: &Timeline, width: u32) -> u32 {
    let width = f64::from(width);
    let plot = (width * 0.29).clamp(150.0, 280.0);
    Plan::new(figure, width, plot).map_or(0, |plan| whole(plan.above + plot + plan.below))
}

/// Draws a timeline that fills the area.
pub fn draw_timeline<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Timeline,
    style: &Style,
) -> Result<Geometry, ChartError> {
    let ink = Ink::new(area, style);
    let (width, height) = ink.require(LEAST_WIDTH, LEAST_PLOT_HEIGHT)?;
    let plan = Plan::new(figure, width, height - HEADER - 2.0 * ROW).ok_or(ChartError::Empty)?;
    let plot = Frame { left: plan.left, top: plan.above, right: width - plan.gutter, bottom: height - plan.below };
    if plot.height() < LEAST_PLOT_HEIGHT || plot.width() < LEAST_PLOT_HEIGHT {
        return Err(ChartError::TooSmall { width: whole(width), height: whole(height) });
    }
    let scale = plan.scale(plot.height());
    let mapping = plan.mapping(plot, scale.top);
    let chart = Chart { ink, figure, plan: &plan, plot, scale: &scale, mapping };
    chart.phases()?;
    chart.grid()?;
    chart.capacity()?;
    chart.x_axis()?;
    let labels = chart.lines()?;
    chart.marks()?;
    chart.labels(labels)?;
    chart.header()?;
    Ok(Geometry {
        left: plot.left,
        right: plot.right,
        top: plot.top,
        bottom: plot.bottom,
        x_min: plan.x_min,
        x_max: plan.x_max,
        y_max: y_max(scale.top),
        axis: figure.axis.into(),
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
pub(crate) fn y_max(top: f64) -> u64 {
    top.round() as u64
}

/// What is decided before the height of the plot is known: margins, ranges, which capacity is drawn.
struct Plan<'a> {
    figure: &'a Timeline,
    /// Lines that have a point.
    lines: Vec<&'a TimelineLine>,
    left: f64,
    gutter: f64,
    above: f64,
    /// Part of `above` between the flags and the plot.
    clearance: f64,
    below: f64,
    x_min: i64,
    x_max: i64,
    highest: u64,
    /// The capacity, if it belongs into the picture.
    capacity: Option<u64>,
    /// Marks inside the picture.
    marks: Vec<i64>,
    flags: Arrangement,
    phases: Vec<PhaseSpan>,
}

impl<'a> Plan<'a> {
    /// `None` for a figure without a point.
    fn new(figure: &'a Timeline, width: f64, plot_height: f64) -> Option<Self> {
        let lines: Vec<&TimelineLine> =
            figure.lines.iter().filter(|line| !line.x.is_empty() && !line.y.is_empty()).collect();
        let xs = || lines.iter().flat_map(|line| line.x.iter().zip(&line.y).map(|(x, _)| *x));
        let (first, last) = (xs().min()?, xs().max()?);
        let highest = lines.iter().flat_map(|line| line.y.iter().zip(&line.x).map(|(y, _)| *y)).max()?;
        let capacity = figure
            .capacity
            .map(|bytes| bytes.0)
            .filter(|capacity| highest as f64 >= *capacity as f64 * LEAST_SHARE && *capacity > 0);
        // An out-of-memory report comes a little after the last sample; what is far away stays outside.
        let reach = (i128::from(last) - i128::from(first)) / 8;
        let near = |x: i64| i128::from(x) >= i128::from(first) - reach && i128::from(x) <= i128::from(last) + reach;
        let marks: Vec<(i64, String)> =
            figure.marks.iter().filter(|mark| near(mark.x)).map(|mark| (mark.x, text::one_line(&mark.text))).collect();
        let x_min = marks.iter().map(|(x, _)| *x).fold(first, i64::min);
        let x_max = marks.iter().map(|(x, _)| *x).fold(last, i64::max);
        // A single moment has no phases to shade.
        let visible =
            |span: &&PhaseSpan| x_min < x_max && span.from <= span.to && span.from <= x_max && span.to >= x_min;
        let mut phases: Vec<PhaseSpan> = figure.phases.iter().filter(visible).cloned().collect();
        phases.sort_by_key(|span| (span.from, span.to));

        let mut plan = Self {
            figure,
            lines,
            left: 0.0,
            gutter: 0.0,
            above: HEADER,
            clearance: 0.0,
            below: AXIS_ROW + if phases.is_empty() { 4.0 } else { ROW + 2.0 },
            x_min,
            x_max,
            highest,
            capacity,
            marks: marks.iter().map(|(x, _)| *x).collect(),
            flags: Arrangement { flags: Vec::new(), rows: 0 },
            phases,
        };
        let scale = plan.scale(plot_height);
        let ticks = scale.ticks.iter().map(|tick| Type::tick().width(&scale.tick(*tick)));
        plan.left = ticks.chain([Type::tick().width(axis::word(plan.figure.axis))]).fold(0.0, f64::max) + EDGE;
        plan.gutter = (plan.end_labels_width() + EDGE + 4.0).min(width * 0.34);
        let plot = Frame { left: plan.left, top: 0.0, right: width - plan.gutter, bottom: plot_height };
        let mapping = plan.mapping(plot, scale.top);
        let flags: Vec<Flag> =
            marks.iter().map(|(x, text)| Flag { x: crisp(mapping.x(*x)), wordings: vec![text.clone()] }).collect();
        plan.flags = flags::arrange(&flags, Type::label(Token::Hot), 0.0, width);
        plan.clearance = match plan.capacity {
            Some(_) => CAPACITY_ROOM,
            None if plan.flags.rows > 0 => FLAG_ROOM,
            None => 0.0,
        };
        plan.above += plan.flags.height() + plan.clearance;
        Some(plan)
    }

    fn scale(&self, plot_height: f64) -> ValueScale {
        ValueScale::new(self.figure.quantity, self.highest, self.capacity, (plot_height / 46.0).clamp(2.0, 5.0))
    }

    fn mapping(&self, plot: Frame, y_top: f64) -> Mapping {
        Mapping {
            left: plot.left,
            width: plot.width(),
            bottom: plot.bottom,
            height: plot.height(),
            x_min: self.x_min,
            x_max: self.x_max,
            y_top,
        }
    }

    fn innocent(&self) -> Vec<&'a TimelineLine> {
        self.lines.iter().copied().filter(|line| !line.accused).collect()
    }

    /// Those who stand out, the highest first.
    fn accused(&self) -> Vec<&'a TimelineLine> {
        let mut accused: Vec<&TimelineLine> = self.lines.iter().copied().filter(|line| line.accused).collect();
        accused.sort_by_key(|line| std::cmp::Reverse(line.y.iter().max().copied()));
        accused
    }

    fn innocent_name(&self) -> Vec<String> {
        let innocent: Vec<Subject> = self.innocent().iter().map(|line| line.subject).collect();
        if innocent.is_empty() {
            Vec::new()
        } else if self.lines.len() > MOST_LINES {
            let others = innocent.len() < self.lines.len();
            vec![words::group(&innocent, others), "median, range".to_owned()]
        } else {
            vec![words::group(&innocent, innocent.len() < self.lines.len())]
        }
    }

    /// Width of the widest label at the end of a line.
    fn end_labels_width(&self) -> f64 {
        let calm = Type::label(Token::Dim);
        let hot = Type::label(Token::Hot).bold();
        let names = self.innocent_name().iter().map(|name| calm.width(name)).fold(0.0, f64::max);
        let innocent = self.innocent();
        let single = innocent.iter().take(MOST_LINES).map(|line| calm.width(&line.subject.to_string()));
        let accused = self.accused();
        let hot_names = accused.iter().take(MOST_ACCUSED).map(|line| hot.width(&line.subject.to_string()));
        let more = if accused.len() > MOST_ACCUSED { hot.width("+999 more") } else { 0.0 };
        single.chain(hot_names).fold(names.max(more), f64::max)
    }
}

/// What stands beside the end of a line.
struct EndLabel {
    lines: Vec<String>,
    color: Token,
}

struct Chart<'a, DB: DrawingBackend> {
    ink: Ink<'a, DB>,
    figure: &'a Timeline,
    plan: &'a Plan<'a>,
    plot: Frame,
    scale: &'a ValueScale,
    mapping: Mapping,
}

impl<DB: DrawingBackend> Chart<'_, DB> {
    fn phases(&self) -> Result<(), ChartError> {
        let center = self.plot.bottom + AXIS_ROW + ROW / 2.0;
        let spans: Vec<(Phase, f64, f64)> = self
            .plan
            .phases
            .iter()
            .map(|span| (span.phase, self.mapping.x(span.from), self.mapping.x(span.to)))
            .collect();
        for (phase, from, to) in &spans {
            if *phase != Phase::Train {
                let frame = Frame { left: *from, right: to.max(from + 1.0), ..self.plot };
                self.ink.rect(frame, Token::Free, 1.0)?;
            }
        }
        // What is shaded needs its word first; wide spans before narrow ones.
        let mut order: Vec<&(Phase, f64, f64)> = spans.iter().collect();
        order.sort_by(|a, b| {
            (a.0 == Phase::Train).cmp(&(b.0 == Phase::Train)).then((b.2 - b.1).total_cmp(&(a.2 - a.1)))
        });
        let mut taken: Vec<(f64, f64)> = Vec::new();
        for (phase, from, to) in order {
            let width = Type::tick().width(phase.word());
            let middle = f64::midpoint(*from, *to).clamp(self.plot.left + width / 2.0, self.plot.right - width / 2.0);
            let (left, right) = (middle - width / 2.0, middle + width / 2.0);
            if taken.iter().all(|(from, to)| right + EDGE <= *from || left >= *to + EDGE) {
                taken.push((left, right));
                self.ink.text(phase.word(), (middle, center), Anchor::Middle, Type::tick())?;
            }
        }
        Ok(())
    }

    fn grid(&self) -> Result<(), ChartError> {
        for tick in &self.scale.ticks {
            let y = self.mapping.y(*tick);
            self.ink.across(
                self.plot.left,
                self.plot.right,
                y,
                if *tick == 0.0 { Token::Rank } else { Token::Line },
            )?;
            let label = self.scale.tick(*tick);
            self.ink.text(&label, (self.plot.left - EDGE + 2.0, y), Anchor::End, Type::tick())?;
        }
        Ok(())
    }

    fn capacity(&self) -> Result<(), ChartError> {
        let Some(capacity) = self.plan.capacity else { return Ok(()) };
        let y = crisp(self.mapping.y(capacity as f64));
        self.ink.dashed((self.plot.left, y), (self.plot.right, y), (3.0, 4.0), Stroke::new(Token::Dim, 1.0))?;
        if let Some(right) = self.capacity_end(capacity) {
            let at = (right, y - CAPACITY_ROOM / 2.0 - 1.0);
            self.ink.text(&self.capacity_label(capacity), at, Anchor::End, Type::tick())?;
        }
        Ok(())
    }

    fn capacity_label(&self, capacity: u64) -> String {
        format!("capacity {}", self.scale.long(capacity))
    }

    /// Where the label of the capacity ends, between the poles of the marks that pass through its row.
    fn capacity_end(&self, capacity: u64) -> Option<f64> {
        let width = Type::tick().width(&self.capacity_label(capacity));
        let poles: Vec<f64> = self.plan.marks.iter().map(|x| self.mapping.x(*x)).collect();
        flags::between_poles(&poles, width, self.plot.left, self.plot.right)
    }

    fn x_axis(&self) -> Result<(), ChartError> {
        let limit = self.plot.right + self.plan.gutter;
        axis::x_axis(&self.ink, self.plot, &self.mapping, self.figure.axis, limit)
    }

    /// Draws the lines and says which labels want to stand at their ends.
    fn lines(&self) -> Result<Vec<Label<EndLabel>>, ChartError> {
        let mut labels = Vec::new();
        let innocent = self.plan.innocent();
        let accused = self.plan.accused();
        let many = self.plan.lines.len() > MOST_LINES;
        if many && innocent.len() > 2 {
            let band = reduce::band(&innocent, &self.mapping, 2.0);
            self.band(&band, Token::Rank)?;
            self.ink.path(band.x.iter().copied().zip(band.median.iter().copied()), Stroke::new(Token::Dim, 1.3))?;
            if let Some(y) = band.median.last() {
                labels.push(Self::calm_label(*y, self.plan.innocent_name()));
            }
        } else {
            for line in &innocent {
                self.line(line, Stroke::new(Token::Rank, 1.3), 2.0)?;
            }
            labels.extend(self.calm_labels(&innocent));
        }
        let drawn = if accused.len() > MOST_LINES { MOST_ACCUSED } else { accused.len() };
        let (lines, rest) = accused.split_at(drawn);
        if !rest.is_empty() {
            self.band(&reduce::band(rest, &self.mapping, 2.0), Token::Hot)?;
        }
        let labelled = lines.len().min(MOST_ACCUSED);
        let mut ends: Vec<(f64, Subject, usize)> = Vec::new();
        for (index, line) in lines.iter().enumerate().rev() {
            let end = self.line(line, Stroke::new(Token::Hot, 2.0), 1.0)?;
            let Some(end) = end else { continue };
            self.ink.dot(end, 3.2, Token::Hot)?;
            if index >= labelled {
                continue;
            }
            if self.plot.right - end.0 > 14.0 {
                // The line ends early; a dotted lead goes on to its name.
                let lead = Stroke::new(Token::Hot, 1.0);
                self.ink.dashed((end.0 + 6.0, end.1), (self.plot.right, end.1), (1.0, 4.0), lead)?;
            }
            ends.push((end.1, line.subject, index));
        }
        let is_close = put_in_order(&mut ends);
        labels.extend(ends.iter().map(|(y, subject, index)| Self::hot_label(*y, subject.to_string(), *index)));
        let lowest = labels.iter().filter(|label| label.content.color == Token::Hot).map(|label| label.y);
        if accused.len() > labelled
            && let Some(lowest) = lowest.max_by(f64::total_cmp)
        {
            let text = format!("+{} more", accused.len() - labelled);
            labels.push(Self::hot_label(lowest + 1.0, text, 0));
        }
        // Not in the middle of those whose ends lie on it.
        if let Some((lowest, ..)) = ends.last().filter(|_| is_close) {
            for calm in labels.iter_mut().filter(|label| label.content.color == Token::Dim) {
                if (calm.y - lowest).abs() < LINE {
                    calm.y = lowest + 2.0;
                }
            }
        }
        Ok(labels)
    }

    fn band(&self, band: &reduce::Band, color: Token) -> Result<(), ChartError> {
        let upper = band.x.iter().copied().zip(band.upper.iter().map(|y| y - 0.5));
        let lower = band.x.iter().copied().zip(band.lower.iter().map(|y| y + 0.5)).rev();
        self.ink.polygon(upper.chain(lower), color, 0.38)
    }

    /// Draws one line; its last point.
    fn line(&self, line: &TimelineLine, stroke: Stroke, column: f64) -> Result<Option<(f64, f64)>, ChartError> {
        let points = reduce::decimate(line, &self.mapping, column);
        let last = points.last().copied();
        if let [only] = points.as_slice() {
            self.ink.dot(*only, stroke.width + 1.2, stroke.color)?;
        }
        self.ink.path(points, stroke)?;
        Ok(last)
    }

    /// A label for each innocent line where their ends are apart, else one for all.
    fn calm_labels(&self, innocent: &[&TimelineLine]) -> Vec<Label<EndLabel>> {
        let mut ends: Vec<(f64, Subject)> =
            innocent.iter().filter_map(|line| Some((self.mapping.y(*line.y.last()? as f64), line.subject))).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let apart = ends.windows(2).all(|pair| pair[1].0 - pair[0].0 >= LABEL + 1.0);
        if apart {
            return ends.iter().map(|(y, subject)| Self::calm_label(*y, vec![subject.to_string()])).collect();
        }
        let middle = ends.get(ends.len() / 2).map(|(y, _)| Self::calm_label(*y, self.plan.innocent_name()));
        middle.into_iter().collect()
    }

    fn calm_label(y: f64, lines: Vec<String>) -> Label<EndLabel> {
        let height = LINE * lines.len() as f64;
        Label { y, height, weight: 1, content: EndLabel { lines, color: Token::Dim } }
    }

    fn hot_label(y: f64, text: String, place: usize) -> Label<EndLabel> {
        let weight = 250 - u8::try_from(place).unwrap_or(200).min(200);
        Label { y, height: LINE, weight, content: EndLabel { lines: vec![text], color: Token::Hot } }
    }

    fn labels(&self, labels: Vec<Label<EndLabel>>) -> Result<(), ChartError> {
        let left = self.plot.right + EDGE;
        for label in labels::spread(labels, self.plot.top - 7.0, self.plot.bottom + 4.0) {
            let EndLabel { lines, color } = label.content;
            let look = if color == Token::Hot { Type::label(color).bold() } else { Type::label(color) };
            let mut y = label.y - label.height / 2.0 + LINE / 2.0;
            for line in lines {
                self.ink.text(&look.fit(&line, self.plan.gutter - EDGE), (left, y), Anchor::Start, look)?;
                y += LINE;
            }
        }
        Ok(())
    }

    fn marks(&self) -> Result<(), ChartError> {
        let rows_bottom = self.plan.above - self.plan.clearance;
        for (x, flag) in self.plan.marks.iter().zip(&self.plan.flags.flags) {
            let x = crisp(self.mapping.x(*x));
            let mut top = self.plot.top;
            if let Some(flag) = flag {
                let row_top = rows_bottom - ROW * (flag.row as f64 + 1.0);
                top = row_top + 2.0;
                let (at, anchor) = if flag.left > x { (flag.left, Anchor::Start) } else { (flag.right, Anchor::End) };
                self.ink.text(&flag.text, (at, row_top + ROW / 2.0), anchor, Type::label(Token::Hot))?;
            }
            self.ink.dashed((x, top), (x, self.plot.bottom), (2.0, 3.0), Stroke::new(Token::Hot, 1.0))?;
        }
        Ok(())
    }

    fn header(&self) -> Result<(), ChartError> {
        let center = TICK / 2.0 + 1.0;
        let heading = self.scale.heading(self.figure.quantity);
        self.ink.text(&heading, (0.0, center), Anchor::Start, Type::tick())?;
        let told = match (self.plan.capacity, self.figure.capacity) {
            (Some(capacity), _) if self.capacity_end(capacity).is_none() => self.capacity_label(capacity),
            (None, Some(capacity)) if capacity.0 > 0 => format!("capacity {capacity}, above this scale"),
            _ => return Ok(()),
        };
        let (width, _) = self.ink.size();
        let room = width - Type::tick().width(&heading) - 2.0 * EDGE;
        self.ink.text(&Type::tick().fit(&told, room), (width, center), Anchor::End, Type::tick())
    }
}

/// Ends that lie on each other, as those of ranks that take turns do, say nothing by their order: there the names stand
/// in the order of ranks. Whether they do.
fn put_in_order(ends: &mut [(f64, Subject, usize)]) -> bool {
    let ys = || ends.iter().map(|(y, ..)| *y);
    let (Some(top), Some(bottom)) = (ys().min_by(f64::total_cmp), ys().max_by(f64::total_cmp)) else { return false };
    if ends.len() < 3 || bottom - top >= LINE / 2.0 {
        return false;
    }
    ends.sort_by_key(|(_, subject, _)| *subject);
    for (n, (y, ..)) in ends.iter_mut().enumerate() {
        *y = top + n as f64 * 0.01;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::Rank;

    #[test]
    fn ends_that_lie_on_each_other_are_named_in_the_order_of_ranks() {
        let end = |y, rank| (y, Subject::Rank(Rank(rank)), 0);
        let ranks = |ends: &[(f64, Subject, usize)]| {
            ends.iter().map(|(_, subject, _)| subject.rank().unwrap()).collect::<Vec<_>>()
        };
        let mut close = [end(50.3, 7), end(50.0, 219), end(50.1, 3)];
        assert!(put_in_order(&mut close));
        assert_eq!(ranks(&close), [3, 7, 219]);
        assert!(close.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[1].0 < 51.0));
        let mut apart = [end(50.0, 7), end(90.0, 3), end(51.0, 4)];
        assert!(!put_in_order(&mut apart));
        assert_eq!(ranks(&apart), [7, 3, 4], "where they are is what they say");
    }
}
