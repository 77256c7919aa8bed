//! The training scripts as the rules see them: facts over all files, and how the processes are bound to their GPUs.
//!
//! Knows facts and their order; knows no cause.

use crate::links::Links;
use rankscope_model::{
    ArtifactId, DeviceClass, Evidence, Fact, FactKind, FlowProcess, Framework, Guard, GuardKind, Launcher,
    ScriptEvidence, ScriptFact, SetDeviceHow,
};
use std::collections::BTreeSet;

/// The scripts of the evidence.
pub(crate) struct ScriptView<'a> {
    evidence: &'a Evidence,
    /// Those that the job of the evidence may have run.
    scripts: Vec<&'a ScriptEvidence>,
    /// Later versions of them, and of which.
    later: Vec<(&'a ScriptEvidence, &'a ScriptEvidence)>,
    /// Calls from one of them into another.
    links: Links<'a>,
}

/// How the script binds each process to its GPU.
pub(crate) enum Binding<'a> {
    /// Before anything touches CUDA.
    First {
        /// The call that binds.
        set: &'a ScriptFact,
    },
    /// Only after something has touched CUDA.
    Late {
        /// The call that binds.
        set: &'a ScriptFact,
        /// What comes before it.
        touch: &'a ScriptFact,
    },
    /// To the same GPU in every process.
    Shared {
        /// The call that binds.
        set: &'a ScriptFact,
    },
    /// Not at all, though processes are started or joined here.
    Missing {
        /// The process group or the wrapper.
        at: &'a ScriptFact,
    },
    /// A framework does it.
    Framework,
    /// Cannot be told: nothing is distributed here, or code that was not uploaded may do it.
    Unknown,
}

impl<'a> ScriptView<'a> {
    /// Of the evidence; `before` leaves out scripts that came no earlier than that file. Of two versions of one program
    /// the first is the one that ran.
    pub fn new(evidence: &'a Evidence, before: Option<ArtifactId>) -> Self {
        let mut view = Self { evidence, scripts: Vec::new(), later: Vec::new(), links: Links::default() };
        let is_early = |script: &&ScriptEvidence| before.is_none_or(|file| script.at.artifact < file);
        for script in evidence.scripts.iter().filter(is_early) {
            match view.scripts.iter().find(|earlier| is_version_of(evidence, script, earlier)) {
                Some(earlier) => view.later.push((script, *earlier)),
                None => view.scripts.push(script),
            }
        }
        view.links = Links::new(&view.scripts, |module| view.file_of(module));
        view
    }

    /// Whether a process meets `a` before `b`, calls between files followed; `None` where the flow does not tell.
    pub fn precedes(&self, a: &ScriptFact, b: &ScriptFact) -> Option<bool> {
        self.links.precedes(a, b)
    }

    /// Who runs it, calls between files followed.
    pub fn process(&self, fact: &ScriptFact) -> FlowProcess {
        self.links.process(fact)
    }

    /// The condition on the rank under which it is done, here or where another file calls it; else the one at hand.
    pub fn guard<'f>(&self, fact: &'f ScriptFact) -> Option<&'f Guard>
    where
        'a: 'f,
    {
        self.links.guard(fact)
    }

    /// Done by one rank (or some ranks) only.
    pub fn is_rank_only(&self, fact: &ScriptFact) -> bool {
        self.guard(fact).is_some_and(|guard| guard.kind.is_rank_only())
    }

    /// Scripts that are later versions of others, which they are left out for.
    pub fn later_versions(&self) -> &[(&'a ScriptEvidence, &'a ScriptEvidence)] {
        &self.later
    }

    /// No script was read.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Facts of one kind over all scripts, in the order of the flow; the branch for a single process is left out when
    /// the job is distributed.
    pub fn all(&self, kind: FactKind) -> Vec<&'a ScriptFact> {
        let is_distributed = self.is_distributed();
        let counts = |fact: &&ScriptFact| {
            !(is_distributed && self.guard(fact).is_some_and(|guard| guard.kind == GuardKind::SingleProcess))
        };
        self.scripts.iter().copied().flat_map(|script| script.all(kind)).filter(counts).collect()
    }

    /// Whether there is one.
    pub fn has(&self, kind: FactKind) -> bool {
        self.scripts.iter().copied().any(|script| script.has(kind))
    }

    /// Some script uses it.
    pub fn uses(&self, framework: Framework) -> bool {
        self.scripts.iter().copied().any(|script| script.uses(framework))
    }

    /// The scripts that use it.
    pub fn using(&self, framework: Framework) -> impl Iterator<Item = &'a ScriptEvidence> {
        self.scripts.iter().copied().filter(move |script| script.uses(framework))
    }

    /// Some script is started this way.
    pub fn starts_by(&self, launcher: Launcher) -> bool {
        self.scripts.iter().copied().any(|script| script.launchers.contains(&launcher))
    }

    /// One process for each GPU, as far as the scripts tell.
    pub fn is_distributed(&self) -> bool {
        self.scripts.iter().copied().any(ScriptEvidence::is_distributed)
    }

    /// The program itself is among the scripts, whole: what is not in it is not done by it. Code of the project that
    /// was not uploaded may still do it, see [`Self::calls_elsewhere`].
    pub fn is_whole(&self) -> bool {
        self.scripts.iter().copied().any(|script| script.is_entry)
            && self.scripts.iter().copied().all(|script| script.is_whole)
    }

    /// Code of the project that was not uploaded is called by a name with one of these words in it.
    pub fn calls_elsewhere(&self, words: &[&str]) -> bool {
        self.missing_calls().any(|name| words.iter().any(|word| name.contains(word)))
    }

    /// A call that may choose the GPU: `setup_distributed`, but not `get_dataset_distributed`.
    fn may_bind_elsewhere(&self) -> bool {
        let words = ["dist", "ddp", "device", "setup", "init_env", "init_process", "launch"];
        self.missing_calls().any(|name| {
            words.iter().any(|word| name.contains(word)) && !name.contains("data") && !name.contains("sampler")
        })
    }

    /// Names that are called in files of the project which are not among the scripts, in lower case.
    fn missing_calls(&self) -> impl Iterator<Item = String> {
        self.scripts.iter().copied().flat_map(|script| &script.facts).filter_map(|fact| match &fact.what {
            Fact::CallsImported { module, name } if !self.has_module(module) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
    }

    /// The file of a module is among the scripts.
    fn has_module(&self, module: &str) -> bool {
        self.file_of(module).is_some()
    }

    /// The file of a module, by the last part of its name: `tools/dist.py` and `dist.py` are both `tools.dist`. A package
    /// is its folder's `__init__.py`.
    fn file_of(&self, module: &str) -> Option<ArtifactId> {
        let stem = module.rsplit('.').next().unwrap_or_default();
        let is_meant = |script: &&&ScriptEvidence| {
            let name = self.evidence.artifact_name(script.at.artifact);
            let mut parts = name.rsplit('/');
            let own = parts.next().and_then(|own| own.strip_suffix(".py"));
            match own {
                Some("__init__") => parts.next() == Some(stem),
                own => own == Some(stem),
            }
        };
        self.scripts.iter().find(is_meant).map(|script| script.at.artifact)
    }

    /// How processes are bound.
    pub fn binding(&self) -> Binding<'a> {
        let frameworks = |script: &ScriptEvidence| script.frameworks.iter().any(|framework| framework.binds_device());
        let sets: Vec<&ScriptFact> =
            self.all(FactKind::SetDevice).into_iter().filter(|fact| is_lasting(&fact.what)).collect();
        let groups = self.all(FactKind::InitProcessGroup);
        let binds = |fact: &&&ScriptFact| match &fact.what {
            Fact::InitProcessGroup { binds_device, device_id, .. } => {
                *binds_device || device_id.as_ref().is_some_and(|device| device.class.follows_rank())
            }
            _ => false,
        };
        if let Some(set) = sets.iter().find(|set| shares_one(&set.what)).filter(|_| !self.sees_one_gpu()) {
            return if self.is_distributed() { Binding::Shared { set } } else { Binding::Unknown };
        }
        if let Some(set) = sets.first().copied() {
            let touch = self.touches().into_iter().find(|touch| self.precedes(touch, set) == Some(true));
            return match touch {
                Some(touch) => Binding::Late { set, touch },
                None => Binding::First { set },
            };
        }
        if groups.iter().any(|group| binds(&group)) || self.scripts.iter().copied().any(frameworks) {
            return Binding::Framework;
        }
        let wraps = self.all(FactKind::WrapDdp).into_iter().chain(self.all(FactKind::WrapFsdp));
        match groups.into_iter().chain(wraps).next() {
            Some(at) if self.is_whole() && !self.may_bind_elsewhere() => Binding::Missing { at },
            _ => Binding::Unknown,
        }
    }

    /// Each process hides all GPUs but one of its own from itself: GPU 0 is then that one.
    pub fn sees_one_gpu(&self) -> bool {
        let hides = |fact: &&ScriptFact| match &fact.what {
            Fact::SetDevice { how: SetDeviceHow::VisibleDevices, device } => device.class.follows_rank(),
            _ => false,
        };
        self.all(FactKind::SetDevice).iter().any(hides)
    }

    /// What initialises CUDA on the current or a fixed GPU, in training processes.
    fn touches(&self) -> Vec<&'a ScriptFact> {
        let kinds = [FactKind::CudaCall, FactKind::NamedDevice, FactKind::ModelToDevice, FactKind::WrapDdp];
        let trains = |fact: &&ScriptFact| !matches!(self.process(fact), FlowProcess::Worker | FlowProcess::Uncalled);
        let on_default = |fact: &&ScriptFact| match &fact.what {
            Fact::CudaCall { device, .. } => device.as_ref().is_none_or(|device| device.class.is_shared_default()),
            Fact::NamedDevice { device, .. } | Fact::ModelToDevice { device, .. } => device.class.is_shared_default(),
            _ => true,
        };
        kinds.iter().flat_map(|kind| self.all(*kind)).filter(trains).filter(on_default).collect()
    }
}

/// From this share of equal lines on two programs are versions of one: a fix changes a few lines of it.
const SAME_PROGRAM: f64 = 0.6;

/// Facts below which equal lines say nothing.
const FEW_FACTS: usize = 4;

/// Both are programs, and they have one name or mostly the same telling lines.
fn is_version_of(evidence: &Evidence, later: &ScriptEvidence, earlier: &ScriptEvidence) -> bool {
    if !later.is_entry || !earlier.is_entry {
        return false;
    }
    let name = |script: &ScriptEvidence| {
        evidence.artifact_name(script.at.artifact).rsplit('/').next().unwrap_or_default().to_owned()
    };
    let lines = |script: &'_ ScriptEvidence| -> BTreeSet<String> {
        script.facts.iter().map(|fact| fact.at.quote.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let (a, b) = (lines(later), lines(earlier));
    let common = a.intersection(&b).count();
    let least = a.len().min(b.len());
    let is_alike = least >= FEW_FACTS && common as f64 >= least as f64 * SAME_PROGRAM;
    is_alike || (name(later) == name(earlier) && common > 0)
}

/// Binds the process for good, not only within a block.
fn is_lasting(what: &Fact) -> bool {
    matches!(what, Fact::SetDevice { how, .. } if *how != SetDeviceHow::WithDevice)
}

/// The same GPU in every process. A list of visible devices that is written out hides cards, it binds nothing.
fn shares_one(what: &Fact) -> bool {
    matches!(
        what,
        Fact::SetDevice { how: SetDeviceHow::SetDevice, device } if matches!(device.class, DeviceClass::Literal(_))
    )
}
