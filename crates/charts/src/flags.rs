//! Places texts on poles above a plot, so that none covers another, crosses a pole or leaves the picture.
//! Knows widths only, not what the texts say.

use crate::ink::{ROW, Type};

/// Free space between two texts, and between a text and its pole.
const GAP: f64 = 9.0;
const TO_POLE: f64 = 5.0;
/// More rows than this would push the data away.
const MOST_ROWS: usize = 4;

/// Something to place: where its pole stands and what it may say, the fullest wording first.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    pub x: f64,
    pub wordings: Vec<String>,
}

/// A placed text. Row 0 is next to the plot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    pub row: usize,
    pub left: f64,
    pub right: f64,
    pub text: String,
}

/// The arrangement: one entry per flag, `None` where a text found no place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arrangement {
    pub flags: Vec<Option<Placed>>,
    pub rows: usize,
}

impl Arrangement {
    /// Height of all rows in CSS pixels.
    pub fn height(&self) -> f64 {
        self.rows as f64 * ROW
    }

    fn placed(&self) -> usize {
        self.flags.iter().flatten().count()
    }
}

/// Arranges flags between two edges. Flags earlier in the list matter more when not all find a place.
pub(crate) fn arrange(flags: &[Flag], look: Type, left: f64, right: f64) -> Arrangement {
    let levels = flags.iter().map(|flag| flag.wordings.len()).max().unwrap_or(0);
    let mut ascending: Vec<usize> = (0..flags.len()).collect();
    ascending.sort_by(|a, b| flags[*a].x.total_cmp(&flags[*b].x));
    let descending: Vec<usize> = ascending.iter().rev().copied().collect();
    let by_weight: Vec<usize> = (0..flags.len()).collect();
    let mut best = Arrangement { flags: vec![None; flags.len()], rows: 0 };
    for level in 0..levels {
        // Texts that run to the right stack from the right, texts that run to the left from the left.
        let ways = [(&descending, Some(0)), (&ascending, Some(1)), (&descending, None), (&by_weight, None)];
        for (order, first_side) in ways {
            let arrangement = place(flags, order, first_side, level, look, (left, right));
            let better = (arrangement.placed(), best.rows) > (best.placed(), arrangement.rows);
            if better {
                best = arrangement;
            }
        }
        if best.placed() == flags.len() {
            break;
        }
    }
    best
}

/// Gives each flag in turn the first free place: on `first_side` (0 right, 1 left) of its pole if it can, in the lowest
/// row first; without a side, in the lowest row on either side.
fn place(
    flags: &[Flag],
    order: &[usize],
    first_side: Option<usize>,
    level: usize,
    look: Type,
    (left, right): (f64, f64),
) -> Arrangement {
    let places: Vec<(usize, usize)> = match first_side {
        Some(side) => {
            [side, 1 - side].into_iter().flat_map(|side| (0..MOST_ROWS).map(move |row| (row, side))).collect()
        }
        None => (0..MOST_ROWS).flat_map(|row| [(row, 0), (row, 1)]).collect(),
    };
    let mut placed: Vec<Option<Placed>> = vec![None; flags.len()];
    for &index in order {
        let flag = &flags[index];
        let Some(wording) = flag.wordings.get(level).or(flag.wordings.last()) else { continue };
        let room = (right - flag.x - TO_POLE).max(flag.x - TO_POLE - left);
        // Only the shortest wording may be cut.
        let is_shortest = level + 1 >= flag.wordings.len();
        let text = if is_shortest || look.width(wording) <= room { look.fit(wording, room) } else { continue };
        if text.is_empty() {
            continue;
        }
        let width = look.width(&text);
        let sides = [(flag.x + TO_POLE, flag.x + TO_POLE + width), (flag.x - TO_POLE - width, flag.x - TO_POLE)];
        placed[index] = places
            .iter()
            .map(|(row, side)| Placed { row: *row, left: sides[*side].0, right: sides[*side].1, text: text.clone() })
            .find(|candidate| {
                let inside = candidate.left >= left - 1e-6 && candidate.right <= right + 1e-6;
                inside
                    && placed.iter().zip(flags).all(|(other, other_flag)| {
                        other.as_ref().is_none_or(|other| agree(candidate, flag.x, other, other_flag.x))
                    })
            });
    }
    let rows = placed.iter().flatten().map(|flag| flag.row + 1).max().unwrap_or(0);
    Arrangement { flags: placed, rows }
}

fn agree(a: &Placed, a_pole: f64, b: &Placed, b_pole: f64) -> bool {
    let apart = a.row != b.row || a.right + GAP <= b.left || b.right + GAP <= a.left;
    // A pole passes all rows below its own, and its own beside its text.
    let crosses = |text: &Placed, pole: f64, pole_row: usize| {
        text.row <= pole_row && pole > text.left - TO_POLE + 1.0 && pole < text.right + TO_POLE - 1.0
    };
    apart && !crosses(a, b_pole, b.row) && !crosses(b, a_pole, a.row)
}

/// The right end of a label of a width between two edges that no pole crosses, as far right as possible.
pub(crate) fn between_poles(poles: &[f64], width: f64, left: f64, right: f64) -> Option<f64> {
    let free = |end: &f64| poles.iter().all(|pole| *pole < end - width - 4.0 || *pole > end + 4.0);
    let besides = poles.iter().map(|pole| pole - 4.5);
    let mut ends: Vec<f64> = std::iter::once(right).chain(besides).collect();
    ends.retain(|end| *end <= right && end - width >= left);
    ends.sort_by(|a, b| b.total_cmp(a));
    ends.into_iter().find(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::palette::Token;

    fn flags(xs: &[f64], text: &str) -> Vec<Flag> {
        xs.iter().map(|x| Flag { x: *x, wordings: vec![text.to_owned()] }).collect()
    }

    fn check(flags: &[Flag], left: f64, right: f64) -> Arrangement {
        let arrangement = arrange(flags, Type::label(Token::Hot), left, right);
        let placed: Vec<(&Placed, f64)> =
            arrangement.flags.iter().zip(flags).filter_map(|(p, f)| Some((p.as_ref()?, f.x))).collect();
        for (i, (a, a_pole)) in placed.iter().enumerate() {
            assert!(a.left >= left && a.right <= right, "{a:?} leaves the picture");
            for (b, b_pole) in &placed[i + 1..] {
                assert!(agree(a, *a_pole, b, *b_pole), "{a:?} and {b:?}");
            }
        }
        arrangement
    }

    #[test]
    fn close_marks_stack() {
        for xs in [vec![40.0, 60.0, 90.0], vec![650.0, 660.0, 690.0], vec![0.0, 350.0, 700.0]] {
            let arrangement = check(&flags(&xs, "gap opens at DDP(), +5.95 GiB"), 0.0, 700.0);
            assert_eq!(arrangement.placed(), xs.len(), "{xs:?} {arrangement:?}");
        }
    }

    #[test]
    fn what_finds_no_place_is_left_out() {
        let xs: Vec<f64> = (0..40).map(|i| f64::from(i) * 7.0).collect();
        let arrangement = check(&flags(&xs, "out of memory, rank 3"), 0.0, 300.0);
        assert!(arrangement.placed() >= 2 && arrangement.rows <= MOST_ROWS, "{arrangement:?}");
    }

    #[test]
    fn the_fullest_wording_that_leaves_all_a_place_is_taken() {
        let wordings = |n: usize| {
            vec![
                format!("GPU {n}: 31.5 GiB, 6.2 GiB over the median"),
                format!("GPU {n}: 31.5 GiB"),
                format!("GPU {n}"),
            ]
        };
        let xs = [62.0, 139.0, 215.0, 368.0, 597.0, 826.0];
        let flags: Vec<Flag> = xs.iter().enumerate().map(|(n, x)| Flag { x: *x, wordings: wordings(n) }).collect();
        let arrangement = check(&flags, 0.0, 1100.0);
        assert!(arrangement.flags.iter().flatten().all(|flag| flag.text.ends_with("GiB")), "{arrangement:?}");
    }

    #[test]
    fn a_label_finds_the_gap_between_poles() {
        assert_eq!(between_poles(&[], 50.0, 0.0, 300.0), Some(300.0));
        assert_eq!(between_poles(&[280.0, 240.0], 50.0, 0.0, 300.0), Some(235.5));
        assert_eq!(between_poles(&[40.0, 80.0, 120.0], 50.0, 0.0, 130.0), None);
    }

    #[test]
    fn long_texts_are_cut_to_the_longer_side() {
        let arrangement = check(&flags(&[150.0], &"very long ".repeat(40)), 0.0, 320.0);
        assert!(arrangement.flags[0].as_ref().unwrap().text.ends_with('…'));
    }
}
