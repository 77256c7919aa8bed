//! Nodes, their cards and who is on them, as they are now. One view for the page and for what the server sends when a
//! node changes. Knows what a status holds, not where it comes from.

pub mod heat;

/// `64 nodes, 512 GPUs, 1 lost, 1 stands out`: above all nodes. The same on the server and in the browser.
pub fn sum_words(nodes: usize, cards: usize, lost: usize, out: usize) -> String {
    use crate::words::count;
    let lost = if lost > 0 { format!("{lost} lost, ") } else { String::new() };
    let stands = match out {
        0 => "none stands out".to_owned(),
        1 => "1 stands out".to_owned(),
        n => format!("{n} stand out"),
    };
    format!("{}, {}, {lost}{stands}", count(nodes, "node"), count(cards, "GPU"))
}

#[cfg(feature = "ssr")]
mod node;

#[cfg(feature = "ssr")]
mod standing;

#[cfg(feature = "ssr")]
pub use node::{live_node_html, node_card, summary};
#[cfg(feature = "ssr")]
pub use standing::run_word;
