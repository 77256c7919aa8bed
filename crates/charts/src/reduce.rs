//! Makes many points few without losing what the eye would see: least and greatest per column of pixels, and a
//! band for many lines. Knows no drawing.

use crate::ink::Point;
use rankscope_model::TimelineLine;

/// From data to pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub left: f64,
    pub width: f64,
    pub bottom: f64,
    pub height: f64,
    pub x_min: i64,
    pub x_max: i64,
    pub y_top: f64,
}

impl Mapping {
    pub fn x(&self, x: i64) -> f64 {
        let span = i128::from(self.x_max) - i128::from(self.x_min);
        if span <= 0 {
            return self.left + self.width / 2.0;
        }
        let along = (i128::from(x) - i128::from(self.x_min)) as f64 / span as f64;
        self.left + along.clamp(0.0, 1.0) * self.width
    }

    pub fn y(&self, y: f64) -> f64 {
        self.bottom - (y / self.y_top).clamp(0.0, 1.0) * self.height
    }
}

/// A line's points in pixels, at most four per `column` pixels: first, least, greatest, last.
pub(crate) fn decimate(line: &TimelineLine, mapping: &Mapping, column: f64) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    let mut bucket = Bucket::default();
    let mut current = f64::NEG_INFINITY;
    for (x, y) in line.x.iter().zip(&line.y) {
        let point = (mapping.x(*x), mapping.y(*y as f64));
        let index = ((point.0 - mapping.left) / column).floor();
        if (index - current).abs() > 0.5 {
            bucket.empty_into(&mut points);
            current = index;
        }
        bucket.add(point);
    }
    bucket.empty_into(&mut points);
    straighten(&points)
}

/// The points of one column of pixels.
#[derive(Default)]
struct Bucket {
    count: usize,
    first: Point,
    last: Point,
    least: (usize, Point),
    greatest: (usize, Point),
}

impl Bucket {
    fn add(&mut self, point: Point) {
        if self.count == 0 {
            self.first = point;
            self.least = (0, point);
            self.greatest = (0, point);
        }
        if point.1 < self.least.1.1 {
            self.least = (self.count, point);
        }
        if point.1 > self.greatest.1.1 {
            self.greatest = (self.count, point);
        }
        self.last = point;
        self.count += 1;
    }

    fn empty_into(&mut self, points: &mut Vec<Point>) {
        if self.count > 0 {
            let (early, late) =
                if self.least.0 <= self.greatest.0 { (self.least, self.greatest) } else { (self.greatest, self.least) };
            let mut kept = vec![self.first, early.1, late.1, self.last];
            kept.dedup();
            points.append(&mut kept);
        }
        *self = Self::default();
    }
}

/// Drops the inner points of level runs.
fn straighten(points: &[Point]) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::with_capacity(points.len());
    for (index, point) in points.iter().enumerate() {
        let level = |other: Option<&Point>| other.is_some_and(|other| (other.1 - point.1).abs() < 0.05);
        if !(level(kept.last()) && level(points.get(index + 1))) {
            kept.push(*point);
        }
    }
    kept
}

/// Least, median and greatest of many lines per column, in pixels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Band {
    pub x: Vec<f64>,
    pub lower: Vec<f64>,
    pub median: Vec<f64>,
    pub upper: Vec<f64>,
}

/// The band of lines, one value per `column` pixels. Between its points a line is straight; before its first and
/// after its last it does not count.
pub(crate) fn band(lines: &[&TimelineLine], mapping: &Mapping, column: f64) -> Band {
    let columns = columns(mapping.width, column);
    let center = |index: usize| mapping.left + (index as f64 + 0.5) * mapping.width / columns as f64;
    let mut lower = vec![f64::NEG_INFINITY; columns];
    let mut upper = vec![f64::INFINITY; columns];
    let mut middles: Vec<Vec<f64>> = vec![Vec::new(); columns];
    for line in lines {
        let mut previous: Option<Point> = None;
        let mut own: Vec<(f64, f64)> = vec![(f64::INFINITY, f64::NEG_INFINITY); columns];
        for (x, y) in line.x.iter().zip(&line.y) {
            let point = (mapping.x(*x), mapping.y(*y as f64));
            let index = column_of(point.0, mapping, columns);
            if let Some(slot) = own.get_mut(index) {
                *slot = (slot.0.min(point.1), slot.1.max(point.1));
            }
            if let Some(from) = previous {
                let start = column_of(from.0, mapping, columns);
                for (between, slot) in own.iter_mut().enumerate().take(index).skip(start + 1) {
                    let along = ((center(between) - from.0) / (point.0 - from.0)).clamp(0.0, 1.0);
                    let value = from.1 + along * (point.1 - from.1);
                    *slot = (slot.0.min(value), slot.1.max(value));
                }
            }
            previous = Some(point);
        }
        for (index, (least, greatest)) in own.into_iter().enumerate().filter(|(_, (least, _))| least.is_finite()) {
            // Pixels grow downwards: the least y is the greatest value.
            upper[index] = upper[index].min(least);
            lower[index] = lower[index].max(greatest);
            middles[index].push(f64::midpoint(least, greatest));
        }
    }
    let mut band = Band { x: Vec::new(), lower: Vec::new(), median: Vec::new(), upper: Vec::new() };
    for (index, middle) in middles.iter_mut().enumerate().filter(|(_, middle)| !middle.is_empty()) {
        // Of an even count the greater y, which is the lower value: the median is the same one everywhere.
        let half = middle.len() / 2;
        let (_, median, _) = middle.select_nth_unstable_by(half, f64::total_cmp);
        band.x.push(center(index));
        band.median.push(*median);
        band.lower.push(lower[index]);
        band.upper.push(upper[index]);
    }
    band
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small positive number
fn columns(width: f64, column: f64) -> usize {
    (width / column).round().clamp(1.0, 4096.0) as usize
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped first
fn column_of(x: f64, mapping: &Mapping, columns: usize) -> usize {
    let along = ((x - mapping.left) / mapping.width).clamp(0.0, 1.0);
    ((along * columns as f64) as usize).min(columns - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{Rank, Subject};

    const MAPPING: Mapping =
        Mapping { left: 40.0, width: 600.0, bottom: 220.0, height: 200.0, x_min: 0, x_max: 99_999, y_top: 100.0 };

    fn line(values: impl Fn(i64) -> u64, count: i64) -> TimelineLine {
        TimelineLine {
            subject: Subject::Rank(Rank(0)),
            x: (0..count).collect(),
            y: (0..count).map(values).collect(),
            accused: false,
        }
    }

    #[test]
    fn a_single_spike_survives() {
        let spike = line(|x| if x == 54_321 { 90 } else { 10 }, 100_000);
        let points = decimate(&spike, &MAPPING, 2.0);
        assert!(points.len() < 20, "level runs collapse: {}", points.len());
        assert!(points.iter().any(|point| (point.1 - 40.0).abs() < 1e-9));
    }

    #[test]
    fn noise_is_bounded_by_the_width() {
        let noise = line(|x| (x * 7919 % 97).unsigned_abs(), 100_000);
        let points = decimate(&noise, &MAPPING, 2.0);
        assert!(points.len() <= 4 * 301, "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn a_band_follows_sparse_lines_between_their_points() {
        let sparse = TimelineLine { subject: Subject::Device(0), x: vec![0, 99_999], y: vec![0, 100], accused: false };
        let dense = line(|_| 50, 100_000);
        let band = band(&[&sparse, &dense, &dense], &MAPPING, 2.0);
        assert_eq!(band.x.len(), 300);
        assert!((band.lower[0] - 220.0).abs() < 1.0, "the sparse line starts at zero");
        assert!((band.upper[299] - 20.0).abs() < 1.0, "and ends at the top");
        assert!(band.median.iter().all(|y| (y - 120.0).abs() < 1e-9));
    }
}
