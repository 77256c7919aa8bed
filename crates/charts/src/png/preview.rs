//! The card that a chat shows for a link to a report: the verdict large, the peaks with the accused in the hot
//! colour, the product's name.

use super::raster::{UNITS, can_write, measure};
use super::{picture, style};
use crate::error::ChartError;
use crate::ink::{Anchor, Frame, Ink, Type};
use crate::palette::{Palette, Theme, Token};
use crate::peaks::draw_peaks;
use crate::text;
use crate::timeline::draw_timeline;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use rankscope_model::{Report, Verdict};

/// Size of a preview in picture points: what Open Graph cards are shown at.
pub const PREVIEW_SIZE: (u32, u32) = (1200, 630);

const MARGIN: f64 = 56.0;
/// Chart text must be read in a card that is shown at half its size.
const CHART_SCALE: f64 = 1.9;

/// The preview of a report.
pub fn preview(report: &Report) -> Result<Vec<u8>, ChartError> {
    picture(PREVIEW_SIZE, &Palette::of(Theme::Light), Token::Card, |area| draw(area, report))
}

/// Sizes of the words, each with the most lines that leave room for a chart.
const WORDS: [(f64, usize); 3] = [(50.0, 3), (42.0, 4), (36.0, 4)];

/// The largest size at which all is said. Of words that are too many for the smallest, the whole sentences that fit: the
/// first ones say most, and the chart is worth more than the last. Without a chart one more line fits.
fn fitting(
    words: &str,
    sizes: &[(f64, usize)],
    has_chart: bool,
    wrapped: impl Fn(&str, f64, usize) -> Vec<String>,
) -> (f64, Vec<String>) {
    let is_whole = |lines: &[String]| !lines.iter().any(|line| line.ends_with('…'));
    let mut last = (36.0, 4);
    for &(size, most) in sizes {
        last = (size, most);
        let lines = wrapped(words, size, most);
        if is_whole(&lines) {
            return (size, lines);
        }
    }
    let (size, most) = (last.0, last.1.saturating_add(usize::from(!has_chart)));
    let mut ends: Vec<usize> = words.match_indices(". ").map(|(at, _)| at.saturating_add(1)).collect();
    ends.push(words.len());
    let sentences = ends.iter().rev().filter_map(|end| words.get(..*end));
    let whole = sentences.map(|text| wrapped(text, size, most)).find(|lines| is_whole(lines));
    (size, whole.unwrap_or_else(|| wrapped(words, size, most)))
}

fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, report: &Report) -> Result<(), ChartError> {
    let paper = style(Theme::Light, f64::from(UNITS));
    let ink = Ink::new(area, &paper);
    let (width, height) = ink.size();
    let room = width - 2.0 * MARGIN;

    // A narrow edge in the colour of the verdict, as the page has beside the first cause.
    let edge = match report.diagnosis.verdict {
        Verdict::Imbalance if report.diagnosis.is_by_design() => Token::Rank,
        Verdict::Imbalance => Token::Hot,
        Verdict::UniformPressure => Token::Warn,
        Verdict::Balanced => Token::Ok,
        Verdict::Inconclusive => Token::Rank,
    };
    ink.rect(Frame { left: 0.0, top: 0.0, right: 12.0, bottom: height }, edge, 1.0)?;

    let name = Type { color: Token::Ink, size: 26.0, bold: true };
    ink.text("Rankscope", (MARGIN, 62.0), Anchor::Start, name)?;
    let title = text::one_line(&report.run.title);
    if can_write(&title) {
        let look = Type { color: Token::Dim, size: 24.0, bold: false };
        let from = MARGIN + name.width("Rankscope") + 24.0;
        let title = look.fit(&title, width - MARGIN - from);
        ink.text(&title, (width - MARGIN, 62.0), Anchor::End, look)?;
    }

    let summary = text::one_line(&report.diagnosis.summary);
    let summary = if summary.is_empty() { report.diagnosis.verdict_title().to_owned() } else { summary };
    let has_chart = report.figures.peaks.is_some() || report.figures.timeline.is_some();
    // Thickened glyphs take a little more than the font says.
    let wrapped = |text: &str, size: f64, most: usize| text::wrap(text, room, most, |line| measure(line, size) * 1.02);
    let (size, lines) = fitting(&summary, &WORDS, has_chart, wrapped);
    let look = Type { color: Token::Ink, size, bold: true };
    let mut y = if has_chart { 128.0 } else { 220.0 };
    for line in &lines {
        ink.text(line, (MARGIN, y), Anchor::Start, look)?;
        y += size * 1.24;
    }

    let top = y - size * 0.4;
    let bottom = height - 34.0;
    let unit = f64::from(UNITS);
    let left = to_units(MARGIN * unit);
    let chart =
        area.clone().shrink((left, to_units(top * unit)), (to_units(room * unit), to_units((bottom - top) * unit)));
    let style = style(Theme::Light, unit * CHART_SCALE);
    let drawn = match (&report.figures.peaks, &report.figures.timeline) {
        (Some(peaks), _) => draw_peaks(&chart, peaks, &style).map(drop),
        (None, Some(timeline)) => draw_timeline(&chart, timeline, &style).map(drop),
        (None, None) => Ok(()),
    };
    match drawn {
        // The words are the preview; a figure that cannot be drawn is left out.
        Ok(()) | Err(ChartError::Empty | ChartError::TooSmall { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[allow(clippy::cast_possible_truncation)] // inside the card
fn to_units(value: f64) -> i32 {
    value.round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_too_many_end_with_a_sentence_and_leave_room_for_the_chart() {
        // Every letter is half as wide as its size.
        let wrapped = |text: &str, size: f64, most: usize| {
            text::wrap(text, 1000.0, most, |line| line.chars().count() as f64 * size / 2.0)
        };
        let of = |words: &str, has_chart| fitting(words, &WORDS, has_chart, wrapped);
        assert_eq!(of("One line.", true), (50.0, vec!["One line.".to_owned()]));
        let first = "GPU 0 is 24 % fuller than the median card because the processes of the others also opened a context on it.";
        let long = format!("{first} {first} {first}");
        let (size, lines) = of(&long, true);
        assert_eq!((size, lines.join(" ")), (36.0, format!("{first} {first}")));
        let (_, lines) = of(&"endless ".repeat(80), true);
        assert!(lines.len() == 4 && lines[3].ends_with('…'), "{lines:?}");
    }
}
