//! The walk over a script: where it stands, what it has seen, and how it records a fact.
//!
//! The flow is followed statement by statement (`statements`), both sides of a branch, functions where they are called
//! (`definitions`). Each function is walked once, and once more if it was first met under a stronger condition, so
//! that the work is linear in the source. What a call means is told by `calls`, what an expression is worth by `eval`.

use super::facts::{Facts, Here, rank_work};
use super::scan::{self, BodyScan};
use super::source::Source;
use super::value::{ClassId, FactId, FunctionId, RankKind, ScopeId, Scopes, Value};
use rankscope_model::{DeviceClass, Fact, Flow, FlowProcess, Guard, GuardKind, LoopKind, RankWork};
use ruff_python_ast::{self as ast, Expr, Stmt};
use ruff_text_size::{Ranged, TextSize};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// Calls followed into each other. People nest about ten.
pub(super) const MAX_CALLS: usize = 40;
/// Levels of syntax over all calls that are being followed; bounds the stack.
pub(super) const MAX_LEVELS: usize = 3 * super::nesting::MAX_DEPTH;

/// Steps of work for one script: syntax that is walked counts by its nodes, syntax that is looked through by its
/// bytes, tables that are searched by their rows. Thirty-two for each byte of the longest source that is read.
const MAX_STEPS: u64 = 32 << 20;

/// A function of the file.
pub(super) struct Function<'a> {
    pub(super) def: &'a ast::StmtFunctionDef,
    /// `Trainer.fit` for methods.
    pub(super) name: String,
    pub(super) class: Option<ClassId>,
    /// The function in whose body it is defined.
    pub(super) parent: Option<FunctionId>,
    /// Times it was walked.
    pub(super) walks: u8,
    /// Times it was called.
    pub(super) calls: u32,
    /// Walked without a rank condition around it.
    pub(super) walked_freely: bool,
    pub(super) is_active: bool,
    pub(super) returns: Value<'a>,
    /// What it does that matters when only some ranks do it.
    pub(super) works: BTreeSet<RankWork>,
}

/// A class of the file.
pub(super) struct Class<'a> {
    pub(super) name: &'a str,
    pub(super) bases: Vec<Value<'a>>,
    pub(super) methods: HashMap<&'a str, FunctionId>,
    /// Its attributes, `self.x` of all objects together.
    pub(super) scope: ScopeId,
    /// A layer or model.
    pub(super) is_module: bool,
    /// A data set whose items loader workers make.
    pub(super) is_dataset: bool,
    /// A class whose methods a trainer calls.
    pub(super) is_lightning: bool,
    /// Attributes that some method empties again, as written: `self.outputs`.
    pub(super) emptied: HashSet<String>,
}

/// A call that is being followed; the first frame is the file's top level.
pub(super) struct Frame<'a> {
    pub(super) function: Option<FunctionId>,
    pub(super) scope: ScopeId,
    pub(super) returns: Option<Value<'a>>,
    pub(super) globals: HashSet<&'a str>,
}

/// A loop that is being walked.
pub(super) struct Loop {
    pub(super) kind: LoopKind,
    /// Index of the frame in which it stands.
    pub(super) frame: usize,
    /// Targets that its body sets anew, as written.
    pub(super) assigned: HashSet<String>,
}

/// The arguments of a call, evaluated.
pub(super) struct Args<'a> {
    pub(super) positional: Vec<(&'a Expr, Value<'a>)>,
    pub(super) keywords: Vec<(&'a str, &'a Expr, Value<'a>)>,
    /// `*args` or `**kwargs` are among them, so a missing one may still be given.
    pub(super) is_open: bool,
}

impl<'a> Args<'a> {
    /// By keyword, else by position.
    pub(super) fn get(&self, name: &str, position: usize) -> Option<(&'a Expr, &Value<'a>)> {
        self.keyword(name).or_else(|| self.at(position))
    }

    pub(super) fn keyword(&self, name: &str) -> Option<(&'a Expr, &Value<'a>)> {
        self.keywords.iter().find(|(key, ..)| *key == name).map(|(_, expr, value)| (*expr, value))
    }

    pub(super) fn at(&self, position: usize) -> Option<(&'a Expr, &Value<'a>)> {
        self.positional.get(position).map(|(expr, value)| (*expr, value))
    }

    /// All values.
    pub(super) fn values(&self) -> impl Iterator<Item = &Value<'a>> {
        self.positional.iter().map(|(_, value)| value).chain(self.keywords.iter().map(|(.., value)| value))
    }

    /// A keyword that is written out as a truth value.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.keyword(name)?.1 {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }
}

/// What was met anywhere in the file.
#[derive(Default)]
pub(super) struct Seen {
    /// `if __name__ == "__main__"`.
    pub(super) main_guard: bool,
    /// A training loop, a trainer's start or a call of `main()` at top level.
    pub(super) runs_on_import: bool,
    /// `set_epoch` on something that could not be traced to its sampler.
    pub(super) set_epoch_elsewhere: bool,
}

/// The walk over one file.
pub(super) struct Walker<'a> {
    pub(super) source: &'a Source,
    pub(super) facts: Facts<'a>,
    pub(super) scopes: Scopes<'a>,
    pub(super) functions: Vec<Function<'a>>,
    pub(super) classes: Vec<Class<'a>>,
    pub(super) function_at: HashMap<TextSize, FunctionId>,
    pub(super) class_at: HashMap<TextSize, ClassId>,
    pub(super) frames: Vec<Frame<'a>>,
    pub(super) guards: Vec<Guard>,
    pub(super) loops: Vec<Loop>,
    /// Depth of `no_grad`.
    pub(super) no_grad: u32,
    /// Work found inside of each open rank branch and each followed function.
    pub(super) collectors: Vec<BTreeSet<RankWork>>,
    pub(super) flow: Flow,
    pub(super) roots: u32,
    pub(super) next_scope: ScopeId,
    /// Levels of syntax that are open, over all calls that are being followed.
    pub(super) levels: usize,
    /// Syntax was left out because a bound was met.
    pub(super) is_cut: bool,
    /// Steps of work that are left.
    steps: Cell<u64>,
    /// Defaults of `add_argument`, by attribute name.
    pub(super) options: HashMap<String, Value<'a>>,
    /// Modules of `from x import *`.
    pub(super) star_modules: Vec<Rc<str>>,
    /// Names (last part) that are used as models somewhere in the file.
    pub(super) model_names: HashSet<&'a str>,
    /// Functions handed to loaders or pools.
    pub(super) worker_functions: Vec<FunctionId>,
    /// What was met anywhere.
    pub(super) seen: Seen,
    /// Functions that create a loader, by its fact.
    pub(super) loader_makers: HashMap<FactId, FunctionId>,
    /// The distributed sampler of a loader.
    pub(super) loader_samplers: HashMap<FactId, FactId>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(source: &'a Source, facts: Facts<'a>) -> Self {
        Self {
            source,
            facts,
            scopes: Scopes::default(),
            functions: Vec::new(),
            classes: Vec::new(),
            function_at: HashMap::new(),
            class_at: HashMap::new(),
            frames: Vec::new(),
            guards: Vec::new(),
            loops: Vec::new(),
            no_grad: 0,
            collectors: Vec::new(),
            flow: Flow { process: FlowProcess::Main, root: 0, order: 0, on_import: false },
            roots: 0,
            next_scope: 1,
            levels: 0,
            is_cut: false,
            steps: Cell::new(MAX_STEPS),
            options: HashMap::new(),
            star_modules: Vec::new(),
            model_names: HashSet::new(),
            worker_functions: Vec::new(),
            seen: Seen::default(),
            loader_makers: HashMap::new(),
            loader_samplers: HashMap::new(),
        }
    }

    /// Takes `steps` from what the work on this script may cost; `false` once that is spent.
    pub(super) fn spend(&self, steps: usize) -> bool {
        let left = self.steps.get().saturating_sub(steps as u64);
        self.steps.set(left);
        left > 0
    }

    /// The work was more than one script is worth, and the walk ended early.
    pub(super) fn is_spent(&self) -> bool {
        self.steps.get() == 0
    }

    /// What a body does.
    pub(super) fn scan(&self, body: &[Stmt]) -> BodyScan {
        if self.spend(scan::length(body)) { BodyScan::of(body, self.source) } else { BodyScan::nothing() }
    }

    /// Walks the file: its top level first, then what nothing called.
    pub(super) fn run(&mut self, body: &'a [Stmt]) {
        self.model_names = scan::model_names(body);
        self.frames.push(Frame { function: None, scope: 0, returns: None, globals: HashSet::new() });
        self.body(body);
        // Functions that are met on the way are appended, so an index is all that is needed.
        let mut next = 0;
        while next < self.functions.len() && self.spend(1) {
            let id = next;
            next = next.saturating_add(1);
            if self.functions.get(id).is_some_and(|function| function.walks == 0) {
                self.root(id);
            }
        }
    }

    /// A function that nothing calls, as a flow of its own.
    fn root(&mut self, id: FunctionId) {
        self.spend(self.worker_functions.len());
        let is_worker = self.worker_functions.contains(&id)
            || self.functions.get(id).is_some_and(|function| {
                let in_dataset = function.class.and_then(|c| self.classes.get(c)).is_some_and(|c| c.is_dataset);
                in_dataset
                    && matches!(
                        function.def.name.as_str(),
                        "__getitem__" | "__iter__" | "__setstate__" | "__call__" | "__getitems__"
                    )
            });
        let process = if is_worker { FlowProcess::Worker } else { FlowProcess::Uncalled };
        self.start(&Value::Function(id), process, Vec::new());
    }

    /// Follows a function as the beginning of another process, thread or uncalled flow.
    pub(super) fn start(&mut self, target: &Value<'a>, process: FlowProcess, given: Vec<Value<'a>>) {
        let (id, mut values) = match target {
            Value::Function(id) | Value::Method(_, id) => (*id, Vec::new()),
            Value::Partial(inner, bound) => match **inner {
                Value::Function(id) => (id, bound.to_vec()),
                _ => return,
            },
            _ => return,
        };
        values.extend(given);
        self.roots = self.roots.saturating_add(1);
        let flow = Flow { process, root: self.roots, order: 0, on_import: false };
        let outer = (
            std::mem::replace(&mut self.flow, flow),
            std::mem::take(&mut self.guards),
            std::mem::take(&mut self.loops),
            std::mem::take(&mut self.no_grad),
            std::mem::take(&mut self.collectors),
        );
        let class = self.functions.get(id).and_then(|function| function.class);
        self.follow(id, class.map(Value::Instance), &values, &[], false);
        (self.flow, self.guards, self.loops, self.no_grad, self.collectors) = outer;
    }

    /// Records a fact where the walk stands.
    pub(super) fn fact(&mut self, at: TextSize, what: Fact) -> Option<FactId> {
        let work = rank_work(&what);
        let here = self.here();
        let works_on_gpu = match &what {
            Fact::ModelToDevice { device, .. } => Some((device.class, device.text.clone())),
            Fact::NamedDevice { device, how, .. } => Some((device.class, how.clone())),
            Fact::CudaCall { call, .. } => Some((DeviceClass::Current, call.clone())),
            _ => None,
        };
        let id = self.facts.add(at, what, here)?;
        if let Some(work) = work {
            self.work(work);
        }
        if let Some((class, call)) = works_on_gpu
            && self.flow.process == FlowProcess::Worker
            && class != DeviceClass::Cpu
        {
            self.worker_cuda(at, call);
        }
        Some(id)
    }

    /// Notes work in each open rank branch and followed function.
    pub(super) fn work(&mut self, work: RankWork) {
        self.spend(self.collectors.len());
        for set in &mut self.collectors {
            set.insert(work);
        }
    }

    /// A worker touches CUDA here.
    pub(super) fn worker_cuda(&mut self, at: TextSize, call: String) {
        let here = self.here();
        let worker = here.function.clone().unwrap_or_default();
        self.facts.add(at, Fact::WorkerCuda { worker, call }, here);
    }

    pub(super) fn in_worker(&self) -> bool {
        self.flow.process == FlowProcess::Worker
    }

    /// The function, or one that it calls, evaluates.
    pub(super) fn does_eval(&self, id: FunctionId) -> bool {
        self.functions.get(id).is_some_and(|function| function.works.contains(&RankWork::Eval))
    }

    fn here(&self) -> Here {
        let function =
            self.frame_function().and_then(|id| self.functions.get(id)).map(|function| function.name.clone());
        let on_import = self.flow.process == FlowProcess::Main
            && self.frames.len() == 1
            && !self.guards.iter().any(|guard| guard.kind == GuardKind::MainModule);
        Here {
            function,
            guard: self.guard().cloned(),
            in_loop: self.loop_kind(),
            flow: Flow { on_import, ..self.flow },
        }
    }

    /// The condition that matters most here: on ranks first, then any, the innermost of each.
    fn guard(&self) -> Option<&Guard> {
        let find = |wanted: fn(GuardKind) -> bool| self.guards.iter().rev().find(|guard| wanted(guard.kind));
        find(GuardKind::is_rank_only)
            .or_else(|| find(|kind| kind == GuardKind::SingleProcess))
            .or_else(|| find(|kind| kind == GuardKind::Condition))
            .or_else(|| find(|kind| kind == GuardKind::MainModule))
    }

    pub(super) fn is_rank_only(&self) -> bool {
        self.guards.iter().any(|guard| guard.kind.is_rank_only())
    }

    fn loop_kind(&self) -> Option<LoopKind> {
        let telling = self.loops.iter().rev().map(|l| l.kind).find(|kind| *kind != LoopKind::Other);
        telling.or_else(|| self.loops.last().map(|l| l.kind))
    }

    pub(super) fn frame_function(&self) -> Option<FunctionId> {
        self.frames.last().and_then(|frame| frame.function)
    }

    /// The name of the function at hand, without its class.
    pub(super) fn function_name(&self) -> &'a str {
        self.frame_function().and_then(|id| self.functions.get(id)).map_or("", |function| function.def.name.as_str())
    }

    pub(super) fn text(&self, node: impl Ranged) -> String {
        self.source.slice(node.range())
    }

    pub(super) fn new_scope(&mut self) -> ScopeId {
        self.next_scope = self.next_scope.saturating_add(1);
        self.next_scope
    }

    pub(super) fn lookup(&self, name: &'a str) -> Value<'a> {
        let Some(frame) = self.frames.last() else { return Value::Unknown };
        if let Some(value) = self.scopes.get(frame.scope, name) {
            return value.clone();
        }
        let mut parent = frame.function.and_then(|id| self.functions.get(id)).and_then(|function| function.parent);
        while let Some(id) = parent {
            self.spend(self.frames.len());
            let outer = self.frames.iter().rev().find(|frame| frame.function == Some(id));
            if let Some(value) = outer.and_then(|frame| self.scopes.get(frame.scope, name)) {
                return value.clone();
            }
            parent = self.functions.get(id).and_then(|function| function.parent);
        }
        match self.scopes.get(0, name) {
            Some(value) => value.clone(),
            None => match self.star_modules.last() {
                Some(module) if scan::is_known_star_name(name) => Value::Path(format!("{module}.{name}").into()),
                _ => Value::Unknown,
            },
        }
    }

    pub(super) fn bind_name(&mut self, name: &'a str, value: Value<'a>) {
        let Some(frame) = self.frames.last() else { return };
        let scope = if frame.globals.contains(name) { 0 } else { frame.scope };
        self.scopes.set(scope, name, value);
    }

    /// An expression for the local rank that is in scope: a name, or what the environment says.
    pub(super) fn local_rank_in_scope(&self) -> Option<String> {
        let local = Value::Rank(RankKind::Local);
        if !self.spend(self.scopes.len()) {
            return None;
        }
        let scopes = [self.frames.last().map_or(0, |frame| frame.scope), 0];
        scopes.into_iter().find_map(|scope| self.scopes.name_of(scope, &local)).map(str::to_owned)
    }

    pub(super) fn class_of_attribute(&self, class: ClassId, name: &'a str) -> Option<&Value<'a>> {
        let mut at = Some(class);
        for _ in 0..16 {
            let class = self.classes.get(at?)?;
            if let Some(value) = self.scopes.get(class.scope, name) {
                return Some(value);
            }
            at = class.bases.iter().find_map(|base| if let Value::Class(id) = base { Some(*id) } else { None });
        }
        None
    }

    pub(super) fn method_of(&self, class: ClassId, name: &str) -> Option<FunctionId> {
        let mut at = Some(class);
        for _ in 0..16 {
            let class = self.classes.get(at?)?;
            if let Some(id) = class.methods.get(name) {
                return Some(*id);
            }
            at = class.bases.iter().find_map(|base| if let Value::Class(id) = base { Some(*id) } else { None });
        }
        None
    }
}
