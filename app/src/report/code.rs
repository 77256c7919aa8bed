//! Commands, code and remedies: monospace blocks that can be copied.

use crate::words;
use leptos::prelude::*;

/// A command or some lines of code with a button that copies them. The button appears once the browser can copy.
pub fn code_block(text: &str) -> AnyView {
    view! {
        <div class="code">
            <pre tabindex="0"><code>{words::shown(text)}</code></pre>
            {copy_button(text, "Copy")}
        </div>
    }
    .into_any()
}

/// A button that copies `text` as it is shown, so that nothing unseen reaches a terminal; hidden until the island wakes
/// it.
pub fn copy_button(text: &str, word: &'static str) -> AnyView {
    view! { <button type="button" class="copy" data-copy=words::shown(text) hidden>{word}</button> }.into_any()
}

/// A part of a remedy.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    /// Lines of a diff, each with its mark.
    Diff(Vec<&'a str>),
}

/// Splits a remedy: text, and after a blank line lines that all start with a space, `+` or `-`.
fn parts(remedy: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for (n, block) in remedy.split("\n\n").enumerate() {
        let block = block.trim_matches('\n');
        if block.trim().is_empty() {
            continue;
        }
        if n > 0 && block.lines().all(|line| line.starts_with([' ', '+', '-'])) {
            if let Some(Part::Diff(lines)) = parts.last_mut() {
                lines.push(" ");
                lines.extend(block.lines());
            } else {
                parts.push(Part::Diff(block.lines().collect()));
            }
        } else {
            parts.push(Part::Text(block));
        }
    }
    parts
}

/// The lines as they stand after the change, without marks: what one wants to paste.
fn after(lines: &[&str]) -> String {
    let kept = lines.iter().filter(|line| !line.starts_with('-'));
    let bare: Vec<&str> = kept.map(|line| line.get(1..).unwrap_or_default()).collect();
    // A diff may put a space between mark and code; the code's own indentation, of two or four each, must survive.
    let indents = bare.iter().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len());
    let pad = indents.min().is_some_and(|least| least % 2 == 1);
    bare.iter().map(|line| if pad { line.get(1..).unwrap_or_default() } else { line }).collect::<Vec<_>>().join("\n")
}

/// A remedy: its words, and its code as a diff.
pub fn remedy(remedy: &str) -> AnyView {
    let views = parts(remedy)
        .into_iter()
        .map(|part| match part {
            Part::Text(text) => view! { <p>{words::shown(text)}</p> }.into_any(),
            Part::Diff(lines) => {
                let rows = lines.iter().map(|line| diff_line(line)).collect_view();
                view! {
                    <div class="code">
                        <pre class="diff" tabindex="0" role="region" aria-label="Change to the code"><code>{rows}</code></pre>
                        {copy_button(&after(&lines), "Copy")}
                    </div>
                }
                .into_any()
            }
        })
        .collect_view();
    view! { <div class="remedy"><h3>"Remedy"</h3>{views}</div> }.into_any()
}

fn diff_line(line: &str) -> AnyView {
    let class = match line.chars().next() {
        Some('+') => "add",
        Some('-') => "del",
        _ => "ctx",
    };
    let text = format!("{}\n", words::shown(line));
    match class {
        "add" => view! { <ins>{text}</ins> }.into_any(),
        "del" => view! { <del>{text}</del> }.into_any(),
        _ => view! { <span>{text}</span> }.into_any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEDY: &str = "Bind each process first.\n\n  rank = int(x)\n+ torch.cuda.set_device(local)\n- wrong()\n\n  \
                          dist.init()\n\nThen run again.";

    #[test]
    fn code_is_told_from_words() {
        let parts = parts(REMEDY);
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0], Part::Text("Bind each process first."));
        assert!(matches!(&parts[1], Part::Diff(lines) if lines.len() == 5));
        assert_eq!(parts[2], Part::Text("Then run again."));
        assert_eq!(super::parts("- a list item is no diff in the first block").len(), 1);
    }

    #[test]
    fn copying_gives_the_code_after_the_change() {
        assert_eq!(after(&["  a = 1", "+ b = 2", "- c = 3", "    d"]), "a = 1\nb = 2\n  d");
        assert_eq!(after(&[" a", "+b", "+    c"]), "a\nb\n    c");
        // Lines of a function: their indentation is not the diff's.
        assert_eq!(after(&["+    bind()", "     init()", "-    wrong()"]), "    bind()\n    init()");
        assert_eq!(after(&["+     bind()", "      init()"]), "    bind()\n    init()");
        assert_eq!(after(&[]), "");
    }
}
