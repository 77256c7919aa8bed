//! Markdown of our own pages as HTML: headings with addresses, code that can be copied, tables that scroll, links
//! between pages.

use crate::words;
use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use std::collections::BTreeSet;
use std::fmt::Write;

/// A page as HTML.
#[derive(Debug)]
pub struct Rendered {
    /// Text of the first heading.
    pub title: String,
    /// Text of the first paragraph, for link previews.
    pub summary: String,
    /// Everything, the first heading included.
    pub html: String,
    /// Headings of the second level, for the list beside a long page.
    pub headings: Vec<Heading>,
    /// Every address within the page, and where its links lead; for the test that no link is broken.
    #[cfg_attr(not(test), allow(dead_code))]
    pub anchors: BTreeSet<String>,
    /// Addresses of other pages or places that it links to, rewritten.
    #[cfg_attr(not(test), allow(dead_code))]
    pub links: Vec<String>,
}

/// A heading of the second level.
#[derive(Debug)]
pub struct Heading {
    /// Its address within the page.
    pub anchor: String,
    /// Its text.
    pub text: String,
}

/// The address of a page.
pub fn address(slug: &str) -> String {
    if slug.is_empty() { "/docs".to_owned() } else { format!("/docs/{slug}") }
}

/// Renders the page `slug`. Raw HTML is shown as text.
pub fn render(slug: &str, text: &str) -> Rendered {
    let mut page = Rendered {
        title: String::new(),
        summary: String::new(),
        html: String::new(),
        headings: Vec::new(),
        anchors: BTreeSet::new(),
        links: Vec::new(),
    };
    let mut out: Vec<Event<'_>> = Vec::new();
    let mut events = Parser::new_ext(text, Options::ENABLE_TABLES);
    // Links to files that are no page are shown as their text alone.
    let mut dropped_links = 0_u32;
    while let Some(event) = events.next() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                let inner: Vec<_> = events.by_ref().take_while(|event| !is_end(event, level)).collect();
                heading(&mut page, &mut out, level, inner);
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                let code = plain(events.by_ref().take_while(|event| !matches!(event, Event::End(TagEnd::CodeBlock))));
                out.push(Event::Html(code_block(&kind, code.trim_end()).into()));
            }
            Event::Start(Tag::Paragraph) if page.summary.is_empty() => {
                let inner: Vec<_> =
                    events.by_ref().take_while(|event| !matches!(event, Event::End(TagEnd::Paragraph))).collect();
                page.summary = plain(inner.iter().cloned());
                out.push(Event::Start(Tag::Paragraph));
                for event in inner {
                    inline(slug, event, &mut page, &mut out, &mut dropped_links);
                }
                out.push(Event::End(TagEnd::Paragraph));
            }
            Event::Start(Tag::Table(columns)) => {
                out.push(Event::Html(r#"<div class="scroll" tabindex="0" role="group" aria-label="Table">"#.into()));
                out.push(Event::Start(Tag::Table(columns)));
            }
            Event::End(TagEnd::Table) => out.extend([Event::End(TagEnd::Table), Event::Html("</div>".into())]),
            Event::Html(raw) => out.push(Event::Text(raw)),
            event => inline(slug, event, &mut page, &mut out, &mut dropped_links),
        }
    }
    html::push_html(&mut page.html, out.into_iter());
    page
}

fn is_end(event: &Event<'_>, level: HeadingLevel) -> bool {
    matches!(event, Event::End(TagEnd::Heading(found)) if *found == level)
}

/// Text of events, marks left out.
fn plain<'a>(events: impl Iterator<Item = Event<'a>>) -> String {
    events.fold(String::new(), |mut text, event| {
        match event {
            Event::Text(part) | Event::Code(part) => text.push_str(&part),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
        text
    })
}

fn heading<'a>(page: &mut Rendered, out: &mut Vec<Event<'a>>, level: HeadingLevel, inner: Vec<Event<'a>>) {
    let text = plain(inner.iter().cloned());
    let anchor = unused(&page.anchors, &slug_of(&text));
    page.anchors.insert(anchor.clone());
    if level == HeadingLevel::H1 && page.title.is_empty() {
        page.title.clone_from(&text);
    }
    out.push(Event::Start(Tag::Heading { level, id: Some(anchor.clone().into()), classes: vec![], attrs: vec![] }));
    out.extend(inner);
    out.push(Event::End(TagEnd::Heading(level)));
    if level == HeadingLevel::H2 {
        page.headings.push(Heading { anchor, text });
    }
}

/// Lower case, words joined by `-`, nothing else: as code hosts make them, so that links work there too.
fn slug_of(text: &str) -> String {
    text.trim()
        .chars()
        .flat_map(char::to_lowercase)
        .filter_map(|sign| match sign {
            ' ' | '-' => Some('-'),
            '_' => Some('_'),
            sign => sign.is_alphanumeric().then_some(sign),
        })
        .collect()
}

fn unused(taken: &BTreeSet<String>, wanted: &str) -> String {
    if !taken.contains(wanted) {
        return wanted.to_owned();
    }
    (1..=taken.len()).map(|n| format!("{wanted}-{n}")).find(|anchor| !taken.contains(anchor)).unwrap_or_default()
}

fn code_block(kind: &CodeBlockKind<'_>, code: &str) -> String {
    // The first word names the language; the words after it are for tests.
    let language = match kind {
        CodeBlockKind::Fenced(info) => info.split_whitespace().next().unwrap_or_default(),
        CodeBlockKind::Indented => "",
    };
    let shown = escape(&words::shown(code));
    let mut block = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        block,
        r#"<div class="code" data-language="{}"><pre tabindex="0"><code>{shown}</code></pre><button type="button" class="copy" data-copy="{shown}" hidden>Copy</button></div>"#,
        escape(language)
    );
    block
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn inline<'a>(slug: &str, event: Event<'a>, page: &mut Rendered, out: &mut Vec<Event<'a>>, dropped_links: &mut u32) {
    match event {
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => match target(slug, &dest_url) {
            Some(address) => {
                page.links.push(address.clone());
                out.push(Event::Start(Tag::Link { link_type, dest_url: CowStr::from(address), title, id }));
            }
            None => *dropped_links += 1,
        },
        Event::End(TagEnd::Link) if *dropped_links > 0 => *dropped_links -= 1,
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            let dest_url = match dest_url.rsplit_once("images/") {
                Some((_, name)) => CowStr::from(format!("/docs/images/{name}")),
                None => dest_url,
            };
            out.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
        }
        Event::InlineHtml(raw) => out.push(Event::Text(raw)),
        event => out.push(event),
    }
}

/// Where a link leads on this site; `None` for files of the source tree, which the binary does not carry.
fn target(slug: &str, link: &str) -> Option<String> {
    if link.starts_with("https://") || link.starts_with("http://") || link.starts_with('/') {
        return Some(link.to_owned());
    }
    if let Some(anchor) = link.strip_prefix('#') {
        return Some(format!("{}#{anchor}", address(slug)));
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let name = path.strip_suffix(".md")?;
    let mut parts: Vec<&str> = slug.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let page = address(&parts.join("/"));
    Some(anchor.map_or(page.clone(), |anchor| format!("{page}#{anchor}")))
}
