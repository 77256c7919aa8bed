//! The lines that xtask itself prints, told apart from those of the tools it runs.

/// One line on the standard error stream: the standard output belongs to the tools.
pub fn line(text: impl AsRef<str>) {
    eprintln!("xtask: {}", text.as_ref());
}

/// What went wrong, outermost reason first.
pub fn error(error: &anyhow::Error) {
    eprintln!("xtask: error: {error:#}");
}
