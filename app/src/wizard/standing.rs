//! Where each item stands: the machine's view and people's beside it, what is most telling next, and how far the
//! checklist has come. Pure; knows no markup.

use rankscope_model::{ChecklistEntry, Finding, Item, ItemNote, ItemStatus, OwnStatus, Report, Stage, Verdict};

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

    /// The lower, the more telling it is to look at now.
    fn urgency(&self) -> u8 {
        if self.is_out() {
            return 9;
        }
        if self.is_settled() {
            return 8;
        }
        match self.entry.status {
            ItemStatus::Fail => 1,
            ItemStatus::Suspect => 2,
            ItemStatus::Unknown => 3,
            ItemStatus::Pass | ItemStatus::NotApplicable => 4,
        }
    }
}

/// The whole checklist of a report.
pub struct Checklist<'a> {
    /// Every item, in order.
    pub items: Vec<Standing<'a>>,
    /// The item that the diagnosis wants decided next.
    pub wanted: Option<Item>,
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
        Self { items, wanted: report.next.as_ref().map(|(item, _)| *item) }
    }

    /// The items of a stage, the most telling first; those that cannot apply last.
    pub fn of_stage(&self, stage: Stage) -> Vec<&Standing<'a>> {
        let mut items: Vec<&Standing> = self.items.iter().filter(|item| item.item().stage() == stage).collect();
        items.sort_by_key(|item| (item.urgency() >= 8, self.wanted != Some(item.item()), item.urgency()));
        items
    }

    /// The item to look at next: what the diagnosis wants, unless a person has dealt with it; then what fails, what is
    /// suspected, what is open.
    pub fn next(&self) -> Option<&Standing<'a>> {
        let wanted = self.items.iter().find(|item| self.wanted == Some(item.item()) && !item.is_settled());
        wanted.or_else(|| {
            let open = self.items.iter().filter(|item| !item.is_settled() && !item.is_out());
            // The proof comes when nothing else is open.
            open.min_by_key(|item| (item.item() == Item::Verified, item.urgency()))
        })
    }

    /// The stage to open.
    pub fn leading_stage(&self) -> Stage {
        self.next().map_or(Stage::Verify, |item| item.item().stage())
    }

    /// Settled items, items that apply, and items that do not.
    pub fn progress(&self) -> (usize, usize, usize) {
        let out = self.items.iter().filter(|item| item.is_out()).count();
        let settled = self.items.iter().filter(|item| item.is_settled() && !item.is_out()).count();
        (settled, self.items.len() - out, out)
    }
}

/// The gravest status of some items, for the sign of their stage.
pub fn gravest<'s, 'a: 's>(items: impl IntoIterator<Item = &'s Standing<'a>>) -> ItemStatus {
    let mut gravest = ItemStatus::NotApplicable;
    for item in items {
        let status = match (item.is_settled(), item.entry.status) {
            (true, _) if item.is_out() => ItemStatus::NotApplicable,
            // Mended is a promise until the evidence speaks for it.
            (true, status) if item.own_status() == Some(OwnStatus::Mended) && status != ItemStatus::Pass => {
                ItemStatus::Suspect
            }
            (true, _) => ItemStatus::Pass,
            (false, status) => match item.own_status() {
                Some(OwnStatus::Fails) => ItemStatus::Fail,
                Some(OwnStatus::Open) if status == ItemStatus::Pass => ItemStatus::Unknown,
                _ => status,
            },
        };
        let weight = |status| match status {
            ItemStatus::Fail => 5,
            ItemStatus::Suspect => 4,
            ItemStatus::Unknown => 3,
            ItemStatus::Pass => 2,
            ItemStatus::NotApplicable => 1,
        };
        if weight(status) > weight(gravest) {
            gravest = status;
        }
    }
    gravest
}

/// Whether there is an imbalance whose fix could be proven.
pub fn has_something_to_prove(report: &Report) -> bool {
    matches!(report.diagnosis.verdict, Verdict::Imbalance)
}
