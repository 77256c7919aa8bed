//! Where evidence references lead: each quoted place of each file has an anchor in the section of files.

use crate::words;
use leptos::prelude::*;
use rankscope_model::{ArtifactInfo, Diagnosis, EvidenceRef, UnixMicros};
use std::collections::{BTreeMap, BTreeSet};

/// The quoted places of a diagnosis, by file.
pub struct Places<'a> {
    files: &'a [ArtifactInfo],
    /// With the place of each in the order of telling: causes first, best first, then findings.
    quotes: BTreeMap<(usize, Place), (usize, &'a EvidenceRef)>,
    /// The page that shows the places, where it is not the page of the link.
    page: String,
    /// Files that are shown; `None` for all of them.
    shown: Option<BTreeSet<usize>>,
}

/// Files that a page shows at once.
const MAX_FILES: usize = 60;
/// References that stand behind one reason; what is more is folded, as far as somebody would read it.
const FIRST_LINKS: usize = 4;
const MOST_LINKS: usize = 64;
/// Quotes of one file that are shown at once.
const FIRST_QUOTES: usize = 8;

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
        for (n, reference) in from_causes.chain(from_findings).enumerate() {
            if let (Some(file), Some(place)) = (places.file(&reference.artifact), Place::of(reference)) {
                let (_, first) = places.quotes.entry((file, place)).or_insert((n, reference));
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

    /// The quotes of one file, each list in the order of the file: those that tell most, and the others.
    pub fn quotes(&self, file: usize) -> (Vec<Quote<'a>>, Vec<Quote<'a>>) {
        let of_file = self.quotes.iter().filter(|((of, _), _)| *of == file);
        let of_file: Vec<(usize, Place, &EvidenceRef)> =
            of_file.map(|(&(_, place), &(telling, reference))| (telling, place, reference)).collect();
        let mut order: Vec<usize> = of_file.iter().map(|(telling, ..)| *telling).collect();
        order.sort_unstable();
        let last = at_once(order.len(), FIRST_QUOTES).checked_sub(1).and_then(|at| order.get(at).copied());
        let (first, rest): (Vec<_>, Vec<_>) = of_file.into_iter().partition(|(telling, ..)| Some(*telling) <= last);
        (excerpts(file, &first), excerpts(file, &rest))
    }
}

/// How many of a list stand open: a fold of one would save no room.
fn at_once(all: usize, first: usize) -> usize {
    if all <= first + 1 { all } else { first }
}

/// Quotes with their neighbours, as far as no other quote of the list shows them.
fn excerpts<'a>(file: usize, of_file: &[(usize, Place, &'a EvidenceRef)]) -> Vec<Quote<'a>> {
    let mut shown_to = 0;
    let mut quotes = Vec::new();
    for (n, &(_, place, reference)) in of_file.iter().enumerate() {
        let (mut above, mut below) = (&reference.above[..], &reference.below[..]);
        if let Place::Lines(first, last) = place {
            // What a neighbour shows already is not shown again.
            let free = first.saturating_sub(shown_to + 1);
            above = &above[above.len() - above.len().min(usize::try_from(free).unwrap_or(usize::MAX))..];
            if let Some((_, Place::Lines(next, _), _)) = of_file.get(n + 1) {
                let free = next.saturating_sub(last + 1);
                below = &below[..below.len().min(usize::try_from(free).unwrap_or(usize::MAX))];
            }
            shown_to = shown_to.max(last + below.len() as u64);
        }
        quotes.push(Quote { id: place.anchor(file), place: place.words(), text: &reference.quote, above, below });
    }
    quotes
}

impl Places<'_> {
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

    /// Several references, each once: the first few, the others behind a fold.
    pub fn links<'r>(&self, references: impl IntoIterator<Item = &'r EvidenceRef>) -> AnyView {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let text = |reference: &EvidenceRef| {
            if reference.offset.is_some() { reference.artifact.clone() } else { reference.to_string() }
        };
        let distinct: Vec<&EvidenceRef> =
            references.into_iter().filter(|reference| seen.insert(text(reference))).collect();
        let (first, rest) = distinct.split_at(at_once(distinct.len(), FIRST_LINKS));
        let list = |some: &[&EvidenceRef]| {
            some.iter().map(|reference| view! { " " {self.link(reference)} }).collect_view().into_any()
        };
        let folded = (!rest.is_empty()).then(|| {
            let (shown, left) = rest.split_at(rest.len().min(MOST_LINKS));
            let left = (!left.is_empty()).then(|| {
                view! { " " <span class="dim">{format!("{}, in the JSON of the report", words::count(left.len(), "other place"))}</span> }
            });
            view! {
                " "
                <details class="more-ev">
                    <summary>{format!("and {} more", rest.len())}</summary>
                    {list(shown)}
                    {left}
                </details>
            }
        });
        view! { {list(first)}{folded} }.into_any()
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

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{ArtifactKind, Cause, CauseLabel, DIAGNOSIS_FORMAT, Verdict};

    fn at(line: u64) -> EvidenceRef {
        EvidenceRef {
            artifact: "job.log".into(),
            line: Some(line),
            quote: format!("line {line}"),
            ..EvidenceRef::default()
        }
    }

    /// A diagnosis whose one cause rests on these lines, the most telling first.
    fn diagnosis(lines: impl IntoIterator<Item = u64>) -> Diagnosis {
        let artifact = ArtifactInfo {
            name: "job.log".into(),
            kind: ArtifactKind::StepLog,
            ranks: vec![],
            devices: vec![],
            bytes: 1,
            warnings: vec![],
        };
        let cause = Cause {
            label: CauseLabel::CtxNoSetDevice,
            confidence: 0.9,
            ranks: vec![],
            why: vec![],
            against: vec![],
            remedy: String::new(),
            evidence: lines.into_iter().map(at).collect(),
        };
        Diagnosis {
            format: DIAGNOSIS_FORMAT.into(),
            verdict: Verdict::Imbalance,
            summary: String::new(),
            imbalance: None,
            causes: vec![cause],
            checklist: vec![],
            findings: vec![],
            events: vec![],
            artifacts: vec![artifact],
        }
    }

    fn links(diagnosis: &Diagnosis) -> String {
        let owner = Owner::new_root(None);
        owner.with(|| Places::of(diagnosis).links(&diagnosis.causes[0].evidence).to_html())
    }

    fn lines(quotes: &[Quote<'_>]) -> Vec<u64> {
        quotes.iter().map(|quote| quote.place.parse().unwrap()).collect()
    }

    #[test]
    fn many_references_are_folded_behind_the_first_ones() {
        let html = links(&diagnosis(100..164));
        let (open, folded) = html.split_once("<details").unwrap();
        assert_eq!(open.matches("<a").count(), FIRST_LINKS);
        assert!(open.contains("job.log:100") && open.contains("job.log:103"));
        assert!(folded.contains("and 60 more") && folded.contains("job.log:163"));
    }

    #[test]
    fn a_fold_holds_what_somebody_would_read_and_says_where_the_rest_is() {
        let html = links(&diagnosis(0..1000));
        assert_eq!(html.matches("<a").count(), FIRST_LINKS + MOST_LINKS);
        assert!(html.contains("and 996 more") && html.contains("932 other places, in the JSON of the report"));
    }

    #[test]
    fn few_references_stand_open_and_each_once() {
        assert!(!links(&diagnosis(1..=5)).contains("<details"), "a fold of one saves nothing");
        assert!(links(&diagnosis(1..=6)).contains("and 2 more"));
        let twice = links(&diagnosis([7, 7, 8, 7]));
        assert_eq!(twice.matches("<a").count(), 2);
    }

    #[test]
    fn the_most_telling_quotes_stand_open_in_the_order_of_the_file() {
        let telling = [50, 3, 40, 2, 30, 1, 20, 60];
        let diagnosis = diagnosis(telling.into_iter().chain(100..156));
        let (first, rest) = Places::of(&diagnosis).quotes(0);
        assert_eq!(lines(&first), [1, 2, 3, 20, 30, 40, 50, 60]);
        assert_eq!(lines(&rest), (100..156).collect::<Vec<_>>());
    }

    #[test]
    fn few_quotes_are_not_folded() {
        let few = diagnosis(1..=9);
        let (first, rest) = Places::of(&few).quotes(0);
        assert_eq!((first.len(), rest.len()), (9, 0));
        let none = diagnosis([]);
        let (first, rest) = Places::of(&none).quotes(0);
        assert!(first.is_empty() && rest.is_empty());
    }
}
