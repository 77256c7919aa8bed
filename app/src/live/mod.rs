//! Nodes, their cards and who is on them, as they are now. One view for the page and for what the server sends when a
//! node changes. Knows what a status holds, not where it comes from.

pub mod heat;

/// What is said above all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Nodes, silent ones included.
    pub nodes: usize,
    /// Those of them of which there is no word.
    pub silent: usize,
    /// GPUs of all.
    pub cards: usize,
    /// GPUs that are lost, of nodes that speak: of the others only the past is known.
    pub lost: usize,
    /// GPUs that stand out, of nodes that speak.
    pub out: usize,
    /// Jobs of nodes that speak whose reports accuse something.
    pub found: usize,
}

/// `64 nodes, 1 of them silent, 512 GPUs, 1 lost, 1 stands out`. The same on the server and in the browser.
pub fn sum_words(sum: Sum) -> String {
    use crate::words::count;
    let Sum { nodes, silent, cards, lost, out, found } = sum;
    let silent = match silent {
        0 => String::new(),
        all if all == nodes && nodes > 1 => ", all of them silent".to_owned(),
        _ if nodes == 1 => ", silent".to_owned(),
        n => format!(", {n} of them silent"),
    };
    let lost = if lost > 0 { format!("{lost} lost, ") } else { String::new() };
    let jobs = count(found, "job");
    let stands = match (out, found) {
        (0, 0) => "none stands out".to_owned(),
        (0, _) => format!("{jobs} with a finding"),
        (1, 0) => "1 stands out".to_owned(),
        (n, 0) => format!("{n} stand out"),
        (n, _) => format!("{n} stand{} out, {jobs} with a finding", if n == 1 { "s" } else { "" }),
    };
    format!("{}{silent}, {}, {lost}{stands}", count(nodes, "node"), count(cards, "GPU"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_silent_is_said_and_does_not_count_as_now() {
        let sum = Sum { nodes: 64, silent: 0, cards: 512, lost: 1, out: 2, found: 0 };
        assert_eq!(sum_words(sum), "64 nodes, 512 GPUs, 1 lost, 2 stand out");
        assert_eq!(
            sum_words(Sum { silent: 3, lost: 0, out: 0, ..sum }),
            "64 nodes, 3 of them silent, 512 GPUs, none stands out"
        );
        let one = Sum { nodes: 1, silent: 1, cards: 8, lost: 0, out: 0, found: 0 };
        let leak = Sum { silent: 0, found: 1, ..one };
        assert_eq!(sum_words(leak), "1 node, 8 GPUs, 1 job with a finding");
        assert_eq!(sum_words(Sum { out: 1, ..leak }), "1 node, 8 GPUs, 1 stands out, 1 job with a finding");
        assert_eq!(sum_words(one), "1 node, silent, 8 GPUs, none stands out");
        assert_eq!(
            sum_words(Sum { nodes: 2, silent: 2, ..one }),
            "2 nodes, all of them silent, 8 GPUs, none stands out"
        );
    }
}

#[cfg(feature = "ssr")]
mod node;

#[cfg(feature = "ssr")]
mod standing;

#[cfg(feature = "ssr")]
pub use node::{live_node_html, node_card, summary};
#[cfg(feature = "ssr")]
pub use standing::run_word;
