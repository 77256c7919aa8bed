use super::markdown::render;
use super::*;
use std::collections::BTreeSet;
use std::path::Path;

/// Pages that are for readers of the source tree alone.
const NOT_SERVED: &[&str] = &[];

fn pages_in(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "samples" && name != "images" {
            pages_in(&path, &format!("{prefix}{name}/"), found);
        } else if let Some(slug) = name.strip_suffix(".md") {
            found.insert(format!("{prefix}{slug}"));
        }
    }
}

#[test]
fn every_page_of_the_folder_is_in_the_book_and_no_other() {
    let mut there = BTreeSet::new();
    pages_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs"), "", &mut there);
    there.retain(|slug| !NOT_SERVED.contains(&slug.as_str()));
    let listed: BTreeSet<String> =
        parts().iter().flat_map(|part| &part.chapters).map(|chapter| chapter.slug.to_owned()).collect();
    assert_eq!(listed, there);
}

#[test]
fn every_page_has_a_title_and_a_first_sentence() {
    for chapter in parts().iter().flat_map(|part| &part.chapters) {
        assert!(!chapter.page.title.is_empty(), "{}", chapter.slug);
        assert!(chapter.page.summary.len() > 20, "{}: {:?}", chapter.slug, chapter.page.summary);
    }
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    for part in parts() {
        for from in &part.chapters {
            for link in from.page.links.iter().filter(|link| link.starts_with("/docs/")) {
                let (page, anchor) = link.split_once('#').map_or((link.as_str(), None), |(page, at)| (page, Some(at)));
                let to = chapter(page.trim_start_matches("/docs/"));
                let to = to.unwrap_or_else(|| panic!("{} links to {link}, which is no page", from.slug));
                if let Some(anchor) = anchor {
                    assert!(to.page.anchors.contains(anchor), "{} links to {link}: no such heading", from.slug);
                }
            }
        }
    }
}

#[test]
fn text_stays_text_and_code_can_be_copied() {
    let page =
        render("a", "# One\n\nFirst <b>raw</b> & `x<y`.\n\n```sh test\necho \"<1>\"\n```\n\n| a |\n|---|\n| b |\n");
    assert_eq!((page.title.as_str(), page.summary.as_str()), ("One", "First raw & x<y."));
    assert!(page.html.contains(r#"<h1 id="one">One</h1>"#), "{}", page.html);
    assert!(page.html.contains("&lt;b&gt;raw&lt;/b&gt;"), "{}", page.html);
    assert!(
        page.html.contains(r#"data-language="sh""#) && page.html.contains(r#"data-copy="echo &quot;&lt;1&gt;&quot;""#)
    );
    assert!(page.html.contains(r#"<div class="scroll""#) && page.html.contains("</table>\n</div>"), "{}", page.html);
}

#[test]
fn links_between_pages_work_from_folders_too_and_source_files_are_named_only() {
    let page = render(
        "items/data",
        "# T\n\n## A b_c!\n\n## A b_c!\n\n[p](../probe.md#two-lines) [s](next.md) [x](../../crates/a.rs) [w](https://example.org) [h](#a-b_c)\n",
    );
    assert_eq!(
        page.links,
        ["/docs/probe#two-lines", "/docs/items/next", "https://example.org", "/docs/items/data#a-b_c"]
    );
    let anchors: Vec<_> = page.headings.iter().map(|heading| heading.anchor.as_str()).collect();
    assert_eq!(anchors, ["a-b_c", "a-b_c-1"]);
    assert!(page.html.contains(" x <a"), "{}", page.html);
}
