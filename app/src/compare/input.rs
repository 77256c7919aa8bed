//! What each rank was fed, before and after: shapes and tokens. Even memory is proof of a fix only if the input was
//! what it was before.

use super::beside::{Beside, beside, not_shown};
use crate::backend::ComparedReports;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{RankInput, Report, Subject};

/// Rows that are shown.
const MOST_ROWS: usize = 32;

/// The table; nothing where neither run tells what its ranks were fed.
pub fn input(compared: &ComparedReports) -> Option<AnyView> {
    let (before, after) = (ranks(&compared.base), ranks(&compared.head));
    let subjects = subjects(before, after);
    if subjects.is_empty() {
        return None;
    }
    let left_out = subjects.len().saturating_sub(MOST_ROWS);
    let cell = |side: &[RankInput], subject: Subject| {
        let found = side.iter().find(|rank| rank.subject == subject);
        found.map_or_else(not_shown, |rank| fed(rank).into_any())
    };
    let rows = subjects
        .into_iter()
        .take(MOST_ROWS)
        .map(|subject| (subject.to_string(), cell(before, subject), cell(after, subject)));
    let about = Beside {
        id: "input",
        title: "What each rank was fed",
        subtitle: "batches, their largest shape, tokens".to_owned(),
        of: "subject",
        cut: (left_out > 0)
            .then(|| format!("{} not shown; the JSON of the reports has them.", words::count(left_out, "rank"))),
    };
    Some(beside(about, rows))
}

fn ranks(report: &Report) -> &[RankInput] {
    report.figures.facts.input.as_ref().map_or(&[], |facts| &facts.ranks)
}

/// Everyone of whom either run tells, in order.
fn subjects(before: &[RankInput], after: &[RankInput]) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = before.iter().chain(after).map(|rank| rank.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects
}

/// `60 batches, largest 8 × 512, 245,760 tokens`.
fn fed(rank: &RankInput) -> String {
    let batches =
        if rank.batches == 1 { "1 batch".to_owned() } else { format!("{} batches", words::grouped(rank.batches)) };
    let shape = rank.shape.as_ref().map(|shape| {
        let sides: Vec<String> = shape.iter().map(ToString::to_string).collect();
        format!("largest {}", sides.join(" \u{d7} "))
    });
    let tokens = (rank.tokens > 0).then(|| format!("{} tokens", words::grouped(rank.tokens)));
    [Some(batches), shape, tokens].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::testing::{compared, report};
    use rankscope_model::{InputFacts, Rank};

    fn rank(rank: u32, batches: u64, tokens: u64, shape: Option<&[u64]>) -> RankInput {
        let shape = shape.map(<[u64]>::to_vec);
        RankInput { subject: Subject::Rank(Rank(rank)), batches, tokens, largest: tokens, shape }
    }

    fn with(ranks: Vec<RankInput>) -> Report {
        let input = InputFacts { steps: 1, uneven_samples: 0, uneven_tokens: 0, worst_most: 1, worst_fewest: 1, ranks };
        let mut report = report();
        report.figures.facts.input = Some(input);
        report
    }

    fn html(before: Report, after: Report) -> Option<String> {
        let owner = Owner::new_root(None);
        owner.with(|| input(&compared(before, after)).map(leptos::prelude::RenderHtml::to_html))
    }

    #[test]
    fn a_batch_is_told_by_count_shape_and_tokens() {
        assert_eq!(fed(&rank(0, 60, 245_760, Some(&[8, 512]))), "60 batches, largest 8 \u{d7} 512, 245,760 tokens");
        assert_eq!(fed(&rank(0, 1, 0, None)), "1 batch");
        assert_eq!(fed(&rank(0, 12_000, 7, None)), "12,000 batches, 7 tokens");
        assert_eq!(fed(&rank(0, 2, 0, Some(&[3, 224, 224]))), "2 batches, largest 3 \u{d7} 224 \u{d7} 224");
    }

    #[test]
    fn every_rank_of_either_run_has_one_row_with_both_sides() {
        let before = with(vec![rank(0, 60, 100, None), rank(2, 61, 300, None)]);
        let after = with(vec![rank(1, 62, 400, None), rank(2, 63, 500, None)]);
        let html = html(before, after).unwrap();
        let rows: Vec<&str> = html.split("<tr").skip(2).collect();
        assert_eq!(rows.len(), 3);
        let holds = |row: usize, words: &[&str]| {
            let mut rest = rows[row];
            for word in words {
                let at = rest.find(word).unwrap_or_else(|| panic!("{word} is not next in {rest}"));
                rest = &rest[at + word.len()..];
            }
        };
        holds(0, &["rank 0", "60 batches, 100 tokens", "not shown"]);
        holds(1, &["rank 1", "not shown", "62 batches, 400 tokens"]);
        holds(2, &["rank 2", "61 batches", "63 batches"]);
        assert!(!html.contains("class=\"cut"));
    }

    #[test]
    fn runs_that_do_not_tell_have_no_table() {
        assert_eq!(html(report(), report()), None);
        assert!(html(report(), with(vec![rank(0, 1, 1, None)])).is_some(), "one of them is enough");
    }

    #[test]
    fn very_many_ranks_are_cut_and_counted() {
        let many = || with((0..40).map(|n| rank(n, 1, 1, None)).collect());
        let html = html(many(), many()).unwrap();
        assert_eq!(html.matches("<tr").count(), 1 + MOST_ROWS);
        assert!(html.contains("8 ranks not shown; the JSON of the reports has them."));
    }
}
