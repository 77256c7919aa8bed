//! How a run whose job goes on stands, in words: for its page, and for what the server sends when that changes.

use crate::words;
use rankscope_model::RunStanding;

/// Silent nodes that are named; more are counted.
const NAMED: usize = 2;

/// `The job is running`, or who of it is silent.
pub fn run_word(standing: &RunStanding) -> String {
    if standing.silent.is_empty() {
        let word = if standing.filling {
            "The job is running; its GPUs still fill, so that differences may pass"
        } else {
            "The job is running"
        };
        return word.to_owned();
    }
    let who = |silence: &rankscope_model::Silence| {
        let name = silence.node.as_deref().map_or_else(|| "its probes".to_owned(), words::shown_line);
        format!("{name} since {}", words::clock(silence.since))
    };
    let named: Vec<String> = standing.silent.iter().take(NAMED).map(who).collect();
    let more = match standing.silent.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and of {}", words::count(more, "more node")),
    };
    let silent = format!("o word from {}{more}", named.join(" and "));
    if standing.is_still() {
        format!("N{silent}; last known state")
    } else {
        format!("The job is running, but n{silent}: its last known state is shown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{Silence, UnixMicros};

    #[test]
    fn who_is_silent_is_named_with_the_time() {
        let silence = |node: &str, second: i64| Silence {
            node: Some(node.to_owned()),
            since: UnixMicros((14 * 3600 + 3 * 60 + second) * 1_000_000),
        };
        let word = |nodes, silent: Vec<Silence>| run_word(&RunStanding { nodes, silent, filling: false });
        assert_eq!(word(2, vec![]), "The job is running");
        assert_eq!(word(1, vec![silence("a", 10)]), "No word from a since 14:03:10; last known state");
        assert_eq!(
            word(3, vec![silence("a", 10)]),
            "The job is running, but no word from a since 14:03:10: its last known state is shown"
        );
        assert_eq!(
            word(4, ["a", "b", "c", "d"].map(|node| silence(node, 10)).into()),
            "No word from a since 14:03:10 and b since 14:03:10 and of 2 more nodes; last known state"
        );
        let filling = RunStanding { nodes: 1, filling: true, ..RunStanding::default() };
        assert!(run_word(&filling).starts_with("The job is running; its GPUs still fill"));
        let probes = Silence { node: None, since: UnixMicros(0) };
        assert_eq!(word(0, vec![probes]), "No word from its probes since 00:00:00; last known state");
    }
}
