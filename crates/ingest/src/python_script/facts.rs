//! Facts while they are collected: each once, with its weakest guard, bounded in number.
//!
//! Knows places and facts; knows no syntax.

use super::source::Source;
use super::value::FactId;
use rankscope_model::{
    ArtifactId, CopyPlace, DeviceClass, Fact, FactKind, Flow, FlowProcess, Framework, Guard, GuardKind, Launcher,
    LoopKind, RankWork, ScriptFact, SetDeviceHow,
};
use ruff_text_size::TextSize;
use std::collections::{BTreeSet, HashMap};

/// Facts kept of one file. The longest training scripts seen hold about 300.
const MAX_FACTS: usize = 5000;

/// The store.
pub(super) struct Facts<'s> {
    source: &'s Source,
    pub(super) artifact: ArtifactId,
    list: Vec<ScriptFact>,
    at: HashMap<(TextSize, FactKind), FactId>,
    order: u32,
    /// The bound was met.
    pub(super) is_full: bool,
    pub(super) frameworks: BTreeSet<Framework>,
    pub(super) launchers: BTreeSet<Launcher>,
}

/// Where the walk is when it meets a fact.
pub(super) struct Here {
    pub(super) function: Option<String>,
    pub(super) guard: Option<Guard>,
    pub(super) in_loop: Option<LoopKind>,
    pub(super) flow: Flow,
}

impl<'s> Facts<'s> {
    pub(super) fn new(source: &'s Source, artifact: ArtifactId) -> Self {
        Self {
            source,
            artifact,
            list: Vec::new(),
            at: HashMap::new(),
            order: 0,
            is_full: false,
            frameworks: BTreeSet::new(),
            launchers: BTreeSet::new(),
        }
    }

    /// Records a fact, or meets it again: then only its guard can become weaker. `None` when the store is full.
    pub(super) fn add(&mut self, offset: TextSize, what: Fact, here: Here) -> Option<FactId> {
        let key = (offset, what.kind());
        if let Some(id) = self.at.get(&key) {
            if let Some(fact) = self.list.get_mut(*id) {
                fact.guard = weaker(fact.guard.take(), here.guard);
            }
            return Some(*id);
        }
        if self.list.len() >= MAX_FACTS {
            self.is_full = true;
            return None;
        }
        let id = self.list.len();
        let flow = Flow { order: self.order, ..here.flow };
        self.order = self.order.saturating_add(1);
        let at = self.source.place(self.artifact, offset);
        let Here { function, guard, in_loop, .. } = here;
        self.list.push(ScriptFact { at, what, function, guard, in_loop, flow });
        self.at.insert(key, id);
        Some(id)
    }

    /// The fact of a kind at a place, if it was met.
    pub(super) fn find(&self, offset: TextSize, kind: FactKind) -> Option<FactId> {
        self.at.get(&(offset, kind)).copied()
    }

    /// Something is done at top level, calls followed, that programs do and modules do not.
    pub(super) fn run_a_program(&self) -> bool {
        let is_top = |fact: &&ScriptFact| fact.flow.process == FlowProcess::Main && fact.flow.root == 0;
        self.list.iter().filter(is_top).any(|fact| match &fact.what {
            Fact::SetDevice { how, .. } => *how == SetDeviceHow::SetDevice,
            Fact::InitProcessGroup { .. }
            | Fact::ModelToDevice { .. }
            | Fact::WrapDdp { .. }
            | Fact::WrapFsdp { .. }
            | Fact::DataParallel { .. }
            | Fact::OptimizerBuilt { .. }
            | Fact::EpochLoop { .. }
            | Fact::EvalLoop { .. }
            | Fact::TrainerBuilt { .. }
            | Fact::Spawn { .. }
            | Fact::SaveState { .. }
            | Fact::EngineBuilt { .. } => true,
            _ => false,
        })
    }

    pub(super) fn get(&self, id: FactId) -> Option<&ScriptFact> {
        self.list.get(id)
    }

    pub(super) fn what_mut(&mut self, id: FactId) -> Option<&mut Fact> {
        self.list.get_mut(id).map(|fact| &mut fact.what)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ScriptFact> {
        self.list.iter_mut()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &ScriptFact> {
        self.list.iter()
    }

    /// All facts in source order.
    pub(super) fn into_facts(mut self) -> Vec<ScriptFact> {
        self.list.sort_by_key(|fact| (fact.at.place, fact.flow.order));
        self.list
    }
}

/// Of two conditions under which the same thing is done, the one that lets more through.
fn weaker(a: Option<Guard>, b: Option<Guard>) -> Option<Guard> {
    let strength = |guard: &Guard| match guard.kind {
        GuardKind::MainModule => 0,
        GuardKind::Condition => 1,
        _ => 2,
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(if strength(&b) < strength(&a) { b } else { a }),
        _ => None,
    }
}

/// The work that a fact is, when only some ranks do it.
pub(super) fn rank_work(what: &Fact) -> Option<RankWork> {
    Some(match what {
        Fact::EvalLoop { .. } => RankWork::Eval,
        Fact::TensorGather { .. } => RankWork::TensorGather,
        Fact::ObjectCollective { .. } => RankWork::ObjectGather,
        Fact::SaveState { .. } => RankWork::Save,
        Fact::FullStateDict { .. } => RankWork::FullStateDict,
        Fact::ModelCopy { place: CopyPlace::Host, .. } => RankWork::HostCopy,
        Fact::ModelCopy { .. } => RankWork::ModelCopy,
        Fact::Sampling { .. } => RankWork::Sampling,
        Fact::GraphTrace { .. } => RankWork::GraphTrace,
        Fact::TorchLoad { .. } => RankWork::Load,
        Fact::Accumulation { .. } => RankWork::Accumulation,
        Fact::RegisterBuffer { .. } => RankWork::Buffer,
        Fact::ModelToDevice { device, .. } if device.class == DeviceClass::Cpu => return None,
        Fact::ModelToDevice { .. } | Fact::NamedDevice { .. } => RankWork::Placement,
        Fact::Checkpointing { .. } => RankWork::Checkpointing,
        Fact::NoSync { .. } | Fact::GradAccumulation { .. } => RankWork::GradAccumulation,
        _ => return None,
    })
}
