//! Where the numbers of bands stand, so that each one of a key is found in the drawing: in its band where there is room,
//! else in the row above the plot, with a line down to the band. Knows places, no ink.

use crate::ink::{Frame, LABEL, Point};

/// Height that a number takes inside a band.
const TALL: f64 = LABEL + 2.0;
/// From edge to edge of two numbers, and from a number to a line.
const GAP: f64 = 4.0;
/// Steps in which a place in the row above is looked for.
const STEP: f64 = 2.0;

/// One band: the height of its edges in each column, downwards as pixels go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Band {
    pub upper: Vec<f64>,
    pub lower: Vec<f64>,
    /// Width of its number.
    pub width: f64,
}

/// What the numbers must keep clear of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Room {
    pub plot: Frame,
    /// Middle of the row above the plot.
    pub row: f64,
    /// Left and right end of the word in that row.
    pub word: Option<(f64, f64)>,
    /// The line of the peak.
    pub peak: Option<f64>,
}

/// Where a number stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Place {
    Inside(Point),
    /// Above the plot; the line ends at `tip`.
    Above {
        number: Point,
        tip: Point,
    },
    /// The row is full, too.
    Nowhere,
}

/// The place of each band's number; `xs` are the columns from left to right.
pub(crate) fn places(xs: &[f64], bands: &[Band], room: Room) -> Vec<Place> {
    let mut found = vec![Place::Nowhere; bands.len()];
    let mut taken = Taken { room, inside: Vec::new(), above: Vec::new() };
    // Those that fit nowhere come first: their lines must not run through the others' numbers.
    let (thin, thick): (Vec<usize>, Vec<usize>) = (0..bands.len()).partition(|at| !fits_somewhere(&bands[*at]));
    for at in thin {
        found[at] = taken.above(xs, &bands[at]);
    }
    for at in thick {
        found[at] = taken.inside(xs, &bands[at]).unwrap_or_else(|| taken.above(xs, &bands[at]));
    }
    found
}

fn thickness(band: &Band, column: usize) -> f64 {
    band.lower.get(column).zip(band.upper.get(column)).map_or(0.0, |(lower, upper)| lower - upper)
}

fn fits_somewhere(band: &Band) -> bool {
    (0..band.upper.len()).any(|column| thickness(band, column) >= TALL)
}

/// Columns with the band, thickest first; of equally thick ones the left one, so that numbers stand in a line.
fn by_thickness(band: &Band) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..band.upper.len()).collect();
    columns.sort_by(|a, b| {
        // Half a number's height more makes no place better.
        let rough = |column: usize| (thickness(band, column) / (TALL / 2.0)).floor();
        rough(*b).total_cmp(&rough(*a))
    });
    columns
}

struct Taken {
    room: Room,
    /// Middles and half widths of numbers in bands.
    inside: Vec<(Point, f64)>,
    /// Middles and half widths of numbers in the row above, and where their lines end.
    above: Vec<(f64, f64, Point)>,
}

impl Taken {
    fn inside(&mut self, xs: &[f64], band: &Band) -> Option<Place> {
        let half = band.width / 2.0;
        let at = by_thickness(band).into_iter().find_map(|column| {
            let x = xs[column].clamp(self.room.plot.left + half + GAP, self.room.plot.right - half - GAP);
            // The part of the band that is there over the whole width of the number.
            let reach = half + 1.0;
            let from = xs.partition_point(|other| *other < x - reach).saturating_sub(1);
            let to = (xs.partition_point(|other| *other <= x + reach) + 1).min(xs.len());
            let top = band.upper[from..to].iter().copied().fold(f64::MIN, f64::max);
            let bottom = band.lower[from..to].iter().copied().fold(f64::MAX, f64::min);
            let y = f64::midpoint(top, bottom);
            (bottom - top >= TALL && self.is_clear((x, y), half)).then_some((x, y))
        })?;
        self.inside.push((at, half));
        Some(Place::Inside(at))
    }

    fn is_clear(&self, (x, y): Point, half: f64) -> bool {
        let off_peak = self.room.peak.is_none_or(|peak| (peak - x).abs() > half + GAP);
        let off_lines = self.above.iter().all(|(from, _, tip)| {
            let (left, right) = (from.min(tip.0), from.max(tip.0));
            x + half + GAP < left || x - half - GAP > right || y > tip.1 + TALL
        });
        let off_numbers = self
            .inside
            .iter()
            .all(|((other, height), width)| (other - x).abs() > half + width + GAP || (height - y).abs() > TALL);
        off_peak && off_lines && off_numbers
    }

    /// The nearest free place in the row; the line ends where the band is thickest, clear of other numbers if it can be.
    fn above(&mut self, xs: &[f64], band: &Band) -> Place {
        let columns = by_thickness(band);
        let tip_of = |column: usize| (xs[column], f64::midpoint(band.upper[column], band.lower[column]));
        let crosses = |tip: Point| {
            self.inside.iter().any(|((x, y), width)| (x - tip.0).abs() < width + GAP && *y < tip.1 + TALL / 2.0)
        };
        let widest = columns.first().map_or(0.0, |column| thickness(band, *column));
        let well = columns.iter().copied().filter(|column| thickness(band, *column) >= widest * 0.8);
        let place = well.clone().find_map(|column| {
            let tip = tip_of(column);
            let off_peak = self.room.peak.is_none_or(|peak| (peak - tip.0).abs() > GAP);
            (off_peak && !crosses(tip) && self.is_free(tip.0, band.width / 2.0)).then_some((tip.0, tip))
        });
        let place = place.or_else(|| {
            let tip = tip_of(*columns.first()?);
            let steps = (self.room.plot.width() / STEP).max(0.0);
            let mut away = (0..).map(|step| f64::from(step) * STEP).take_while(|away| *away <= steps * STEP);
            let x = away.find_map(|away| {
                [tip.0 - away, tip.0 + away].into_iter().find(|x| self.is_free(*x, band.width / 2.0))
            })?;
            Some((x, tip))
        });
        let Some((x, tip)) = place else { return Place::Nowhere };
        self.above.push((x, band.width / 2.0, tip));
        Place::Above { number: (x, self.room.row), tip }
    }

    fn is_free(&self, x: f64, half: f64) -> bool {
        let in_plot = x - half >= self.room.plot.left && x + half <= self.room.plot.right;
        let off_word = self.room.word.is_none_or(|(left, right)| x + half + GAP < left || x - half - GAP > right);
        let off_peak = self.room.peak.is_none_or(|peak| (peak - x).abs() > half + 2.0);
        in_plot
            && off_word
            && off_peak
            && self.above.iter().all(|(other, width, _)| (other - x).abs() > half + width + GAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room =
        Room { plot: Frame { left: 0.0, top: 30.0, right: 300.0, bottom: 230.0 }, row: 20.0, word: None, peak: None };

    /// Bands of these heights, one on the other, the same over 100 columns.
    fn flat(heights: &[f64]) -> (Vec<f64>, Vec<Band>) {
        let xs: Vec<f64> = (0..100).map(|column| f64::from(column) * 3.0).collect();
        let mut lower = ROOM.plot.bottom;
        let bands = heights.iter().map(|height| {
            let band = Band { upper: vec![lower - height; 100], lower: vec![lower; 100], width: 7.0 };
            lower -= height;
            band
        });
        let bands = bands.collect();
        (xs, bands)
    }

    #[test]
    fn every_number_has_a_place_of_its_own() {
        for heights in [&[60.0, 50.0, 20.0][..], &[80.0, 3.0, 2.0, 30.0, 1.0, 0.5, 4.0], &[1.0; 12], &[14.5; 12]] {
            let (xs, bands) = flat(heights);
            for room in [ROOM, Room { peak: Some(3.0), word: Some((8.0, 90.0)), ..ROOM }] {
                let places = places(&xs, &bands, room);
                assert_eq!(places.len(), heights.len());
                let at = |place: &Place| match place {
                    Place::Inside(at) | Place::Above { number: at, .. } => *at,
                    Place::Nowhere => panic!("{heights:?}: {places:?}"),
                };
                for (n, place) in places.iter().enumerate() {
                    let (x, y) = at(place);
                    for other in places.iter().skip(n + 1).map(at) {
                        assert!((other.0 - x).abs() > 7.0 || (other.1 - y).abs() >= LABEL, "{heights:?}: {places:?}");
                    }
                    if let Place::Above { number, .. } = place {
                        assert!(room.word.is_none_or(|(left, right)| number.0 < left || number.0 > right));
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_stands_in_its_band_where_that_is_thick_enough() {
        let (xs, bands) = flat(&[60.0, 2.0, 50.0]);
        let places = places(&xs, &bands, ROOM);
        assert!(matches!(places[0], Place::Inside((_, y)) if (y - 200.0).abs() < 1.0), "{places:?}");
        assert!(matches!(places[1], Place::Above { tip: (_, y), .. } if (y - 169.0).abs() < 1.0), "{places:?}");
        assert!(matches!(places[2], Place::Inside(_)), "{places:?}");
    }

    #[test]
    fn a_full_row_takes_no_more() {
        let (xs, mut bands) = flat(&[1.0; 60]);
        for band in &mut bands {
            band.width = 14.0;
        }
        assert!(places(&xs, &bands, ROOM).contains(&Place::Nowhere));
    }
}
