//! Where evidence references lead: each quoted place of each file has an anchor in the section of files.

use crate::words;
use leptos::prelude::*;
use rankscope_model::{ArtifactInfo, Diagnosis, EvidenceRef, UnixMicros};
use std::collections::{BTreeMap, BTreeSet};

/// The quoted places of a diagnosis, by file.
pub struct Places<'a> {
    files: &'a [ArtifactInfo],
    quotes: BTreeMap<(usize, Place), &'a EvidenceRef>,
    /// The page that shows the places, where it is not the page of the link.
    page: String,
    /// Files that are shown; `None` for all of them.
    shown: Option<BTreeSet<usize>>,
}

/// Files that a page shows at once.
const MAX_FILES: usize = 60;
/// References that stand behind one reason.
const MAX_LINKS: usize = 12;

/// A place in the order in which a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Lines(u64, u64),
    Offset(u64),
    Step(u64),
    Time(i64),
}

impl Place {
    fn of(reference: &EvidenceRef) -> Option<Self> {
        match (reference.line, reference.offset, reference.step, reference.time) {
            (Some(line), ..) => Some(Self::Lines(line, reference.line_end.unwrap_or(line).max(line))),
            (_, Some(offset), ..) => Some(Self::Offset(offset)),
            (_, _, Some(step), _) => Some(Self::Step(step)),
            (_, _, _, Some(time)) => Some(Self::Time(time)),
            _ => None,
        }
    }

    fn anchor(self, file: usize) -> String {
        match self {
            Self::Lines(from, to) if from == to => format!("f{file}-L{from}"),
            Self::Lines(from, to) => format!("f{file}-L{from}-{to}"),
            Self::Offset(offset) => format!("f{file}-o{offset}"),
            Self::Step(step) => format!("f{file}-s{step}"),
            Self::Time(time) => format!("f{file}-t{time}"),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Lines(from, to) if from == to => from.to_string(),
            Self::Lines(from, to) => format!("{from}-{to}"),
            Self::Offset(_) => "file".to_owned(),
            Self::Step(step) => format!("step {step}"),
            Self::Time(time) => words::clock(UnixMicros(time)),
        }
    }
}

/// A quoted place as the section of files shows it.
pub struct Quote<'a> {
    /// Anchor, unique in the page.
    pub id: String,
    /// `41-47`, `file`, `step 12`.
    pub place: String,
    /// The text there; empty for binary formats.
    pub text: &'a str,
    /// Lines just above in a script, as far as no other quote shows them.
    pub above: &'a [String],
    /// Lines just below.
    pub below: &'a [String],
}

impl Quote<'_> {
    /// Its reader brought neighbours along.
    pub fn is_of_script(&self) -> bool {
        !self.above.is_empty() || !self.below.is_empty()
    }
}

impl<'a> Places<'a> {
    /// Collects every place that a cause or a finding refers to.
    pub fn of(diagnosis: &'a Diagnosis) -> Self {
        let mut places =
            Self { files: &diagnosis.artifacts, quotes: BTreeMap::new(), page: String::new(), shown: None };
        let from_causes = diagnosis.causes.iter().flat_map(|cause| &cause.evidence);
        let from_findings = diagnosis.findings.iter().flat_map(|finding| &finding.evidence);
        for reference in from_causes.chain(from_findings) {
            if let (Some(file), Some(place)) = (places.file(&reference.artifact), Place::of(reference)) {
                let first = places.quotes.entry((file, place)).or_insert(reference);
                if first.quote.is_empty() {
                    *first = reference;
                }
            }
        }
        places
    }

    /// The same for links on another page: `page` shows the places.
    pub fn on_page(mut self, page: impl Into<String>) -> Self {
        self.page = page.into();
        self
    }

    /// Of very many files only some are shown: those that are quoted or have a warning, then the first ones.
    pub fn capped(mut self, whole: bool) -> Self {
        if whole || self.files.len() <= MAX_FILES {
            return self;
        }
        let quoted = self.quotes.keys().map(|(file, _)| *file);
        let warned = self.files.iter().enumerate().filter(|(_, file)| !file.warnings.is_empty()).map(|(n, _)| n);
        let mut shown = BTreeSet::new();
        for file in quoted.chain(warned).chain(0..self.files.len()) {
            if shown.len() >= MAX_FILES {
                break;
            }
            shown.insert(file);
        }
        self.shown = Some(shown);
        self
    }

    /// Whether the page shows a file.
    pub fn shows(&self, file: usize) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.contains(&file))
    }

    fn file(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|file| file.name == name).filter(|file| self.shows(*file))
    }

    /// The quotes of one file, in the order of the file.
    pub fn quotes(&self, file: usize) -> Vec<Quote<'a>> {
        let of_file: Vec<(Place, &EvidenceRef)> = self
            .quotes
            .iter()
            .filter(|((of, _), _)| *of == file)
            .map(|(&(_, place), &reference)| (place, reference))
            .collect();
        let mut shown_to = 0;
        let mut quotes = Vec::new();
        for (n, &(place, reference)) in of_file.iter().enumerate() {
            let (mut above, mut below) = (&reference.above[..], &reference.below[..]);
            if let Place::Lines(first, last) = place {
                // What a neighbour shows already is not shown again.
                let free = first.saturating_sub(shown_to + 1);
                above = &above[above.len() - above.len().min(usize::try_from(free).unwrap_or(usize::MAX))..];
                if let Some((Place::Lines(next, _), _)) = of_file.get(n + 1) {
                    let free = next.saturating_sub(last + 1);
                    below = &below[..below.len().min(usize::try_from(free).unwrap_or(usize::MAX))];
                }
                shown_to = shown_to.max(last + below.len() as u64);
            }
            quotes.push(Quote { id: place.anchor(file), place: place.words(), text: &reference.quote, above, below });
        }
        quotes
    }

    /// A short reference that opens its place, or plain text where the file is not listed.
    pub fn link(&self, reference: &EvidenceRef) -> AnyView {
        let mut text = reference.to_string();
        // A place in a binary file is the file to a reader: nobody counts to byte 4096.
        if matches!(Place::of(reference), Some(Place::Offset(_))) {
            text.clone_from(&reference.artifact);
        }
        let bare = matches!(Place::of(reference), Some(Place::Time(_)));
        if let (true, Some(time)) = (bare, reference.time) {
            text = format!("{text} {}", words::clock(UnixMicros(time)));
        }
        let text = words::shown_line(&text);
        let title = words::shown(&reference.quote);
        match self.file(&reference.artifact) {
            Some(file) => {
                let anchor = Place::of(reference).map_or_else(|| file_anchor(file), |place| place.anchor(file));
                view! { <a class="ev" href=format!("{}#{anchor}", self.page) title=title><bdi>{text}</bdi></a> }
                    .into_any()
            }
            None => view! { <span class="ev" title=title><bdi>{text}</bdi></span> }.into_any(),
        }
    }

    /// Several references, each once.
    pub fn links<'r>(&self, references: impl IntoIterator<Item = &'r EvidenceRef>) -> AnyView {
        let mut seen: Vec<String> = Vec::new();
        let mut views: Vec<AnyView> = Vec::new();
        for reference in references {
            let text = if reference.offset.is_some() { reference.artifact.clone() } else { reference.to_string() };
            if !seen.contains(&text) {
                seen.push(text);
                if seen.len() > MAX_LINKS {
                    continue;
                }
                views.push(view! { " " {self.link(reference)} }.into_any());
            }
        }
        let more = seen.len().saturating_sub(MAX_LINKS);
        if more > 0 {
            views.push(
                view! { " " <span class="dim">{format!("and {}", words::count(more, "other place"))}</span> }
                    .into_any(),
            );
        }
        views.into_any()
    }

    /// Where figures come from, as links: a single place in full (`smi.txt:9-45`), several only by their files.
    pub fn sources(&self, sources: &[&str]) -> AnyView {
        let found: Vec<(&str, Option<usize>)> = sources.iter().map(|source| (*source, self.file_of(source))).collect();
        let mut links: Vec<(String, Option<usize>)> = Vec::new();
        for &(source, file) in &found {
            let name =
                file.filter(|_| found.len() > 1).and_then(|file| self.files.get(file)).map(|file| file.name.as_str());
            let link = (words::shown_line(name.unwrap_or(source)), file);
            if !links.contains(&link) {
                links.push(link);
            }
        }
        links
            .into_iter()
            .map(|(text, file)| match file {
                Some(file) => {
                    view! { " " <a class="ev" href=format!("{}#{}", self.page, file_anchor(file))><bdi>{text}</bdi></a> }.into_any()
                }
                None => view! { " " <span class="ev"><bdi>{text}</bdi></span> }.into_any(),
            })
            .collect_view()
            .into_any()
    }

    /// The file that a source in words begins with.
    fn file_of(&self, source: &str) -> Option<usize> {
        let found = self.files.iter().position(|file| {
            let rest = source.strip_prefix(file.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@', ' ']))
        });
        found.filter(|file| self.shows(*file))
    }
}

/// Anchor of a file's line.
pub fn file_anchor(file: usize) -> String {
    format!("file-{file}")
}
