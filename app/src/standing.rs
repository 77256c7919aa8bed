//! Where each item of a checklist stands: the machine's view and people's beside it, in which words, what is most
//! telling next, and how far the checklist has come. The report and the wizard both ask here, so that they never count
//! or say different things. Pure; knows no markup.

use crate::words;
use rankscope_model::{
    CauseLabel, ChecklistEntry, Finding, Item, ItemNote, ItemStatus, OwnStatus, Report, Stage, Verdict,
};

/// One item with everything that is said of it.
pub struct Standing<'a> {
    /// The machine's view.
    pub entry: &'a ChecklistEntry,
    /// The findings that it names.
    pub findings: Vec<&'a Finding>,
    /// People's entries, oldest first.
    pub notes: Vec<&'a ItemNote>,
}

impl Standing<'_> {
    /// The item.
    pub fn item(&self) -> Item {
        self.entry.item
    }

    /// The newest entry that carries a status.
    pub fn own(&self) -> Option<&ItemNote> {
        self.notes.iter().rev().find(|note| note.status.is_some()).copied()
    }

    /// What a person says of it now.
    pub fn own_status(&self) -> Option<OwnStatus> {
        self.own().and_then(|note| note.status)
    }

    /// It cannot apply: a person says so, or the machine does and no person disagrees.
    pub fn is_out(&self) -> bool {
        match self.own_status() {
            Some(own) => own == OwnStatus::DoesNotApply,
            None => self.entry.status == ItemStatus::NotApplicable,
        }
    }

    /// Nothing is left to do for it: the evidence speaks for it, or a person has dealt with it.
    pub fn is_settled(&self) -> bool {
        match self.own_status() {
            Some(own) => own.is_settled(),
            None => matches!(self.entry.status, ItemStatus::Pass | ItemStatus::NotApplicable),
        }
    }

    /// Both views in one: what a person said counts before what the machine says. Mended is a promise until the
    /// evidence speaks for it.
    pub fn status(&self) -> ItemStatus {
        let seen = self.entry.status;
        match self.own_status() {
            Some(OwnStatus::DoesNotApply) => ItemStatus::NotApplicable,
            Some(OwnStatus::Holds) => ItemStatus::Pass,
            Some(OwnStatus::Mended) if seen == ItemStatus::Pass => ItemStatus::Pass,
            Some(OwnStatus::Mended) => ItemStatus::Suspect,
            Some(OwnStatus::Fails) => ItemStatus::Fail,
            Some(OwnStatus::Open) if seen == ItemStatus::Pass => ItemStatus::Unknown,
            None | Some(OwnStatus::Open) => seen,
        }
    }

    /// The statement that is checked, as far as it is one already: a proof that is still to come is not stated.
    pub fn heading(&self) -> &'static str {
        heading(self.item(), self.entry.status)
    }

    /// The machine's status in a word or two.
    pub fn word(&self) -> &'static str {
        word(self.item(), self.entry.status)
    }
}

/// The statement of an item beside its status. What is checked stands for every item but the proof: its words follow
/// the status, because they would read as the answer.
pub fn heading(item: Item, status: ItemStatus) -> &'static str {
    match (item, status) {
        (Item::Verified, ItemStatus::Unknown) => "The fix is not proven yet",
        (Item::Verified, ItemStatus::Fail) => "The fix is not proven: the difference remains",
        (Item::Verified, ItemStatus::Suspect) => "The fix is proven in part",
        (Item::Verified, ItemStatus::NotApplicable) => "There is no fix to prove",
        (item, _) => item.title(),
    }
}

/// A status in a word or two. Until a second run exists, the proof is not missing: it is still to come.
pub fn word(item: Item, status: ItemStatus) -> &'static str {
    match (item, status) {
        (Item::Verified, ItemStatus::Unknown) => "not yet",
        (Item::Verified, ItemStatus::Pass) => "proven",
        (_, status) => status.word(),
    }
}

/// A person's state in a word or two, for the narrow lists.
pub fn own_word(own: OwnStatus) -> &'static str {
    match own {
        OwnStatus::Mended => "mended",
        OwnStatus::Fails => "fails",
        OwnStatus::Open | OwnStatus::Holds | OwnStatus::DoesNotApply => own.title(),
    }
}

/// The whole checklist of a report.
pub struct Checklist<'a> {
    /// Every item, in order.
    pub items: Vec<Standing<'a>>,
    /// The item that the diagnosis wants decided next.
    wanted: Option<Item>,
    /// The item of the cause that the verdict names.
    accused: Option<Item>,
}

impl<'a> Checklist<'a> {
    /// Puts the two views side by side. `verified` is the closing item as a comparison decides it.
    pub fn new(report: &'a Report, notes: &'a [ItemNote], verified: Option<&'a (ChecklistEntry, Finding)>) -> Self {
        let diagnosis = &report.diagnosis;
        let items = diagnosis
            .checklist
            .iter()
            .map(|entry| {
                let of_item = |note: &&ItemNote| note.item == entry.item;
                let notes = notes.iter().filter(of_item).collect();
                match verified.filter(|(proof, _)| proof.item == entry.item) {
                    Some((proof, finding)) => Standing { entry: proof, findings: vec![finding], notes },
                    None => Standing {
                        entry,
                        findings: diagnosis.findings.iter().filter(|f| entry.findings.contains(&f.id)).collect(),
                        notes,
                    },
                }
            })
            .collect();
        let named = diagnosis.causes.first().filter(|cause| {
            !matches!(cause.label, CauseLabel::Unresolved | CauseLabel::Benign)
                && diagnosis.verdict == Verdict::Imbalance
                && !diagnosis.is_by_design()
        });
        Self {
            items,
            wanted: report.next.as_ref().map(|(item, _)| *item),
            accused: named.map(|cause| cause.label.item()),
        }
    }

    /// The lower, the more telling it is to look at now: what fails is mended before anything else is asked, the cause
    /// that the verdict names first; then what the diagnosis asks for; the proof comes when nothing else is open.
    fn urgency(&self, standing: &Standing<'_>) -> u8 {
        let item = standing.item();
        match standing.status() {
            _ if standing.is_out() => 9,
            _ if standing.is_settled() => 8,
            _ if item == Item::Verified => 6,
            ItemStatus::Fail if self.accused == Some(item) => 0,
            ItemStatus::Fail => 1,
            _ if self.wanted == Some(item) => 2,
            ItemStatus::Suspect => 3,
            ItemStatus::Unknown => 4,
            ItemStatus::Pass | ItemStatus::NotApplicable => 5,
        }
    }

    /// The items of a stage, the most telling first; those that cannot apply last.
    pub fn of_stage(&self, stage: Stage) -> Vec<&Standing<'a>> {
        let mut items: Vec<&Standing> = self.items.iter().filter(|item| item.item().stage() == stage).collect();
        items.sort_by_key(|item| self.urgency(item));
        items
    }

    /// The item to look at next: what fails, then what the diagnosis wants decided, then what is suspected or open.
    /// Nothing once the fix is proven: what failed before it is mended.
    pub fn next(&self) -> Option<&Standing<'a>> {
        if self.is_proven() {
            return None;
        }
        let open = self.items.iter().filter(|item| !item.is_settled() && !item.is_out());
        open.min_by_key(|item| self.urgency(item))
    }

    /// A later run showed that the fix holds.
    pub fn is_proven(&self) -> bool {
        self.items.iter().any(|item| item.item() == Item::Verified && item.entry.status == ItemStatus::Pass)
    }

    /// The stage to open.
    pub fn leading_stage(&self) -> Stage {
        self.next().map_or(Stage::Verify, |item| item.item().stage())
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        let out = self.items.iter().filter(|item| item.is_out()).count();
        let settled = self.items.iter().filter(|item| item.is_settled() && !item.is_out()).count();
        Progress { settled, apply: self.items.len() - out, out }
    }
}

/// How far a checklist has come: the one count of it, on every page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Items for which nothing is left to do: the evidence speaks for them, or a person has dealt with them.
    pub settled: usize,
    /// Items that apply to this job.
    pub apply: usize,
    /// Items that do not.
    pub out: usize,
}

impl Progress {
    /// `5 of 9 settled, 1 does not apply`.
    pub fn words(self) -> String {
        let rest = match self.out {
            0 => String::new(),
            1 => ", 1 does not apply".to_owned(),
            n => format!(", {n} do not apply"),
        };
        format!("{} of {} settled{rest}", self.settled, words::count(self.apply, "item"))
    }
}

/// The gravest status of some items, for the sign of their stage.
pub fn gravest<'s, 'a: 's>(items: impl IntoIterator<Item = &'s Standing<'a>>) -> ItemStatus {
    let weight = |status: &ItemStatus| match status {
        ItemStatus::Fail => 5,
        ItemStatus::Suspect => 4,
        ItemStatus::Unknown => 3,
        ItemStatus::Pass => 2,
        ItemStatus::NotApplicable => 1,
    };
    items.into_iter().map(Standing::status).max_by_key(weight).unwrap_or(ItemStatus::NotApplicable)
}

/// Whether there is an imbalance whose fix could be proven.
pub fn has_something_to_prove(report: &Report) -> bool {
    matches!(report.diagnosis.verdict, Verdict::Imbalance) && !report.diagnosis.is_by_design()
}
