//! Why two runs may not prove anything: another quantity, world, card, load, too few steps, a phase not seen.

use super::Side;
use super::figures::{Ground, entries};
use crate::collect;
use crate::policy::Policy;
use crate::words;
use rankscope_model::{
    Bytes, CardFacts, CauseFate, Collect, ComparedCause, Doubt, Item, Phase, SpreadFigures, Verdict,
};

/// The doubts, each with what would remove it.
#[derive(Default)]
pub(super) struct Doubts {
    list: Vec<(Doubt, Option<Collect>)>,
}

impl Doubts {
    /// Every doubt, the gravest first.
    pub fn find(base: Side, head: Side, ground: &Ground, causes: &[ComparedCause], policy: &Policy) -> Self {
        let mut doubts = Self::default();
        doubts.verdicts(base, head, ground);
        if ground.quantity.is_none() {
            doubts.no_common_ground(base, head);
        }
        doubts.worlds(ground);
        doubts.cards(&base.figures.facts.cards, &head.figures.facts.cards, policy);
        doubts.phases(base, ground);
        doubts.steps(base, ground, policy);
        doubts.input(base, head, ground, policy);
        doubts.one_moment(ground);
        if causes.iter().any(|cause| cause.fate == CauseFate::NotSeen) && doubts.list.is_empty() {
            let unseen = causes.iter().filter(|cause| cause.fate == CauseFate::NotSeen);
            let titles: Vec<String> = unseen.map(|cause| words::lower_first(cause.label.title())).collect();
            doubts.weaken(
                format!("The run after has no evidence of its own about this cause: {}.", titles.join("; ")),
                None,
            );
        }
        doubts.list.sort_by_key(|(doubt, _)| !doubt.forbids_proof);
        doubts
    }

    /// With one of them no proof is accepted.
    pub fn forbid_proof(&self) -> bool {
        self.list.iter().any(|(doubt, _)| doubt.forbids_proof)
    }

    /// The gravest doubt that forbids a proof.
    pub fn gravest(&self) -> Option<&str> {
        self.list.iter().find(|(doubt, _)| doubt.forbids_proof).map(|(doubt, _)| doubt.text.as_str())
    }

    /// What would settle it: what removes the doubts, else what the item in question asks for.
    pub fn collect(&self, back_to: Option<Item>, ground: &Ground) -> Vec<Collect> {
        let mut wanted: Vec<Collect> = Vec::new();
        for (_, collect) in &self.list {
            if let Some(collect) = collect.as_ref().filter(|collect| !wanted.contains(collect)) {
                wanted.push(collect.clone());
            }
        }
        if wanted.is_empty() {
            // In the kind of figures that both runs have.
            let seen = match ground.rows.first() {
                Some(row) if row.subject.rank().is_some() => collect::Seen::Steps(None),
                Some(_) => collect::Seen::Tables,
                None => collect::Seen::Nothing,
            };
            wanted = collect::for_item(back_to.unwrap_or(Item::Verified), Verdict::Imbalance, seen);
        }
        wanted
    }

    /// The sentences.
    pub fn into_list(self) -> Vec<Doubt> {
        self.list.into_iter().map(|(doubt, _)| doubt).collect()
    }

    fn forbid(&mut self, text: impl Into<String>, collect: Option<Collect>) {
        self.list.push((Doubt { text: text.into(), forbids_proof: true }, collect));
    }

    fn weaken(&mut self, text: impl Into<String>, collect: Option<Collect>) {
        self.list.push((Doubt { text: text.into(), forbids_proof: false }, collect));
    }

    fn verdicts(&mut self, base: Side, head: Side, ground: &Ground) {
        match base.diagnosis.verdict {
            Verdict::Imbalance => {
                if let (Some(quantity), Some(figures)) = (ground.quantity, &ground.base)
                    && figures.is_even()
                {
                    self.forbid(
                        format!(
                            "What both runs show ({}) was even before: the imbalance lies elsewhere.",
                            quantity.title()
                        ),
                        None,
                    );
                }
            }
            Verdict::Balanced => self.forbid("The run before shows no imbalance: there is nothing to prove.", None),
            Verdict::UniformPressure => {
                self.forbid(
                    "In the run before all are equally full: that is no imbalance, and evening out cannot help.",
                    None,
                );
            }
            Verdict::Inconclusive => self.forbid("The run before does not settle whether there is an imbalance.", None),
        }
        if head.diagnosis.verdict == Verdict::Inconclusive {
            self.forbid("The run after does not settle how even it is.", Some(collect::step_line()));
        }
    }

    fn no_common_ground(&mut self, base: Side, head: Side) {
        let named = |side: Side| {
            let all = entries(side);
            let first = all.iter().find(|entry| entry.peaks.len() >= 2)?;
            let of =
                if first.peaks.first().is_some_and(|(subject, _)| subject.rank().is_some()) { "rank" } else { "card" };
            Some(format!("{} per {of}", first.quantity.title()))
        };
        let wanted = match entries(base).first().filter(|entry| entry.peaks.len() >= 2) {
            Some(entry) if entry.peaks.first().is_some_and(|(subject, _)| subject.rank().is_none()) => {
                collect::table_now()
            }
            _ => collect::step_line(),
        };
        match (named(base), named(head)) {
            (Some(before), Some(after)) => self.forbid(
                format!("The runs show different figures, {before} before and {after} after; they cannot be held against each other."),
                Some(wanted),
            ),
            (Some(before), None) => self.forbid(
                format!("The run after has no figure of two ranks or cards; {before} would be needed."),
                Some(wanted),
            ),
            (None, _) => self.forbid("The run before has no figure of two ranks or cards.", None),
        }
    }

    fn worlds(&mut self, ground: &Ground) {
        let (Some(before), Some(after)) = (&ground.base, &ground.head) else { return };
        if before.compared != after.compared {
            let of =
                if ground.rows.first().is_some_and(|row| row.subject.rank().is_some()) { "ranks" } else { "cards" };
            self.forbid(
                format!("The run before has {} {of}, the run after {}.", before.compared, after.compared),
                Some(Collect {
                    what: format!("The same figures from all {} {of}, with the fix.", before.compared),
                    command: again(ground).command,
                }),
            );
            return;
        }
        if ground.rows.iter().any(|row| row.base.is_none() || row.head.is_none()) {
            self.weaken("Not the same ranks or cards are numbered in both runs.", None);
        }
    }

    fn cards(&mut self, before: &[CardFacts], after: &[CardFacts], policy: &Policy) {
        let capacities =
            |cards: &[CardFacts]| -> Vec<u64> { cards.iter().filter_map(|c| c.capacity).map(|b| b.0).collect() };
        let (base, head) = (capacities(before), capacities(after));
        let (Some(base), Some(head)) = (base.iter().max(), head.iter().max()) else { return };
        let apart = base.abs_diff(*head) as f64 > *base as f64 * policy.capacity_tolerance;
        if apart {
            self.forbid(
                format!("The cards differ: {} before, {} after.", named_card(before), named_card(after)),
                Some(Collect {
                    what: format!("The run after on the cards of the run before ({} each).", Bytes(*base)),
                    command: collect::table_now().command,
                }),
            );
        }
    }

    fn phases(&mut self, base: Side, ground: &Ground) {
        let shown =
            |phase: Phase| ground.phases.iter().find(|p| p.phase == Some(phase)).is_some_and(|p| p.base.is_some());
        for phase in ground.phases.iter().filter(|phase| phase.base.is_some() && phase.head.is_none()) {
            let word = phase.phase.map_or("training", long_word);
            self.forbid(
                format!("The run before shows {word}, the run after does not."),
                Some(if matches!(phase.phase, None | Some(Phase::Train)) {
                    collect::step_line()
                } else {
                    collect::phase_line()
                }),
            );
        }
        let burden = base.diagnosis.causes.first().is_some_and(|cause| cause.label.item() == Item::RankOnlyWork);
        let by_rank = ground.rows.first().is_some_and(|row| row.subject.rank().is_some());
        let both_validate =
            ground.phases.iter().any(|p| p.phase == Some(Phase::Eval) && p.base.is_some() && p.head.is_some());
        if !both_validate && !shown(Phase::Eval) && by_rank && ground.base.is_some() && ground.head.is_some() {
            let text = "Neither run shows validation apart from training; a difference there would not be seen.";
            let seen_after = ground.phases.iter().any(|p| p.phase == Some(Phase::Eval) && p.head.is_some());
            if seen_after {
                return;
            }
            if burden {
                self.forbid(text, Some(collect::phase_line()));
            } else {
                self.weaken(text, Some(collect::phase_line()));
            }
        }
    }

    /// The difference may come later than the run after was watched.
    fn steps(&mut self, base: Side, ground: &Ground, policy: &Policy) {
        let opens = base.diagnosis.imbalance.as_ref().and_then(|imbalance| {
            // Ranks that take turns have no opening; the step at which they were held apart must be reached as well.
            imbalance.opens_at.as_ref().or(imbalance.at.as_ref())
        });
        for phase in &ground.phases {
            let (Some(before), Some(after)) = (&phase.base, &phase.head) else { continue };
            let few = (after.moments as f64) < before.moments as f64 * policy.enough_steps;
            let not_reached = opens
                .and_then(|opens| opens.step)
                .filter(|_| matches!(phase.phase, None | Some(Phase::Train)))
                .is_some_and(|step| after.moments <= step && before.moments > step);
            // A table more or less is no shorter run.
            if before.moments <= 2 || !(few || not_reached) {
                continue;
            }
            let word = phase.phase.map_or_else(String::new, |phase| format!(" of {}", long_word(phase)));
            self.forbid(
                format!(
                    "The run after covers {} steps{word}, the run before {}: the difference may come later.",
                    after.moments, before.moments
                ),
                Some(Collect {
                    what: format!("The run after, watched for at least {} steps{word}.", before.moments),
                    command: again(ground).command,
                }),
            );
        }
    }

    fn input(&mut self, base: Side, head: Side, ground: &Ground, policy: &Policy) {
        let is_about_input = base
            .diagnosis
            .causes
            .first()
            .is_some_and(|cause| matches!(cause.label.item(), Item::BatchDivisibility | Item::DistributedSampler));
        match ground.input.is_even_now {
            None if is_about_input || ground.input_was_uneven(policy) => self.forbid(
                "The run after does not print batch shapes or tokens: whether the ranks are fed evenly now is not shown.",
                Some(collect::step_line()),
            ),
            None if ground.rows.first().is_some_and(|row| row.subject.rank().is_some()) => {
                self.weaken("The run after does not print batch shapes or tokens.", Some(collect::step_line()));
            }
            _ => {}
        }
        let load = |side: Side| {
            let input = side.figures.facts.input.as_ref()?;
            let (tokens, batches) = input.ranks.iter().fold((0u64, 0u64), |(tokens, batches), rank| {
                (tokens.saturating_add(rank.tokens), batches.saturating_add(rank.batches))
            });
            (batches > 0).then(|| tokens as f64 / batches as f64)
        };
        if let (Some(before), Some(after)) = (load(base), load(head))
            && after < before * policy.same_load
        {
            self.forbid(
                format!(
                    "Each rank is fed {after:.0} tokens a step, {before:.0} before: a smaller batch hides a difference, it does not mend it."
                ),
                Some(Collect {
                    what: "The run after with the batch size of the run before.".to_owned(),
                    command: collect::step_line().command,
                }),
            );
        }
    }

    fn one_moment(&mut self, ground: &Ground) {
        let single = |side: &Option<SpreadFigures>| side.as_ref().is_some_and(|figures| figures.moments == 1);
        if single(&ground.base) && single(&ground.head) {
            self.weaken("Both runs were seen at one moment only; that it was the same moment is taken on trust.", None);
        }
    }
}

/// What shows the same figures again.
fn again(ground: &Ground) -> Collect {
    match ground.rows.first() {
        Some(row) if row.subject.rank().is_none() => collect::table_now(),
        _ => collect::step_line(),
    }
}

fn named_card(cards: &[CardFacts]) -> String {
    let Some(card) = cards.iter().max_by_key(|card| card.capacity) else { return "unknown".to_owned() };
    match (&card.name, card.capacity) {
        (Some(name), Some(capacity)) => format!("{name} with {capacity}"),
        (None, Some(capacity)) => capacity.to_string(),
        (Some(name), None) => name.clone(),
        (None, None) => "unknown".to_owned(),
    }
}

/// The phase as a noun.
pub(super) fn long_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Init => "initialisation",
        Phase::Train => "training",
        Phase::Eval => "validation",
        Phase::Save => "saving",
        Phase::Resume => "loading",
    }
}
