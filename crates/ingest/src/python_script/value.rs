//! What the reader knows of a value while it follows the flow: devices, ranks, loaders, tensors; and the scopes that
//! hold values by name.
//!
//! Values are guesses of a reader, never results of running anything. Knows no syntax.

use rankscope_model::{DeviceClass, GuardKind};
use std::collections::HashMap;
use std::rc::Rc;

/// Position of a fact in the store; see [`super::facts`].
pub(super) type FactId = usize;
/// Position in the table of functions.
pub(super) type FunctionId = usize;
/// Position in the table of classes.
pub(super) type ClassId = usize;

/// What is known of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    /// Nothing.
    Unknown,
    /// `None`.
    Nothing,
    /// A number or another object on the host: what `.item()` and `len()` give.
    Host,
    Bool(bool),
    Int(i64),
    Text(&'a str),
    /// Something imported, by its dotted name: a module, a function, a class.
    Path(Rc<str>),
    /// An object made by calling something imported.
    Made(Rc<str>),
    /// The number of this process.
    Rank(RankKind),
    /// A device, or a text that names one.
    Device(DeviceClass),
    /// A truth value that tells ranks apart: what it selects when true, and whether its opposite selects all others.
    Selects(Selects, bool),
    Function(FunctionId),
    Class(ClassId),
    Instance(ClassId),
    /// A method with its object.
    Method(ClassId, FunctionId),
    /// `functools.partial` of a function, with the positional arguments given so far.
    Partial(Rc<Value<'a>>, Rc<[Value<'a>]>),
    Model,
    Optimizer,
    Tensor(Tensor),
    /// `X.parameters()`: of which model, as written.
    Parameters(Rc<[String]>),
    /// A distributed sampler.
    Sampler(FactId),
    /// Another sampler or batch sampler, perhaps around a distributed one.
    OtherSampler(Option<FactId>),
    Loader(FactId),
    /// What `torch.load` gave.
    Checkpoint(FactId),
    /// What `state_dict()` gave: of what, and whether it was moved to the host.
    State {
        of_optimizer: bool,
        on_cpu: bool,
    },
    Tuple(Rc<[Value<'a>]>),
}

/// What a truth value selects when it is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selects {
    RankZero,
    LocalRankZero,
    NotRankZero,
    OtherRank,
    SingleProcess,
    Distributed,
    MainModule,
}

impl Selects {
    pub(super) fn guard(self) -> GuardKind {
        match self {
            Self::RankZero => GuardKind::RankZero,
            Self::LocalRankZero => GuardKind::LocalRankZero,
            Self::NotRankZero => GuardKind::NotRankZero,
            Self::OtherRank => GuardKind::OtherRank,
            Self::SingleProcess => GuardKind::SingleProcess,
            Self::MainModule => GuardKind::MainModule,
            Self::Distributed => GuardKind::Condition,
        }
    }

    /// What the opposite selects; `None` when nothing is known of it.
    pub(super) fn opposite(self) -> Option<Self> {
        Some(match self {
            Self::RankZero => Self::NotRankZero,
            Self::NotRankZero => Self::RankZero,
            Self::LocalRankZero | Self::OtherRank => Self::OtherRank,
            Self::SingleProcess => Self::Distributed,
            Self::Distributed => Self::SingleProcess,
            Self::MainModule => return None,
        })
    }
}

/// Which number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RankKind {
    Global,
    Local,
}

impl RankKind {
    pub(super) fn device(self) -> DeviceClass {
        match self {
            Self::Global => DeviceClass::Rank,
            Self::Local => DeviceClass::LocalRank,
        }
    }
}

/// What a tensor keeps alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tensor {
    /// The graph that made it.
    pub(super) graph: bool,
    /// It is on a GPU.
    pub(super) gpu: bool,
}

impl Tensor {
    /// Both together: what an expression of both keeps.
    pub(super) fn and(self, other: Self) -> Self {
        Self { graph: self.graph || other.graph, gpu: self.gpu || other.gpu }
    }
}

/// Values that one tuple or partial call may be made of, those inside of it counted each time they are used. What a
/// value is made of is shared, so a script of sixty lines can spell a tuple of 2^60; and every question about a tuple
/// walks all of it.
const MAX_PARTS: usize = 256;

impl Value<'_> {
    /// A tuple or list; [`Value::Unknown`] if it is too large or too deep to be followed.
    pub(super) fn tuple(parts: Vec<Self>) -> Self {
        let mut room = MAX_PARTS;
        if parts.iter().all(|part| part.fits(&mut room)) { Self::Tuple(parts.into()) } else { Self::Unknown }
    }

    /// `functools.partial` of `target`; [`Value::Unknown`] if it is too large or too deep to be followed.
    pub(super) fn partial(target: Self, bound: Vec<Self>) -> Self {
        let mut room = MAX_PARTS;
        let fits = target.fits(&mut room) && bound.iter().all(|part| part.fits(&mut room));
        if fits { Self::Partial(Rc::new(target), bound.into()) } else { Self::Unknown }
    }

    /// Whether there is room for this value and all that it is made of. Takes no more steps than there is room.
    fn fits(&self, room: &mut usize) -> bool {
        let Some(left) = room.checked_sub(1) else { return false };
        *room = left;
        match self {
            Self::Tuple(parts) => parts.iter().all(|part| part.fits(room)),
            Self::Partial(target, bound) => target.fits(room) && bound.iter().all(|part| part.fits(room)),
            _ => true,
        }
    }

    /// The tensor in it, if there is one; a tuple's parts together.
    pub(super) fn tensor(&self) -> Option<Tensor> {
        match self {
            Self::Tensor(tensor) => Some(*tensor),
            Self::Tuple(parts) => parts.iter().filter_map(Self::tensor).reduce(Tensor::and),
            _ => None,
        }
    }

    /// What a name holds after two branches. Where they differ, the one that says more; between two devices the one
    /// that follows the rank, because the other is usually the branch for a single process.
    pub(super) fn join(self, other: Self) -> Self {
        if self == other || other.weight() <= self.weight() { self } else { other }
    }

    fn weight(&self) -> u8 {
        match self {
            Self::Unknown | Self::Nothing | Self::Host => 0,
            Self::Bool(_) | Self::Int(_) | Self::Text(_) | Self::Device(DeviceClass::Cpu | DeviceClass::Unknown) => 1,
            Self::Path(_) | Self::Made(_) | Self::Tuple(_) | Self::Selects(..) | Self::OtherSampler(None) => 2,
            Self::Device(class) if !class.follows_rank() => 2,
            Self::Tensor(tensor) => u8::from(tensor.graph).saturating_add(2),
            _ => 4,
        }
    }
}

/// A scope's number: 0 is the file's top level; calls and classes get their own.
pub(super) type ScopeId = u32;

/// A name in a scope. Names live as long as the syntax tree.
pub(super) type Key<'a> = (ScopeId, &'a str);

/// Values by name, with branches that can be taken back.
#[derive(Default)]
pub(super) struct Scopes<'a> {
    values: HashMap<Key<'a>, Value<'a>>,
    /// For each open branch, the values that it covered.
    branches: Vec<Vec<(Key<'a>, Option<Value<'a>>)>>,
}

/// What a branch set, in order of the first setting.
#[derive(Default)]
pub(super) struct Changes<'a>(Vec<(Key<'a>, Value<'a>)>);

impl Changes<'_> {
    /// Names that were set.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'a> Scopes<'a> {
    pub(super) fn get(&self, scope: ScopeId, name: &'a str) -> Option<&Value<'a>> {
        self.values.get(&(scope, name))
    }

    pub(super) fn set(&mut self, scope: ScopeId, name: &'a str, value: Value<'a>) {
        let before = self.values.insert((scope, name), value);
        if let Some(branch) = self.branches.last_mut() {
            branch.push(((scope, name), before));
        }
    }

    /// Names that hold a value, in all scopes.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The shortest name of `scope` that holds `value`; the first in the alphabet among equals.
    pub(super) fn name_of(&self, scope: ScopeId, value: &Value<'a>) -> Option<&'a str> {
        let holds = self.values.iter().filter(|((at, _), held)| *at == scope && *held == value);
        holds.map(|((_, name), _)| *name).min_by_key(|name| (name.len(), *name))
    }

    /// Begins a branch: from here on, what is set can be taken back.
    pub(super) fn open_branch(&mut self) {
        self.branches.push(Vec::new());
    }

    /// Ends the innermost branch, takes back what it set, and hands that over.
    pub(super) fn close_branch(&mut self) -> Changes<'a> {
        let Some(branch) = self.branches.pop() else { return Changes::default() };
        let mut changes: Vec<(Key<'a>, Value<'a>)> = Vec::new();
        for (key, before) in branch.into_iter().rev() {
            let after = match before {
                Some(before) => self.values.insert(key, before),
                None => self.values.remove(&key),
            };
            // Undone from the last to the first, so only the first value taken out for a key was its final one.
            if let Some(after) = after {
                changes.push((key, after));
            }
        }
        let mut seen = std::collections::HashSet::new();
        changes.retain(|(key, _)| seen.insert(*key));
        changes.reverse();
        Changes(changes)
    }

    /// Applies what one branch set: the only one that goes on.
    pub(super) fn apply(&mut self, changes: Changes<'a>) {
        for ((scope, name), value) in changes.0 {
            self.set(scope, name, value);
        }
    }

    /// Applies what several branches set, where any of them may have been taken.
    pub(super) fn merge(&mut self, branches: Vec<Changes<'a>>) {
        let mut merged: Vec<(Key<'a>, Value<'a>)> = Vec::new();
        let mut at: HashMap<Key<'a>, usize> = HashMap::new();
        for Changes(changes) in branches {
            for (key, value) in changes {
                if let Some((_, held)) = at.get(&key).and_then(|index| merged.get_mut(*index)) {
                    *held = std::mem::replace(held, Value::Unknown).join(value);
                } else {
                    at.insert(key, merged.len());
                    merged.push((key, value));
                }
            }
        }
        for ((scope, name), value) in merged {
            let before = self.values.get(&(scope, name)).cloned().unwrap_or(Value::Unknown);
            self.set(scope, name, value.join(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Value<'static> = Value::Device(DeviceClass::LocalRank);
    const CURRENT: Value<'static> = Value::Device(DeviceClass::Current);

    #[test]
    fn branches_are_taken_back_and_joined() {
        let mut scopes = Scopes::default();
        scopes.set(0, "device", Value::Nothing);
        scopes.open_branch();
        scopes.set(0, "device", CURRENT);
        scopes.set(0, "device", LOCAL);
        scopes.set(0, "rank", Value::Rank(RankKind::Local));
        let first = scopes.close_branch();
        assert_eq!(scopes.get(0, "device"), Some(&Value::Nothing));
        assert_eq!(scopes.get(0, "rank"), None);
        scopes.open_branch();
        scopes.set(0, "device", CURRENT);
        let second = scopes.close_branch();
        scopes.merge(vec![first, second]);
        assert_eq!(scopes.get(0, "device"), Some(&LOCAL));
        assert_eq!(scopes.name_of(0, &Value::Rank(RankKind::Local)), Some("rank"));
    }

    #[test]
    fn a_tuple_of_itself_stops_growing() {
        let (mut wide, mut deep) = (Value::Int(1), Value::Int(1));
        let mut known = 0;
        for _ in 0..60 {
            wide = Value::tuple(vec![wide.clone(), wide]);
            known += usize::from(wide != Value::Unknown);
        }
        // 2^7 leaves and what holds them, then it begins anew from nothing known.
        assert!(known > 6 && wide.fits(&mut MAX_PARTS.clone()), "{known}");
        for _ in 0..40_000 {
            deep = Value::tuple(vec![deep]);
            assert!(deep.fits(&mut (MAX_PARTS + 1)));
        }
        let partial = Value::partial(wide.clone(), vec![wide; MAX_PARTS]);
        assert_eq!(partial, Value::Unknown);
    }

    #[test]
    fn nested_branches_fold_into_the_outer_one() {
        let mut scopes = Scopes::default();
        scopes.open_branch();
        scopes.open_branch();
        scopes.set(0, "x", Value::Int(1));
        let inner = scopes.close_branch();
        scopes.apply(inner);
        let outer = scopes.close_branch();
        assert_eq!(scopes.get(0, "x"), None);
        scopes.apply(outer);
        assert_eq!(scopes.get(0, "x"), Some(&Value::Int(1)));
    }
}
