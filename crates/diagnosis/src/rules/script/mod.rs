//! What the training scripts say: for and against causes, for the checklist, with the user's own lines.
//!
//! A pattern in a script says that something can happen, not that it did. So it weighs fully only on causes that
//! memory evidence already supports, less on those that would fit who stands out, and hardly on its own.

mod binding;
mod burden;
mod data;
mod memory;
mod placement;

use crate::case::Case;
use crate::combine::{Claim, Ledger};
use crate::fixes::Fix;
use crate::policy::weight;
use rankscope_model::{CauseLabel, EvidenceRef, Item, ScriptFact, Severity, Subject};
use std::collections::BTreeSet;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    if case.scripts.is_empty() {
        return;
    }
    let mut told =
        Told { supported: ledger.supported(weight::FAIR), first_stands_out: first_stands_out(case), case, ledger };
    binding::apply(&mut told);
    placement::apply(&mut told);
    burden::apply(&mut told);
    data::apply(&mut told);
    memory::apply(&mut told);
}

/// The first rank or card is above the others.
fn first_stands_out(case: &Case) -> bool {
    let Some((comparison, spread)) = &case.main else { return false };
    let first = comparison.values.first().map(|(subject, _)| *subject);
    let is_first = |subject: &Subject| Some(*subject) == first;
    !spread.is_low_outlier && spread.heaviest.len() == 1 && spread.heaviest.first().is_some_and(is_first)
}

/// The ledger as script rules write to it.
struct Told<'c, 'a, 'l> {
    case: &'c Case<'a>,
    ledger: &'l mut Ledger,
    /// Labels that memory evidence supports.
    supported: BTreeSet<CauseLabel>,
    first_stands_out: bool,
}

impl Told<'_, '_, '_> {
    /// A reason for (positive) or against (negative) some labels. What speaks for a label is held down to what memory
    /// evidence lets it say; what speaks against one weighs as it is.
    fn signal(&mut self, labels: &[CauseLabel], gain: f64, reason: &str, facts: &[&ScriptFact]) {
        self.signal_up_to(labels, gain, (weight::FAIR, weight::FAINT), reason, facts);
    }

    /// The same for code that is wrong whatever the figures show: it says more on its own.
    fn certain(&mut self, labels: &[CauseLabel], gain: f64, reason: &str, facts: &[&ScriptFact]) {
        self.signal_up_to(labels, gain, (weight::STRONG, weight::GOOD), reason, facts);
    }

    /// `ceilings`: for labels that fit who stands out, and for the others.
    fn signal_up_to(
        &mut self,
        labels: &[CauseLabel],
        gain: f64,
        ceilings: (f64, f64),
        reason: &str,
        facts: &[&ScriptFact],
    ) {
        let refs = self.refs(facts);
        self.held_down(labels, gain, ceilings, reason, &refs);
    }

    /// The same with references of its own.
    fn held_down(
        &mut self,
        labels: &[CauseLabel],
        gain: f64,
        ceilings: (f64, f64),
        reason: &str,
        refs: &[EvidenceRef],
    ) {
        for label in labels {
            let ceiling = if gain <= 0.0 || self.supported.contains(label) {
                f64::INFINITY
            } else if self.fits(*label) {
                ceilings.0
            } else {
                ceilings.1
            };
            self.ledger.signal(&[*label], gain.min(ceiling), reason, refs);
        }
    }

    /// Who stands out fits the label, though nothing singles it out.
    fn fits(&self, label: CauseLabel) -> bool {
        use CauseLabel::{
            CkptNoMapLocation, CkptStateGather, CtxNoSetDevice, DataparallelMaster, HardcodedOrDefaultDevice,
            MetricGatherOnGpu, OptimizerOrWrapOrder, Rank0AuxBuffers, Rank0Eval, Rank0LoggingOrTrace, RankGpuMapping,
        };
        let stands_out = self.case.main.as_ref().map(|(_, spread)| spread.stands_out());
        if label == OptimizerOrWrapOrder {
            // Unsharded state is on all ranks alike.
            return stands_out == Some(false);
        }
        let of_the_first = matches!(
            label,
            CtxNoSetDevice
                | CkptNoMapLocation
                | HardcodedOrDefaultDevice
                | RankGpuMapping
                | DataparallelMaster
                | Rank0Eval
                | CkptStateGather
                | Rank0LoggingOrTrace
                | MetricGatherOnGpu
                | Rank0AuxBuffers
        );
        if of_the_first { self.first_stands_out } else { stands_out == Some(true) }
    }

    fn claim(
        &mut self,
        item: Item,
        label: Option<CauseLabel>,
        severity: Severity,
        text: String,
        facts: &[&ScriptFact],
    ) {
        let refs = self.refs(facts);
        self.ledger.claim(Claim { item, label, severity, confidence: 0.9, text, ranks: vec![], refs });
    }

    fn refs(&self, facts: &[&ScriptFact]) -> Vec<EvidenceRef> {
        self.case.refs(facts.iter().map(|fact| &fact.at))
    }

    /// A fix of the user's own line stands in front of the general remedy's code.
    fn fix(&mut self, label: CauseLabel, fix: Option<Fix>) {
        if let Some(fix) = fix {
            self.ledger.fix(label, fix);
        }
    }
}

/// `train.py:44`.
fn place(case: &Case, fact: &ScriptFact) -> String {
    let refs = case.refs([&fact.at]);
    refs.first().map(ToString::to_string).unwrap_or_default()
}
