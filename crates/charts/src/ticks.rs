//! Round numbers for axes, and how they are written. Knows no drawing.

use rankscope_model::{Peaks, Quantity, SeriesAxis, Timeline};

/// A unit of the value axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unit {
    /// `GiB`; empty for plain counts.
    pub name: &'static str,
    size: f64,
}

/// The value axis: zero-based, in one unit, with round ticks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ValueScale {
    pub unit: Unit,
    /// Value at the upper end; above zero.
    pub top: f64,
    /// Values of the ticks, zero first.
    pub ticks: Vec<f64>,
    decimals: usize,
}

/// Below this a tick above the data is worth having as the upper end.
const NEAR: f64 = 1.05;

impl ValueScale {
    /// An axis for values up to `max`, closed by `capacity` where that is given, with about `wanted` intervals.
    pub fn new(quantity: Quantity, max: u64, capacity: Option<u64>, wanted: f64) -> Self {
        let highest = max.max(capacity.unwrap_or(0)) as f64;
        let unit = unit(quantity, highest);
        if highest <= 0.0 {
            return Self { unit, top: unit.size, ticks: vec![0.0, unit.size], decimals: 0 };
        }
        let step = step(highest / unit.size, wanted, !is_count(quantity)) * unit.size;
        let next = (highest / step - 1e-9).ceil() * step;
        let top = if next <= highest * NEAR {
            next
        } else if capacity.is_some_and(|capacity| capacity as f64 >= highest) {
            highest
        } else {
            highest * NEAR
        };
        let mut ticks = Vec::new();
        let mut number = 0.0;
        while number * step <= top * (1.0 + 1e-9) && ticks.len() < 32 {
            ticks.push(number * step);
            number += 1.0;
        }
        let in_units = step / unit.size;
        let decimals = if (in_units - in_units.round()).abs() < 1e-9 {
            0
        } else if (in_units * 10.0 - (in_units * 10.0).round()).abs() < 1e-6 {
            1
        } else {
            2
        };
        Self { unit, top, ticks, decimals }
    }

    /// A tick without its unit: `24`, `0.5`.
    pub fn tick(&self, value: f64) -> String {
        if value == 0.0 { "0".to_owned() } else { format!("{:.*}", self.decimals, value / self.unit.size) }
    }

    /// A value without its unit, one decimal where that says something: `31.3`, `871`.
    pub fn short(&self, value: u64) -> String {
        let in_units = value as f64 / self.unit.size;
        let decimals =
            usize::from(in_units < 1000.0 && self.unit.size > 1.0 && !matches!(self.unit.name, "MiB" | "KiB"));
        format!("{in_units:.decimals$}")
    }

    /// A value with its unit: `31.3 GiB`.
    pub fn long(&self, value: u64) -> String {
        format!("{} {}", self.short(value), self.unit.name).trim_end().to_owned()
    }

    /// `device used, GiB`.
    pub fn heading(&self, quantity: Quantity) -> String {
        if self.unit.name.is_empty() {
            quantity.title().to_owned()
        } else {
            format!("{}, {}", quantity.title(), self.unit.name)
        }
    }
}

fn is_count(quantity: Quantity) -> bool {
    matches!(quantity, Quantity::BatchTokens | Quantity::BatchSamples)
}

fn unit(quantity: Quantity, highest: f64) -> Unit {
    // Each with the value from which it is used: GiB stay GiB up to five digits, as in the rest of the product.
    const BYTES: [(f64, &str, i32); 7] = [
        (0.0, "B", 0),
        (1024.0, "KiB", 1),
        (1_048_576.0, "MiB", 2),
        (1_073_741_824.0, "GiB", 3),
        (1.1e13, "TiB", 4),
        (1.2e16, "PiB", 5),
        (1.2e19, "EiB", 6),
    ];
    const COUNTS: [(f64, &str, i32); 5] =
        [(0.0, "", 0), (1e7, "million", 2), (1e10, "billion", 3), (1e13, "trillion", 4), (1e16, "quadrillion", 5)];
    let (table, base): (&[(f64, &'static str, i32)], f64) =
        if is_count(quantity) { (&COUNTS, 1000.0) } else { (&BYTES, 1024.0) };
    if highest <= 0.0 && !is_count(quantity) {
        return Unit { name: "GiB", size: 1024f64.powi(3) };
    }
    let row = table.iter().rev().find(|(from, _, _)| highest >= *from).or(table.first());
    row.map_or(Unit { name: "", size: 1.0 }, |&(_, name, power)| Unit { name, size: base.powi(power) })
}

/// The roundest step that gives about `wanted` intervals below `highest`.
fn step(highest: f64, wanted: f64, binary: bool) -> f64 {
    let exponent = highest.log10().floor();
    let mut candidates: Vec<(f64, f64)> = Vec::new(); // step, penalty for being less round
    for power in [exponent - 2.0, exponent - 1.0, exponent] {
        let ten = 10f64.powf(power);
        candidates.extend([(ten, 0.0), (2.0 * ten, 0.0), (5.0 * ten, 0.0)]);
        if binary && power >= 0.0 {
            candidates.extend([(4.0 * ten, 0.4), (8.0 * ten, if power > 0.0 { 0.8 } else { 0.3 })]);
        }
    }
    if binary {
        candidates.extend([(16.0, 0.6), (32.0, 0.6), (64.0, 1.0)]);
    }
    let cost = |(step, penalty): (f64, f64)| {
        let intervals = highest / step;
        let closes = intervals.ceil() <= intervals * NEAR;
        (intervals - wanted).abs() + penalty - if closes { 0.7 } else { 0.0 }
    };
    candidates
        .into_iter()
        .filter(|(step, _)| *step > 0.0)
        .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
        .map_or(highest, |(step, _)| step)
}

/// Round places on the x axis between two values, with their text; at most about `wanted` + 1.
pub(crate) fn x_ticks(axis: SeriesAxis, min: i64, max: i64, wanted: f64) -> Vec<(i64, String)> {
    let span = i128::from(max) - i128::from(min);
    // Times count from the first point; steps and indexes from their own zero.
    let origin = if axis == SeriesAxis::UnixMicros { i128::from(min) } else { 0 };
    if span <= 0 {
        return vec![(min, x_text(axis, i128::from(min) - origin, 0))];
    }
    let least = (span as f64 / wanted.max(1.0)).max(1.0);
    let step = if is_time(axis) { time_step(least) } else { decimal_step(least) };
    let mut ticks = Vec::new();
    let first = (i128::from(min) - origin).div_euclid(step) * step;
    let mut offset = if first + origin < i128::from(min) { first + step } else { first };
    while offset + origin <= i128::from(max) && ticks.len() < 64 {
        if let Ok(value) = i64::try_from(offset + origin) {
            ticks.push((value, x_text(axis, offset, span)));
        }
        offset += step;
    }
    ticks
}

fn is_time(axis: SeriesAxis) -> bool {
    matches!(axis, SeriesAxis::UnixMicros | SeriesAxis::SinceStart)
}

/// The unit that an axis up to a value is written in; a word for counts.
fn unit_word(quantity: Quantity, highest: u64) -> &'static str {
    match quantity {
        Quantity::BatchTokens => "tokens",
        Quantity::BatchSamples => "samples",
        _ => unit(quantity, highest as f64).name,
    }
}

/// The unit of the values of a timeline, as its drawing has it.
pub fn timeline_unit(figure: &Timeline) -> &'static str {
    let highest = figure.lines.iter().filter_map(|line| line.y.iter().max().copied()).max().unwrap_or(0);
    unit_word(figure.quantity, highest.max(figure.capacity.unwrap_or_default().0))
}

/// The unit of peaks, as their drawing has it.
pub fn peaks_unit(figure: &Peaks) -> &'static str {
    let highest = figure.bars.iter().map(|bar| bar.peak).max().unwrap_or_default();
    unit_word(figure.quantity, highest.max(figure.median).max(figure.capacity.unwrap_or_default()).0)
}

/// Smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
#[allow(clippy::cast_possible_truncation)] // at most 5e19, far inside i128
fn decimal_step(least: f64) -> i128 {
    let ten = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * ten).find(|step| *step >= least * (1.0 - 1e-9));
    (step.unwrap_or(least).round() as i128).max(1)
}

const SECOND: i128 = 1_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

fn time_step(least: f64) -> i128 {
    const STEPS: [i128; 19] = [
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        15 * SECOND,
        30 * SECOND,
        MINUTE,
        2 * MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        15 * MINUTE,
        30 * MINUTE,
        HOUR,
        2 * HOUR,
        3 * HOUR,
        6 * HOUR,
        12 * HOUR,
        DAY,
        2 * DAY,
    ];
    if least < SECOND as f64 {
        return decimal_step(least);
    }
    let round = STEPS.into_iter().find(|step| *step as f64 >= least * (1.0 - 1e-9));
    round.unwrap_or_else(|| decimal_step(least / DAY as f64) * DAY)
}

/// Text of an offset from the origin on an axis that spans `span`.
fn x_text(axis: SeriesAxis, offset: i128, span: i128) -> String {
    if !is_time(axis) {
        return count_text(offset);
    }
    if offset == 0 {
        return "0".to_owned();
    }
    if span < 2000 {
        format!("{offset} µs")
    } else if span < 2 * SECOND {
        format!("{} ms", trimmed(offset as f64 / 1e3))
    } else if span < 2 * MINUTE {
        format!("{} s", trimmed(offset as f64 / 1e6))
    } else if span < 2 * HOUR {
        format!("{}:{:02}", offset / MINUTE, offset % MINUTE / SECOND)
    } else if span < 2 * DAY {
        if offset % HOUR == 0 {
            format!("{} h", offset / HOUR)
        } else {
            format!("{}:{:02} h", offset / HOUR, offset % HOUR / MINUTE)
        }
    } else {
        format!("{} d", trimmed(offset as f64 / DAY as f64))
    }
}

/// Up to six digits as they are, beyond with a suffix.
fn count_text(count: i128) -> String {
    let size = count.unsigned_abs();
    if size < 1_000_000 {
        count.to_string()
    } else if size < 1_000_000_000 {
        format!("{}M", trimmed(count as f64 / 1e6))
    } else if size < 1_000_000_000_000_000 {
        format!("{}G", trimmed(count as f64 / 1e9))
    } else {
        format!("{:.1e}", count as f64)
    }
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{GIB, MIB};

    fn shown(max: u64, capacity: Option<u64>, wanted: f64) -> (Vec<String>, &'static str) {
        let scale = ValueScale::new(Quantity::DeviceUsed, max, capacity, wanted);
        (scale.ticks.iter().map(|tick| scale.tick(*tick)).collect(), scale.unit.name)
    }

    #[test]
    fn usual_cards_get_usual_ticks() {
        let v100 = 31 * GIB + 768 * MIB;
        assert_eq!(shown(31 * GIB, Some(v100), 4.0), (["0", "8", "16", "24", "32"].map(String::from).to_vec(), "GiB"));
        let a100 = 79 * GIB + 156 * MIB;
        assert_eq!(shown(70 * GIB, Some(a100), 4.0), (["0", "20", "40", "60", "80"].map(String::from).to_vec(), "GiB"));
        let (ticks, _) = shown(22 * GIB, Some(24 * GIB - 300 * MIB), 4.0);
        assert_eq!(ticks.last().unwrap(), "24");
        assert_eq!(shown(871 * MIB, None, 4.0), (["0", "200", "400", "600", "800"].map(String::from).to_vec(), "MiB"));
        assert_eq!(shown(2 * GIB, None, 4.0), (["0", "0.5", "1.0", "1.5", "2.0"].map(String::from).to_vec(), "GiB"));
    }

    #[test]
    fn zero_and_the_largest_number_have_an_axis() {
        assert_eq!(shown(0, None, 4.0), (["0", "1"].map(String::from).to_vec(), "GiB"));
        let (ticks, unit) = shown(u64::MAX, Some(u64::MAX), 4.0);
        assert!(ticks.len() > 2 && unit == "EiB", "{ticks:?} {unit}");
    }

    #[test]
    fn steps_stay_whole_and_lie_between_the_ends() {
        let texts = |min, max| x_ticks(SeriesAxis::Step, min, max, 6.0).into_iter().map(|(_, t)| t).collect::<Vec<_>>();
        assert_eq!(texts(0, 3), ["0", "1", "2", "3"]);
        assert_eq!(texts(1, 1000), ["200", "400", "600", "800", "1000"]);
        assert_eq!(texts(7, 7), ["7"]);
        assert!(!texts(i64::MIN, i64::MAX).is_empty());
    }

    #[test]
    fn times_count_from_the_first_point() {
        let start = 1_700_000_000_000_000;
        let texts = |seconds: i64| {
            x_ticks(SeriesAxis::UnixMicros, start, start + seconds * 1_000_000, 4.0)
                .into_iter()
                .map(|(_, text)| text)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(40), ["0", "10 s", "20 s", "30 s", "40 s"]);
        assert_eq!(texts(1200), ["0", "5:00", "10:00", "15:00", "20:00"]);
        assert_eq!(texts(4 * 3600), ["0", "1 h", "2 h", "3 h", "4 h"]);
        assert_eq!(texts(8 * 86_400), ["0", "2 d", "4 d", "6 d", "8 d"]);
    }
}
