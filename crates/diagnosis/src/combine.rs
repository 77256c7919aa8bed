//! How signals become ranked causes.
//!
//! The scheme, in full: a label's score is the logarithm of how often it was established in the catalogue, plus the
//! weights of its signals (log likelihood ratios, negative when they speak against it). A label is a candidate only
//! with a positive signal. Confidence is the label's share of `exp(score)` over all candidates and over one standing
//! rival, "something else", whose score is the catalogue's count of unsettled reports. So labels that the same
//! evidence supports equally share the confidence by frequency, and weak evidence loses to the rival.

use crate::fixes::Fix;
use crate::policy::{Policy, UNKNOWN_COUNT, catalogue_count};
use crate::remedies::{self, Setting};
use rankscope_model::{Cause, CauseLabel, Collect, EvidenceRef, Item, ItemStatus, Severity, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// One reason for or against one label.
struct Signal {
    label: CauseLabel,
    /// Log likelihood ratio; positive speaks for, negative against, zero only explains.
    weight: f64,
    reason: String,
    refs: Vec<EvidenceRef>,
}

/// One thing to collect.
struct Wanted {
    item: Item,
    labels: Vec<CauseLabel>,
    collect: Collect,
}

/// One claim about one item.
pub(crate) struct Claim {
    /// The item.
    pub item: Item,
    /// The cause it speaks for.
    pub label: Option<CauseLabel>,
    /// How bad.
    pub severity: Severity,
    /// That the claim is true.
    pub confidence: f64,
    /// One sentence.
    pub text: String,
    /// Ranks, where known.
    pub ranks: Vec<u32>,
    /// Where it was read.
    pub refs: Vec<EvidenceRef>,
}

/// What a cause does to the card, for the headline.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mechanism {
    /// Continues `GPU 0 is 24 % fuller than the median card because ...`, without a full stop.
    pub because: String,
    /// A sentence that stands alone when no card stands out, with a full stop.
    pub alone: String,
    /// Bytes of the gap that it accounts for, where they can be counted.
    pub explained: Option<u64>,
}

/// What the rules write into.
#[derive(Default)]
pub(crate) struct Ledger {
    signals: Vec<Signal>,
    /// In the order in which the rules made them.
    pub claims: Vec<Claim>,
    statuses: BTreeMap<Item, ItemStatus>,
    collects: Vec<Wanted>,
    mechanisms: BTreeMap<CauseLabel, Mechanism>,
    /// The card that a label's mechanism fills, where it is about one.
    filled: BTreeMap<CauseLabel, Subject>,
    ranks: BTreeMap<CauseLabel, BTreeSet<u32>>,
    /// Labels that show in the course of memory, however alike the peaks are.
    over_time: BTreeSet<CauseLabel>,
    /// Fixes of the user's own lines.
    fixes: BTreeMap<CauseLabel, Fix>,
    /// Words in the place of a remedy.
    advice: BTreeMap<CauseLabel, &'static str>,
    /// Labels of differences that are meant to be.
    by_design: BTreeSet<CauseLabel>,
    /// Labels of what is there and cannot be why the gap is.
    aside: BTreeSet<CauseLabel>,
    /// Labels under which no one subject is the heavy one.
    in_turns: BTreeSet<CauseLabel>,
}

impl Ledger {
    /// A reason for (positive weight), against (negative) or beside (zero) some labels.
    pub fn signal(&mut self, labels: &[CauseLabel], weight: f64, reason: impl Into<String>, refs: &[EvidenceRef]) {
        let reason = reason.into();
        for label in labels {
            self.signals.push(Signal { label: *label, weight, reason: reason.clone(), refs: refs.to_vec() });
        }
    }

    /// Some reason speaks for the label already. Several messages of one failure are one piece of evidence: rules ask
    /// here before they count a second one in full.
    pub fn speaks_for(&self, label: CauseLabel) -> bool {
        self.signals.iter().any(|signal| signal.label == label && signal.weight > 0.0)
    }

    /// What would look the same; changes no confidence.
    pub fn caveat(&mut self, label: CauseLabel, text: impl Into<String>) {
        self.signal(&[label], 0.0, text, &[]);
    }

    /// A claim.
    pub fn claim(&mut self, claim: Claim) {
        self.claims.push(claim);
    }

    /// Says what the evidence says of an item; the worst of several stays.
    pub fn status(&mut self, item: Item, status: ItemStatus) {
        let weight = |s: ItemStatus| match s {
            ItemStatus::Fail => 4,
            ItemStatus::Suspect => 3,
            ItemStatus::NotApplicable => 2,
            ItemStatus::Pass => 1,
            ItemStatus::Unknown => 0,
        };
        let old = self.statuses.entry(item).or_insert(ItemStatus::Unknown);
        if weight(status) > weight(*old) {
            *old = status;
        }
    }

    /// The status of an item.
    pub fn status_of(&self, item: Item) -> ItemStatus {
        self.statuses.get(&item).copied().unwrap_or(ItemStatus::Unknown)
    }

    /// Something to collect that is more telling here than what the item always asks for, and the labels that it
    /// would confirm or rule out.
    pub fn collect(&mut self, item: Item, labels: &[CauseLabel], collect: Collect) {
        self.collects.push(Wanted { item, labels: labels.to_vec(), collect });
    }

    /// What the rules want collected for an item: what decides on `first` before the rest, each once.
    pub fn collects_of(&self, item: Item, first: Option<CauseLabel>) -> Vec<Collect> {
        let decides = |wanted: &&Wanted| first.is_some_and(|label| wanted.labels.contains(&label));
        let of_item = || self.collects.iter().filter(|wanted| wanted.item == item);
        let mut list: Vec<Collect> = Vec::new();
        for wanted in of_item().filter(decides).chain(of_item().filter(|wanted| !decides(wanted))) {
            if !list.contains(&wanted.collect) {
                list.push(wanted.collect.clone());
            }
        }
        list
    }

    /// What labels do to the card; the first one stays.
    pub fn mechanism(&mut self, labels: &[CauseLabel], mechanism: &Mechanism) {
        for label in labels {
            self.mechanisms.entry(*label).or_insert_with(|| mechanism.clone());
        }
    }

    /// The mechanism of these labels fills this card: it explains no other that stands out.
    pub fn fills(&mut self, labels: &[CauseLabel], card: Subject) {
        for label in labels {
            self.filled.entry(*label).or_insert(card);
        }
    }

    /// The card that a label's mechanism fills, where it is about one.
    pub fn filled_by(&self, label: CauseLabel) -> Option<Subject> {
        self.filled.get(&label).copied()
    }

    /// The mechanism of a label.
    pub fn mechanism_of(&self, label: CauseLabel) -> Option<&Mechanism> {
        self.mechanisms.get(&label)
    }

    /// Ranks that a label concerns, where ranks are known.
    pub fn ranks(&mut self, labels: &[CauseLabel], ranks: &[u32]) {
        for label in labels {
            self.ranks.entry(*label).or_default().extend(ranks);
        }
    }

    /// The label shows in the course of memory: it is there although the peaks of all ranks are alike.
    pub fn shows_over_time(&mut self, label: CauseLabel) {
        self.over_time.insert(label);
    }

    /// The cause may stand where the ranks are alike.
    pub fn may_be_on_all(&self, label: CauseLabel) -> bool {
        self.over_time.contains(&label) || crate::alike::holds_on_all(label)
    }

    /// A fix of the user's own lines; the first one stays.
    pub fn fix(&mut self, label: CauseLabel, fix: Fix) {
        self.fixes.entry(label).or_insert(fix);
    }

    /// What this label says is meant to be so, and nothing has to be mended.
    pub fn is_meant(&mut self, label: CauseLabel, words: &'static str) {
        self.by_design.insert(label);
        self.advise(label, words);
    }

    /// See [`Self::is_meant`].
    pub fn is_by_design(&self, label: CauseLabel) -> bool {
        self.by_design.contains(&label)
    }

    /// What to do here, where that differs from what is done about the label elsewhere.
    pub fn advise(&mut self, label: CauseLabel, words: &'static str) {
        self.advice.insert(label, words);
    }

    /// Labels whose signals together weigh at least `least`.
    pub fn supported(&self, least: f64) -> BTreeSet<CauseLabel> {
        let mut sums: BTreeMap<CauseLabel, f64> = BTreeMap::new();
        for signal in &self.signals {
            *sums.entry(signal.label).or_default() += signal.weight;
        }
        sums.into_iter().filter(|(_, sum)| *sum >= least).map(|(label, _)| label).collect()
    }

    /// The remedy of a label; where the script shows the very line to change, that instead of the general one.
    fn remedy(&self, label: CauseLabel, setting: &Setting) -> String {
        if let Some(words) = self.advice.get(&label) {
            return (*words).to_owned();
        }
        match self.fixes.get(&label) {
            Some(Fix { place, diff, is_shown_only }) => {
                let (advice, code) = remedies::parts(label, setting);
                let code = Some(code).filter(|code| *is_shown_only && !code.is_empty());
                let code =
                    code.map_or_else(String::new, |code| format!("\n  # for example, with your own names:\n{code}"));
                format!("{advice} In {place}:\n\n{diff}{code}")
            }
            None => remedies::remedy(label, setting),
        }
    }

    /// Under this label the ranks take turns: there is no moment from which on one of them stands out.
    pub fn takes_turns(&mut self, label: CauseLabel) {
        self.in_turns.insert(label);
    }

    /// See [`Self::takes_turns`].
    pub fn is_in_turns(&self, label: CauseLabel) -> bool {
        self.in_turns.contains(&label)
    }

    /// What this label says may be true, and is no cause of the gap that is compared.
    pub fn set_aside(&mut self, label: CauseLabel) {
        self.aside.insert(label);
    }

    /// What does the most of all that was set aside.
    pub fn beside(&self) -> Option<&Mechanism> {
        let scores = self.scores();
        let aside = scores.iter().filter(|(label, _)| self.aside.contains(label));
        let told = aside.filter_map(|(label, score)| Some((score, self.mechanism_of(*label)?)));
        told.max_by(|a, b| a.0.total_cmp(b.0)).map(|(_, mechanism)| mechanism)
    }

    /// The score of every candidate.
    fn scores(&self) -> BTreeMap<CauseLabel, f64> {
        let mut scores: BTreeMap<CauseLabel, f64> = BTreeMap::new();
        let candidates: BTreeSet<CauseLabel> =
            self.signals.iter().filter(|s| s.weight > 0.0).map(|s| s.label).collect();
        for signal in self.signals.iter().filter(|s| candidates.contains(&s.label)) {
            *scores.entry(signal.label).or_insert_with(|| catalogue_count(signal.label).ln()) += signal.weight;
        }
        scores
    }

    /// The ranked causes, with remedies for the job at hand.
    pub fn causes(&self, policy: &Policy, setting: &Setting) -> Vec<Cause> {
        let mut scores = self.scores();
        scores.retain(|label, _| !self.aside.contains(label));
        let total = UNKNOWN_COUNT + scores.values().map(|s| s.exp()).sum::<f64>();
        let mut ranked: Vec<(CauseLabel, f64)> = scores
            .into_iter()
            .map(|(label, score)| (label, ((score.exp() / total).min(policy.confidence_cap) * 1000.0).round() / 1000.0))
            .filter(|(_, confidence)| *confidence >= policy.confidence_floor)
            .collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(policy.max_causes);
        ranked.into_iter().map(|(label, confidence)| self.cause(label, confidence, setting)).collect()
    }

    fn cause(&self, label: CauseLabel, confidence: f64, setting: &Setting) -> Cause {
        let mut cause = Cause {
            label,
            confidence,
            ranks: self.ranks.get(&label).into_iter().flatten().copied().collect(),
            why: Vec::new(),
            against: Vec::new(),
            remedy: self.remedy(label, setting),
            evidence: Vec::new(),
        };
        let mut own: Vec<&Signal> = self.signals.iter().filter(|s| s.label == label).collect();
        // Strongest first, so that the reason which carries the cause is read first.
        own.sort_by(|a, b| b.weight.abs().total_cmp(&a.weight.abs()));
        for signal in own {
            let (list, name) =
                if signal.weight > 0.0 { (&mut cause.why, "why") } else { (&mut cause.against, "against") };
            if list.contains(&signal.reason) {
                continue;
            }
            let reason = format!("{name}.{}", list.len());
            list.push(signal.reason.clone());
            cause
                .evidence
                .extend(signal.refs.iter().map(|r| EvidenceRef { reason: Some(reason.clone()), ..r.clone() }));
        }
        cause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::weight;

    fn confidences(ledger: &Ledger) -> Vec<(CauseLabel, f64)> {
        ledger.causes(&Policy::default(), &Setting::default()).iter().map(|c| (c.label, c.confidence)).collect()
    }

    #[test]
    fn labels_with_the_same_evidence_share_by_frequency() {
        let mut ledger = Ledger::default();
        let family = [CauseLabel::CtxNoSetDevice, CauseLabel::CkptNoMapLocation, CauseLabel::HelperThreadOrLibCtx];
        ledger.signal(&family, weight::STRONG, "foreign rows", &[]);
        let found = confidences(&ledger);
        assert_eq!(found[0].0, CauseLabel::CtxNoSetDevice);
        assert!(found[0].1 < 0.5, "{found:?}");
        assert!(found.iter().map(|f| f.1).sum::<f64>() > 0.9);
    }

    #[test]
    fn weak_evidence_loses_to_the_rival_and_counter_evidence_sinks_a_label() {
        let mut ledger = Ledger::default();
        ledger.signal(&[CauseLabel::VariableShapeBatches], weight::FAINT, "spread", &[]);
        assert!(confidences(&ledger)[0].1 < 0.5);
        let mut ledger = Ledger::default();
        ledger.signal(&[CauseLabel::DataparallelMaster], weight::DECISIVE, "one process", &[]);
        let before = confidences(&ledger)[0].1;
        ledger.signal(&[CauseLabel::DataparallelMaster], -weight::GOOD, "unequal cards", &[]);
        assert!(confidences(&ledger)[0].1 < before);
    }

    #[test]
    fn a_label_with_only_counter_evidence_is_not_listed() {
        let mut ledger = Ledger::default();
        ledger.signal(&[CauseLabel::OtherTenant], -weight::FAIR, "all names equal", &[]);
        ledger.caveat(CauseLabel::OtherTenant, "x");
        assert!(ledger.causes(&Policy::default(), &Setting::default()).is_empty());
    }

    #[test]
    fn references_name_the_reason_they_support() {
        let mut ledger = Ledger::default();
        let at = EvidenceRef { artifact: "a".into(), line: Some(3), ..Default::default() };
        ledger.signal(&[CauseLabel::OtherTenant], weight::FAIR, "second", std::slice::from_ref(&at));
        ledger.signal(&[CauseLabel::OtherTenant], weight::STRONG, "first", std::slice::from_ref(&at));
        ledger.signal(&[CauseLabel::OtherTenant], -weight::FAINT, "but", std::slice::from_ref(&at));
        let cause = &ledger.causes(&Policy::default(), &Setting::default())[0];
        assert_eq!(cause.why, ["first", "second"]);
        let reasons: Vec<_> = cause.evidence.iter().filter_map(|r| r.reason.as_deref()).collect();
        assert_eq!(reasons, ["why.0", "why.1", "against.0"]);
    }
}
