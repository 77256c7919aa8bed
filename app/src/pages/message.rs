//! Pages that say why there is nothing to show, and what to do.

use super::{head, set_status};
use crate::backend::BackendError;
use crate::document::TopBar;
use leptos::prelude::*;
use leptos_meta::{Meta, Title};

/// What the visitor was looking for; decides the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// An address of no page.
    Page,
    /// A run's report.
    Run,
    /// One of the diagnoses of a run that is there.
    Version,
    /// Two runs side by side.
    Comparison,
    /// A report behind a share.
    Share,
    /// The list of runs.
    Runs,
    /// A link with which somebody chooses a password.
    SetUp,
}

/// No page at this address.
#[component]
pub fn NotFoundPage() -> impl IntoView {
    message(&BackendError::NotFound, Sought::Page)
}

/// The page for an error, with its status.
pub fn message(error: &BackendError, sought: Sought) -> AnyView {
    message_with_way(error, sought, ("/", "To the runs"))
}

/// The same with another way on.
pub fn message_with_way(error: &BackendError, sought: Sought, (way, word): (&str, &'static str)) -> AnyView {
    let (status, title, text) = words(error, sought);
    let way = way.to_owned();
    set_status(status);
    let shared = matches!(sought, Sought::Share | Sought::SetUp);
    head(view! {
        <Title text=format!("{title} - Rankscope")/>
        <Meta name="robots" content="noindex"/>
    });
    view! {
        <TopBar runs=!shared/>
        <main id="main" class="message">
            <p class="code">{status}</p>
            <h1>{title}</h1>
            <p>{text}</p>
            {(!shared).then(|| view! { <p><a class="button" href=way>{word}</a></p> })}
        </main>
    }
    .into_any()
}

fn words(error: &BackendError, sought: Sought) -> (u16, &'static str, &'static str) {
    match (error, sought) {
        (BackendError::NotFound, Sought::Run) => (
            404,
            "No such run",
            "It was deleted, or the address is not complete. The list of runs shows what is there.",
        ),
        (BackendError::NotFound, Sought::Version) => (
            404,
            "No such diagnosis of this run",
            "The run is there, but it has no diagnosis of that number. The foot of its report lists those that it has.",
        ),
        (BackendError::NotFound, Sought::Comparison) => (
            404,
            "No such pair of runs",
            "One of them was deleted, or the address is not complete. The list of runs shows what is there.",
        ),
        (BackendError::NotFound, Sought::Share) => (
            404,
            "No report behind this link",
            "The link is not complete or was never made. Ask the person who sent it to copy it again.",
        ),
        (BackendError::NotFound, Sought::SetUp) => (
            404,
            "This link does not work",
            "It was used, has ended or is not complete. Ask an administrator for a new one.",
        ),
        (BackendError::NotFound, _) => {
            (404, "No page at this address", "Check the address, or start from the list of runs.")
        }
        (BackendError::Gone, _) => (
            410,
            "This link has ended",
            "It was revoked or has expired. The report itself may still exist: ask the person who sent the link for a new one.",
        ),
        (BackendError::Locked, _) => (401, "This report asks for a password", "The person who sent the link knows it."),
        (BackendError::Lost, _) => (
            500,
            "A stored file is missing",
            "It is gone from the server's data folder. Whoever runs the server finds the run in its log and can put the file back from a copy.",
        ),
        (BackendError::Unavailable, _) => (
            503,
            "The store does not answer",
            "Nothing is lost. Try again in a moment; if it stays like this, the server's log says why.",
        ),
    }
}
