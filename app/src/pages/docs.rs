//! `/docs/…`: the documentation that comes with the binary.

use super::head;
use super::message::{Sought, message};
use crate::backend::BackendError;
use crate::docs::{Chapter, Heading, chapter, parts};
use crate::document::TopBar;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};
use leptos_router::hooks::use_params_map;

/// Pages with fewer headings are overlooked without a list of them.
const LISTED_HEADINGS: usize = 4;

/// A page of the documentation.
#[component]
pub fn DocsPage() -> impl IntoView {
    let slug = use_params_map().with_untracked(|params| params.get("page")).unwrap_or_default();
    match chapter(slug.trim_end_matches('/')) {
        Some(chapter) => page(chapter),
        None => message(&BackendError::NotFound, Sought::Page),
    }
}

fn page(chapter: &'static Chapter) -> AnyView {
    let text = &chapter.page;
    head(view! {
        <Title text=format!("{} - Rankscope", text.title)/>
        <Meta name="description" content=text.summary.clone()/>
    });
    view! {
        <TopBar/>
        <main id="main" class="docs">
            <nav class="book" aria-label="Documentation">
                <details open>
                    <summary>"Documentation"</summary>
                    {parts().iter().map(|part| view! {
                        <h2>{part.title}</h2>
                        <ul>{part.chapters.iter().map(|other| entry(other, chapter)).collect_view()}</ul>
                    }).collect_view()}
                </details>
            </nav>
            <article class="prose" inner_html=text.html.as_str()></article>
            {(text.headings.len() >= LISTED_HEADINGS).then(|| on_this_page(&text.headings))}
        </main>
    }
    .into_any()
}

fn entry(other: &'static Chapter, current: &Chapter) -> impl IntoView {
    let here = (other.slug == current.slug).then_some("page");
    view! { <li><a href=other.address() aria-current=here>{other.page.title.as_str()}</a></li> }
}

fn on_this_page(headings: &'static [Heading]) -> impl IntoView {
    view! {
        <nav class="here" aria-label="On this page">
            <h2>"On this page"</h2>
            <ul>
                {headings.iter().map(|heading| view! {
                    <li><a href=format!("#{}", heading.anchor)>{heading.text.as_str()}</a></li>
                }).collect_view()}
            </ul>
        </nav>
    }
}
