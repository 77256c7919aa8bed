//! What the server does for the checklist: takes people's notes within limits, names the run after the fix, and holds
//! two runs against each other. Stands between the HTTP handlers and the store; knows no route and no SQL.

use crate::{
    errors::{Problem, Result},
    intake::{Upload, clean_line},
    limits::Limits,
    service::{Service, Taken},
    store::{Sees, StoreError},
};
use rankscope_app::ComparedReports;
use rankscope_diagnosis::{Policy, Side, compare};
use rankscope_model::{Item, ItemNote, OwnStatus, Report};

/// The name that stands beside an entry whose author gave none.
const NO_NAME: &str = "someone";

/// An entry as a person or a program sends it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewNote {
    /// Slug of the own status; empty or absent for a note alone.
    pub status: Option<String>,
    /// The text.
    pub note: Option<String>,
    /// The name.
    pub author: Option<String>,
}

/// An entry within the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanNote {
    /// The own status.
    pub status: Option<OwnStatus>,
    /// The text, lines kept.
    pub note: String,
    /// The name, one line.
    pub author: String,
}

impl NewNote {
    /// Checks lengths and the status, and takes out what must not be shown.
    pub fn clean(self, limits: &Limits) -> Result<CleanNote> {
        let too_long =
            |what: &str, most: usize| Err(Problem::invalid(format!("{what} has at most {most} characters.")));
        let text = self.note.unwrap_or_default();
        if text.chars().count() > limits.max_note_chars {
            return too_long("A note", limits.max_note_chars);
        }
        let name = self.author.unwrap_or_default();
        if name.chars().count() > limits.max_author_chars {
            return too_long("A name", limits.max_author_chars);
        }
        let status = match self.status.as_deref().map(str::trim).filter(|slug| !slug.is_empty()) {
            None => None,
            Some(slug) => Some(OwnStatus::from_slug(slug).ok_or_else(|| {
                let known: Vec<&str> = OwnStatus::ALL.iter().map(|status| status.slug()).collect();
                Problem::invalid(format!("A status is one of {}.", known.join(", ")))
            })?),
        };
        let note = clean_lines(&text, limits.max_note_chars);
        if note.is_empty() && status.is_none() {
            return Err(Problem::invalid("Choose a status, or write a note."));
        }
        let author = clean_line(&name, limits.max_author_chars).unwrap_or_else(|| NO_NAME.to_owned());
        Ok(CleanNote { status, note, author })
    }
}

/// Visible text with its line breaks, without empty lines at both ends.
fn clean_lines(text: &str, max_chars: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| clean_line(line, max_chars).unwrap_or_default()).collect();
    lines.join("\n").trim().to_owned()
}

impl Service {
    /// Adds an entry to an item's history.
    pub async fn add_note(&self, run: &str, item: Item, note: NewNote) -> Result<ItemNote> {
        self.store.run(run).await?;
        let CleanNote { status, note, author } = note.clean(&self.limits)?;
        if self.store.count_item_notes(run).await? >= self.limits.max_notes {
            return Err(Problem::invalid(format!("A run keeps at most {} notes.", self.limits.max_notes)));
        }
        Ok(self.store.add_item_note(run, item, status, &note, &author).await?)
    }

    /// Names the run that is to prove the fix: by id, or by the address of one of its pages. Whoever does so must see it.
    pub async fn attach_after(&self, run: &str, after: &str, sees: &Sees) -> Result<()> {
        let after = run_id(after);
        if after == run {
            return Err(Problem::invalid("A run cannot prove its own fix: choose the run after it."));
        }
        if after.is_empty() {
            return Err(Problem::invalid("Choose the run after the fix."));
        }
        if !sees.has(&self.store.project_of_run(after).await?) {
            return Err(StoreError::Missing.into());
        }
        Ok(self.store.attach_after(run, after).await?)
    }

    /// A new run from an upload, named as the proof of `run`'s fix.
    pub async fn create_after(&self, run: &str, mut upload: Upload) -> Result<Taken> {
        let title = self.store.run(run).await?.run.title;
        if upload.title.is_none() {
            upload.title = clean_line(&format!("{title}, after the fix"), self.limits.max_title_chars);
        }
        // Whoever may change a run may see the proof of its fix.
        upload.project = Some(self.store.project_of_run(run).await?);
        let taken = self.create_run(upload).await?;
        self.store.attach_after(run, &taken.report.run.id).await?;
        Ok(taken)
    }

    /// Two runs, or two versions, side by side.
    pub async fn compared(&self, base: (&str, Option<u32>), head: (&str, Option<u32>)) -> Result<ComparedReports> {
        let base: Report = self.store.report(base.0, base.1).await?;
        let head: Report = self.store.report(head.0, head.1).await?;
        let compared = tokio::task::spawn_blocking(move || {
            let comparison = compare(Side::from(&base), Side::from(&head), &Policy::default());
            ComparedReports { base, head, comparison }
        });
        compared.await.map_err(Problem::internal)
    }
}

/// The id in what a person may paste: the id itself, `/runs/{id}`, or the whole address of any page of the run.
fn run_id(text: &str) -> &str {
    let text = text.trim();
    let path = text.split(['?', '#']).next().unwrap_or_default();
    match path.split_once("/runs/") {
        Some((_, rest)) => rest.split('/').next().unwrap_or_default(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(status: &str, note: &str, author: &str) -> NewNote {
        NewNote { status: Some(status.into()), note: Some(note.into()), author: Some(author.into()) }
    }

    #[test]
    fn notes_are_kept_within_limits_and_shown_harmlessly() {
        let limits = Limits { max_note_chars: 20, max_author_chars: 5, ..Limits::default() };
        let clean = note("mended", " one\u{202e}\r\n\n two\u{7} ", "A\nda ").clean(&limits).unwrap();
        assert_eq!((clean.status, clean.note.as_str()), (Some(OwnStatus::Mended), "one\n\ntwo"));
        assert_eq!(clean.author, "Ada");
        assert_eq!(note("", "x", "").clean(&limits).unwrap().author, "someone");
        for wrong in
            [note("", " ", "A"), note("fixed", "x", "A"), note("", &"x".repeat(21), "A"), note("", "x", "Adaaaa")]
        {
            assert!(wrong.clone().clean(&limits).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn runs_are_named_by_id_or_address() {
        for text in
            ["0198-a", " /runs/0198-a ", "http://h:3000/runs/0198-a/checklist/data?x=1#y", "/runs/0198-a?version=2"]
        {
            assert_eq!(run_id(text), "0198-a", "{text}");
        }
    }
}
