//! A report as text: for terminals and as Markdown. Knows the model only; the page is the app's.

mod markdown;
mod terminal;
mod words;

pub use markdown::markdown;
pub use terminal::{Terminal, terminal};
