//! The documentation as part of the binary: which pages there are, and how their Markdown becomes HTML. Knows no page
//! of the app.

mod book;
mod markdown;

pub use book::{Chapter, chapter, parts, texts};
pub use markdown::Heading;

#[cfg(test)]
mod tests;
