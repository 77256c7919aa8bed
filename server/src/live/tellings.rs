//! What is told of a run while its job goes on, and when: what has stood for long enough, each claim once, a claim that has
//! changed materially once more, and what no longer stands is withdrawn. Pure: no clock, no store, no browser.

use rankscope_model::{CauseLabel, Diagnosis, Item, Severity, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A finding is told once it has stood for so long: what passes while ranks start or end is none.
const NOTICE_AFTER: i64 = 3_000_000;
/// What goes out of the house waits longer.
const EVENT_AFTER: i64 = 10_000_000;
/// From this confidence on the nodes' page names a cause; as the report does.
const NAMED_FROM: f64 = 0.5;
/// Claims of one kind that are told of one run.
const MOST: usize = 16;

/// What a telling is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A finding, in the browser, by its item and label.
    Finding(String),
    /// Something that happened, in the browser, by when and what.
    Happened(String),
    /// To people outside: ranks or cards that are fuller than the others.
    Imbalance,
    /// To people outside: processes with a context on a card that is not theirs.
    ContextLeak,
}

impl Kind {
    /// The name under which it goes out of the house; `None` for what only browsers show.
    pub fn outside(&self) -> Option<&'static str> {
        match self {
            Self::Imbalance => Some("imbalance"),
            Self::ContextLeak => Some("context_leak"),
            Self::Finding(_) | Self::Happened(_) => None,
        }
    }

    /// The same, the other way round; a further claim of a kind has its number behind the name.
    pub fn of_outside(name: &str) -> Option<Self> {
        match name.split('/').next() {
            Some("imbalance") => Some(Self::Imbalance),
            Some("context_leak") => Some(Self::ContextLeak),
            _ => None,
        }
    }

    /// What may be told of the same event: that a card is fuller, and that contexts on it make it so.
    fn kin(&self) -> Option<Self> {
        match self {
            Self::Imbalance => Some(Self::ContextLeak),
            Self::ContextLeak => Some(Self::Imbalance),
            Self::Finding(_) | Self::Happened(_) => None,
        }
    }

    fn waits(&self) -> i64 {
        if self.outside().is_some() { EVENT_AFTER } else { NOTICE_AFTER }
    }
}

/// What makes a claim this one and no other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// Ranks or cards that it is about.
    pub subjects: BTreeSet<String>,
    /// What it is put down to.
    pub cause: Option<CauseLabel>,
    /// Bytes between the fullest and the median.
    pub gap: u64,
}

impl Claim {
    /// Whether who has heard `told` knows this one: the same subjects and cause, and a gap that has not grown by half. What
    /// goes out of the house is an event, once: that its gap grows, or that its cause is known by now, makes no new one.
    fn is_known_from(&self, told: &Self, kind: &Kind) -> bool {
        self.subjects == told.subjects
            && (kind.outside().is_some() || (self.cause == told.cause && self.is_as_wide(told)))
    }

    /// Whether who has heard of a gap as `told` has heard of this one, under whichever name.
    fn is_gap_of(&self, told: &Self) -> bool {
        self.subjects == told.subjects && self.is_as_wide(told)
    }

    fn is_as_wide(&self, told: &Self) -> bool {
        self.gap <= told.gap || u128::from(self.gap) * 2 < u128::from(told.gap) * 3
    }
}

/// A claim as a diagnosis makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    claim: Claim,
    text: String,
    /// While cards still fill one after the other it may pass, so it waits for the others.
    may_pass: bool,
}

/// A claim that is to be told now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ripe {
    /// About what.
    pub kind: Kind,
    /// How many of this kind were told with this one.
    pub number: usize,
    /// Which.
    pub claim: Claim,
    /// Since when it stands.
    pub since: i64,
    /// In a sentence.
    pub text: String,
}

#[derive(Debug)]
struct Pending {
    /// When it was found first, of a time without end in between.
    since: i64,
    /// As it was found last.
    found: Found,
}

#[derive(Debug)]
struct Told {
    claim: Claim,
    /// The number of its notice in the browser.
    notice: Option<u64>,
}

/// What was told of one run, and what waits.
#[derive(Debug, Default)]
pub struct Tellings {
    told: BTreeMap<Kind, Vec<Told>>,
    pending: BTreeMap<Kind, Pending>,
    /// A diagnosis was taken in.
    has_begun: bool,
}

impl Tellings {
    /// Told already, before this server began.
    pub fn remember(&mut self, kind: Kind, claim: Claim) {
        self.told.entry(kind).or_default().push(Told { claim, notice: None });
    }

    /// Who opens the page sees all that stands there: none of it is news in the browser.
    fn know(&mut self, found: &BTreeMap<Kind, Found>) {
        for (kind, found) in found.iter().filter(|(kind, _)| kind.outside().is_none()) {
            self.remember(kind.clone(), found.claim.clone());
        }
    }

    /// Takes in what a diagnosis of this time says; of the first one nothing is news in the browser. Gives the notices
    /// that were shown, and whether each still stands.
    pub fn take(&mut self, found: BTreeMap<Kind, Found>, at: i64) -> Vec<(u64, bool)> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.know(&found);
        }
        let stands = |kind: &Kind, told: &Told| {
            found.get(kind).is_some_and(|found| found.claim.is_known_from(&told.claim, kind))
        };
        let shown = self.told.iter().flat_map(|(kind, told)| told.iter().map(move |told| (kind, told)));
        let shown = shown.filter_map(|(kind, told)| Some((told.notice?, stands(kind, told)))).collect();
        self.pending.retain(|kind, pending| {
            found.get(kind).is_some_and(|found| found.claim.is_known_from(&pending.found.claim, kind))
        });
        for (kind, found) in found {
            let told = self.told.get(&kind).map_or(&[][..], Vec::as_slice);
            let by_kin = || kind.kin().and_then(|kin| self.told.get(&kin)).into_iter().flatten();
            let is_known = told.iter().any(|told| found.claim.is_known_from(&told.claim, &kind))
                || by_kin().any(|told| found.claim.is_gap_of(&told.claim));
            if told.len() >= MOST || is_known {
                self.pending.remove(&kind);
                continue;
            }
            let since = self.pending.get(&kind).map_or(at, |pending| pending.since);
            self.pending.insert(kind, Pending { since, found });
        }
        shown
    }

    /// What has stood for long enough; it counts as told. While the cards of the job are `filling`, what may pass waits.
    pub fn ripe(&mut self, now: i64, filling: bool) -> Vec<Ripe> {
        let is_ripe = |kind: &Kind, pending: &mut Pending| {
            now.saturating_sub(pending.since) >= kind.waits() && !(filling && pending.found.may_pass)
        };
        let ripe: Vec<(Kind, Pending)> = self.pending.extract_if(.., is_ripe).collect();
        ripe.into_iter()
            .map(|(kind, Pending { since, found: Found { claim, text, .. } })| {
                let told = self.told.entry(kind.clone()).or_default();
                told.push(Told { claim: claim.clone(), notice: None });
                Ripe { number: told.len(), kind, claim, since, text }
            })
            .collect()
    }

    /// What was told last of a kind is this notice in the browser.
    pub fn shown_as(&mut self, kind: &Kind, notice: u64) {
        if let Some(told) = self.told.get_mut(kind).and_then(|told| told.last_mut()) {
            told.notice = Some(notice);
        }
    }
}

/// What a diagnosis says that is worth telling.
pub fn found_in(diagnosis: &Diagnosis) -> BTreeMap<Kind, Found> {
    let names = |subjects: &[rankscope_model::Subject]| subjects.iter().map(ToString::to_string).collect();
    let imbalance = diagnosis.imbalance.as_ref();
    let gap = imbalance.map_or(0, |figures| figures.max_bytes.0.saturating_sub(figures.median_bytes.0));
    let heaviest: BTreeSet<String> = imbalance.map(|figures| names(&figures.heaviest)).unwrap_or_default();
    let mut found = BTreeMap::new();
    let is_grave = |finding: &&rankscope_model::Finding| finding.severity != Severity::Info;
    for finding in diagnosis.findings.iter().filter(is_grave) {
        let subjects: BTreeSet<String> = match finding.ranks.as_slice() {
            [] => heaviest.clone(),
            ranks => ranks.iter().map(|rank| format!("rank {rank}")).collect(),
        };
        let is_of_contexts = finding.label.is_some_and(is_context);
        let kind = Kind::Finding(format!("{:?}/{:?}", finding.item, finding.label));
        let claim = Claim { subjects, cause: finding.label, gap };
        found.entry(kind).or_insert(Found { claim, text: finding.claim.clone(), may_pass: !is_of_contexts });
        let is_leak = is_of_contexts || (finding.item == Item::DeviceVisibility && finding.label.is_none());
        if is_leak {
            let claim = Claim { subjects: heaviest.clone(), cause: None, gap };
            let leak = Found { claim, text: finding.claim.clone(), may_pass: false };
            found.entry(Kind::ContextLeak).or_insert(leak);
        }
    }
    for event in &diagnosis.events {
        let kind = Kind::Happened(format!("{}/{}", event.at.0, event.text));
        let text = event.text.clone();
        found.insert(kind, Found { claim: Claim::default(), text, may_pass: false });
    }
    // One event is told once: contexts that make a card the fullest are told as such, and beside another cause they are
    // of the report.
    let is_of_contexts =
        diagnosis.causes.first().is_some_and(|cause| is_context(cause.label)) && found.contains_key(&Kind::ContextLeak);
    if diagnosis.verdict == Verdict::Imbalance && !is_of_contexts {
        found.remove(&Kind::ContextLeak);
        let claim = Claim { subjects: heaviest, cause: diagnosis.causes.first().map(|cause| cause.label), gap };
        found.insert(Kind::Imbalance, Found { claim, text: diagnosis.summary.clone(), may_pass: true });
    }
    found
}

/// What a diagnosis accuses, in a few words for the nodes' page: the mark there and the report must not contradict each
/// other.
pub fn accusation(diagnosis: &Diagnosis) -> Option<String> {
    let found = found_in(diagnosis);
    if !found.contains_key(&Kind::Imbalance) && !found.contains_key(&Kind::ContextLeak) {
        return None;
    }
    // What is one of several candidates is not said as if it were known.
    let is_named = |cause: &&rankscope_model::Cause| {
        cause.confidence >= NAMED_FROM && !matches!(cause.label, CauseLabel::Unresolved | CauseLabel::Benign)
    };
    if let Some(cause) = diagnosis.causes.first().filter(is_named) {
        return Some(cause.label.title().to_owned());
    }
    if found.contains_key(&Kind::ContextLeak) {
        return Some("Processes hold memory on GPUs that are not theirs".to_owned());
    }
    let heaviest: Vec<String> =
        diagnosis.imbalance.iter().flat_map(|figures| &figures.heaviest).map(ToString::to_string).collect();
    match heaviest.as_slice() {
        [one] => Some(format!("{one} is fuller than the others")),
        _ => Some("Some GPUs are fuller than the others".to_owned()),
    }
}

fn is_context(label: CauseLabel) -> bool {
    matches!(
        label,
        CauseLabel::CtxNoSetDevice
            | CauseLabel::CkptNoMapLocation
            | CauseLabel::HelperThreadOrLibCtx
            | CauseLabel::CtxInWorkerProcesses
            | CauseLabel::HardcodedOrDefaultDevice
            | CauseLabel::ObjectCollectiveDevice
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn imbalance(subject: &str, cause: CauseLabel, gap: u64) -> BTreeMap<Kind, Found> {
        let claim = Claim { subjects: [subject.to_owned()].into(), cause: Some(cause), gap };
        BTreeMap::from([(Kind::Imbalance, Found { claim, text: format!("{subject} +{gap}"), may_pass: true })])
    }

    /// What is told when each of these stands for a minute, one after the other.
    fn told(claims: Vec<BTreeMap<Kind, Found>>) -> Vec<String> {
        let mut tellings = Tellings::default();
        let mut said = Vec::new();
        for (minute, found) in (0..).zip(claims) {
            for second in 0..60 {
                let now = (minute * 60 + second) * S;
                tellings.take(found.clone(), now);
                said.extend(
                    tellings.ripe(now, false).into_iter().map(|ripe| format!("{}: {}", ripe.number, ripe.text)),
                );
            }
        }
        said
    }

    #[test]
    fn a_claim_is_told_again_only_when_it_is_another() {
        use CauseLabel::{CtxNoSetDevice, PerStepLeak};
        let said = told(vec![
            imbalance("rank 0", CtxNoSetDevice, 100),
            imbalance("rank 0", CtxNoSetDevice, 149),
            BTreeMap::new(),
            imbalance("rank 0", CtxNoSetDevice, 60),
            imbalance("rank 0", CtxNoSetDevice, 150),
            imbalance("rank 3", CtxNoSetDevice, 100),
            imbalance("rank 0", CtxNoSetDevice, 100),
            imbalance("rank 0", PerStepLeak, 100),
        ]);
        // That it grows, or comes back, or has another name by now, is the same event.
        assert_eq!(said, ["1: rank 0 +100", "2: rank 3 +100"]);
    }

    #[test]
    fn one_gap_is_told_under_one_name() {
        use CauseLabel::{CtxNoSetDevice, Unresolved};
        let leak = |gap: u64| {
            let mut found = imbalance("rank 0", CtxNoSetDevice, gap);
            let found = found.remove(&Kind::Imbalance).unwrap();
            BTreeMap::from([(Kind::ContextLeak, Found { text: format!("leak +{gap}"), ..found })])
        };
        // It has a name by now.
        assert_eq!(told(vec![imbalance("rank 0", Unresolved, 100), leak(120)]), ["1: rank 0 +100"]);
        assert_eq!(told(vec![leak(100), imbalance("rank 0", Unresolved, 90)]), ["1: leak +100"]);
        // Much more than was told is another event.
        assert_eq!(told(vec![imbalance("rank 0", Unresolved, 100), leak(150)]), ["1: rank 0 +100", "1: leak +150"]);
    }

    #[test]
    fn what_may_pass_waits_until_the_others_have_stopped_growing() {
        let found = imbalance("rank 0", CauseLabel::CtxNoSetDevice, 100);
        let mut tellings = Tellings::default();
        tellings.take(found, 0);
        assert!(tellings.ripe(EVENT_AFTER - 1, false).is_empty(), "it has not stood for long enough");
        assert!(tellings.ripe(100 * S, true).is_empty());
        assert_eq!(tellings.ripe(101 * S, false).len(), 1);
        // One that passes meanwhile is never told.
        let mut tellings = Tellings::default();
        tellings.take(imbalance("rank 0", CauseLabel::CtxNoSetDevice, 100), 0);
        tellings.take(BTreeMap::new(), 50 * S);
        assert!(tellings.ripe(100 * S, false).is_empty());
    }

    #[test]
    fn a_notice_ends_with_its_claim_and_stands_again_when_that_does() {
        let kind = Kind::Finding("x".into());
        let claim = Claim { gap: 5, ..Claim::default() };
        let found = BTreeMap::from([(kind.clone(), Found { claim, text: "x".into(), may_pass: false })]);
        let mut seen = Tellings::default();
        seen.take(found.clone(), 0);
        assert!(seen.ripe(60 * S, false).is_empty(), "it stands on the page that is opened");
        let mut tellings = Tellings::default();
        tellings.take(BTreeMap::new(), -S);
        tellings.take(found.clone(), 0);
        assert_eq!(tellings.ripe(5 * S, true).len(), 1, "it does not wait for others");
        tellings.shown_as(&kind, 7);
        assert_eq!(tellings.take(found.clone(), 6 * S), [(7, true)]);
        assert_eq!(tellings.take(BTreeMap::new(), 7 * S), [(7, false)]);
        assert_eq!(tellings.take(found, 8 * S), [(7, true)]);
        assert!(tellings.ripe(60 * S, false).is_empty(), "it is no news");
    }

    #[test]
    fn what_swings_to_and_fro_is_not_told_without_end() {
        let of = |n: u64| imbalance(&format!("rank {n}"), CauseLabel::CtxNoSetDevice, 100);
        assert_eq!(told((0..30).map(|n| of(n % 2)).collect()).len(), 2);
        assert_eq!(told((0..30).map(of).collect()).len(), MOST);
    }
}
