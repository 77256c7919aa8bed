//! The document around what is exported: one HTML file that refers to nothing outside itself and does nothing by itself.
//! Knows no report.

use crate::document::STYLE;
use crate::words;
use leptos::prelude::*;

/// A whole HTML document with its style written in. `title` and `description` may be foreign text; `body` is rendered
/// inside an owner of its own.
pub fn standalone_html(title: &str, description: &str, body: impl FnOnce() -> AnyView) -> String {
    let owner = Owner::new_root(None);
    let html = owner.with(|| {
        view! {
            <html lang="en">
                <head>
                    <meta charset="utf-8"/>
                    <meta name="viewport" content="width=device-width, initial-scale=1"/>
                    <meta name="color-scheme" content="light dark"/>
                    <meta name="robots" content="noindex"/>
                    <meta name="generator" content="Rankscope"/>
                    <title>{words::shown_line(title)}</title>
                    <meta name="description" content=words::shown_line(description)/>
                    <style inner_html=STYLE></style>
                </head>
                <body class="standalone">{body()}</body>
            </html>
        }
        .to_html()
    });
    owner.unset_with_forced_cleanup();
    format!("<!DOCTYPE html>{html}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_in_the_head_stay_words() {
        let html = standalone_html("</title><script>", "\"><script>", || ().into_any());
        assert!(html.starts_with("<!DOCTYPE html><html"));
        assert!(!html.contains("<script>"), "{}", html.split("<style").next().unwrap());
    }
}
