//! Statements in order: branches with what they say of ranks, loops with what they run over, blocks.

use super::names;
use super::scan::{self, BodyScan};
use super::value::{Changes, FactId, Selects, Value};
use super::walk::{Loop, MAX_LEVELS, Walker};
use rankscope_model::{Fact, Guard, GuardKind, LoaderRole, LoopKind, SamplerUse};
use ruff_python_ast::{self as ast, Expr, Stmt};
use ruff_text_size::{Ranged, TextSize};
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

/// Targets that are remembered of all loops that are open. A loop inside of fifty others sets what all of them set.
const MAX_ASSIGNED: usize = 200_000;

impl<'a> Walker<'a> {
    /// Walks statements; `true` when the flow does not go on behind them.
    pub(super) fn body(&mut self, body: &'a [Stmt]) -> bool {
        let guards = self.guards.len();
        // Rank branches that begin with `if rank != 0: return` and reach to the end of this body.
        let mut open: Vec<TextSize> = Vec::new();
        let mut ends = false;
        for stmt in body {
            if self.levels >= MAX_LEVELS || !self.spend(1) {
                self.is_cut = true;
                break;
            }
            self.levels = self.levels.saturating_add(1);
            let next = self.stmt(stmt);
            self.levels = self.levels.saturating_sub(1);
            match next {
                Next::Goes => {}
                Next::Ends => {
                    ends = true;
                    break;
                }
                Next::GoesUnder(guard) => {
                    if guard.kind.is_rank_only() {
                        self.collectors.push(BTreeSet::new());
                        open.push(stmt.start());
                    }
                    self.guards.push(guard);
                }
            }
        }
        for at in open.into_iter().rev() {
            let work = self.collectors.pop().unwrap_or_default();
            self.fact(at, Fact::RankBranch { work: work.into_iter().collect() });
        }
        self.guards.truncate(guards);
        ends
    }

    fn stmt(&mut self, stmt: &'a Stmt) -> Next {
        match stmt {
            Stmt::FunctionDef(def) => self.define(def, None),
            Stmt::ClassDef(def) => self.define_class(def),
            Stmt::Return(ret) => {
                let value = ret.value.as_deref().map_or(Value::Nothing, |value| self.eval(value));
                if let Some(frame) = self.frames.last_mut() {
                    let before = frame.returns.take();
                    frame.returns = Some(match before {
                        Some(before) => before.join(value),
                        None => value,
                    });
                }
                return Next::Ends;
            }
            Stmt::Assign(assign) => {
                let value = self.eval(&assign.value);
                for target in &assign.targets {
                    if !self.spend(set_again(assign)) {
                        break;
                    }
                    self.grows(target, &assign.value, &value, stmt.start());
                    let value = self.setting(target, &assign.value, value.clone());
                    self.assign(target, value);
                }
            }
            Stmt::AnnAssign(assign) => {
                if let Some(expr) = assign.value.as_deref() {
                    let value = self.eval(expr);
                    let value = self.setting(&assign.target, expr, value);
                    self.assign(&assign.target, value);
                }
            }
            Stmt::AugAssign(assign) => {
                let value = self.eval(&assign.value);
                self.grows_by(assign, &value);
            }
            Stmt::Expr(expr) => {
                let value = self.eval(&expr.value);
                self.seen.runs_on_import |= self.frames.len() == 1 && scan::starts_program(&expr.value);
                if scan::never_returns(&expr.value) {
                    return Next::Ends;
                }
                drop(value);
            }
            Stmt::If(branch) => return self.if_stmt(branch),
            Stmt::For(each) => self.for_stmt(each),
            Stmt::While(each) => self.while_stmt(each),
            Stmt::With(with) => return self.with_stmt(with),
            Stmt::Try(each) => {
                let ends = self.body(&each.body);
                let mut others = Vec::new();
                for handler in &each.handlers {
                    let ast::ExceptHandler::ExceptHandler(handler) = handler;
                    self.scopes.open_branch();
                    let ends = self.body(&handler.body);
                    let changes = self.close_branch();
                    if !ends {
                        others.push(changes);
                    }
                }
                self.scopes.merge(others);
                let ends = if ends { ends } else { self.body(&each.orelse) };
                let finally_ends = self.body(&each.finalbody);
                if finally_ends || (ends && each.handlers.is_empty()) {
                    return Next::Ends;
                }
            }
            Stmt::Match(each) => {
                self.eval(&each.subject);
                let mut branches = Vec::new();
                for case in &each.cases {
                    self.scopes.open_branch();
                    self.guards.push(self.condition(&each.subject, GuardKind::Condition));
                    let ends = self.body(&case.body);
                    self.guards.pop();
                    let changes = self.close_branch();
                    if !ends {
                        branches.push(changes);
                    }
                }
                self.scopes.merge(branches);
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let path = alias.name.as_str();
                    match &alias.asname {
                        Some(name) => self.bind_name(name.as_str(), Value::Path(path.into())),
                        None => self.bind_name(names::root(path), Value::Path(names::root(path).into())),
                    }
                    self.imported(path);
                }
            }
            Stmt::ImportFrom(import) => {
                let dots = ".".repeat(import.level.min(8) as usize);
                let module = format!("{dots}{}", import.module.as_ref().map_or("", |module| module.as_str()));
                for alias in &import.names {
                    if alias.name.as_str() == "*" {
                        self.star_modules.push(module.as_str().into());
                        continue;
                    }
                    let separator = if module.ends_with('.') || module.is_empty() { "" } else { "." };
                    let path: Rc<str> = format!("{module}{separator}{}", alias.name.as_str()).into();
                    let name = alias.asname.as_ref().unwrap_or(&alias.name);
                    self.imported(&path);
                    self.bind_name(name.as_str(), Value::Path(path));
                }
            }
            Stmt::Global(global) => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.globals.extend(global.names.iter().map(ast::Identifier::as_str));
                }
            }
            Stmt::Raise(raise) => {
                if let Some(expr) = raise.exc.as_deref() {
                    self.eval(expr);
                }
                return Next::Ends;
            }
            Stmt::Assert(assert) => {
                self.eval(&assert.test);
            }
            Stmt::Break(_) | Stmt::Continue(_) => return Next::Ends,
            Stmt::Delete(_) | Stmt::TypeAlias(_) | Stmt::Nonlocal(_) | Stmt::Pass(_) | Stmt::IpyEscapeCommand(_) => {}
        }
        Next::Goes
    }

    pub(super) fn assign(&mut self, target: &'a Expr, value: Value<'a>) {
        match target {
            Expr::Name(name) => self.bind_name(name.id.as_str(), value),
            Expr::Attribute(attribute) => match self.eval(&attribute.value) {
                Value::Instance(class) | Value::Class(class) => {
                    if let Some(class) = self.classes.get(class) {
                        self.scopes.set(class.scope, attribute.attr.as_str(), value);
                    }
                }
                _ => {}
            },
            Expr::Tuple(ast::ExprTuple { elts, .. }) | Expr::List(ast::ExprList { elts, .. }) => {
                for (index, target) in elts.iter().enumerate() {
                    let part = match &value {
                        Value::Tuple(parts) => parts.get(index).cloned().unwrap_or(Value::Unknown),
                        Value::Tensor(tensor) => Value::Tensor(*tensor),
                        _ => Value::Unknown,
                    };
                    self.assign(target, part);
                }
            }
            Expr::Starred(starred) => self.assign(&starred.value, Value::Unknown),
            Expr::Subscript(subscript) => {
                self.eval(&subscript.value);
            }
            _ => {}
        }
    }

    /// Takes back what the innermost branch set, and counts it: it is looked at again where the branch is merged.
    fn close_branch(&mut self) -> Changes<'a> {
        let changes = self.scopes.close_branch();
        self.spend(changes.len());
        changes
    }

    /// A condition as a guard of `kind`.
    pub(super) fn condition(&self, test: &'a Expr, kind: GuardKind) -> Guard {
        Guard { kind, line: self.source.line(test.start()), text: self.text(test) }
    }

    fn if_stmt(&mut self, branch: &'a ast::StmtIf) -> Next {
        let mut taken: Vec<Changes<'a>> = Vec::new();
        // What is known to hold because the branches before were not taken.
        let mut left: Option<Selects> = None;
        let mut ends_all = true;
        let mut has_else = false;
        let mut goes_under = None;
        let first = std::iter::once((Some(&*branch.test), &branch.body, branch.start()));
        let others = branch.elif_else_clauses.iter().map(|clause| (clause.test.as_ref(), &clause.body, clause.start()));
        for (index, (test, body, at)) in first.chain(others).enumerate() {
            let mut next_left = None;
            let (selects, anchor) = if let Some(test) = test {
                let value = self.eval(test);
                self.rank_dependent_init(branch, &value);
                match value {
                    Value::Selects(selects, is_exact) => {
                        next_left = if is_exact { selects.opposite() } else { None };
                        (Some(selects), test)
                    }
                    _ => (None, test),
                }
            } else {
                has_else = true;
                (left, &*branch.test)
            };
            if test.is_some() && self.loops.iter().any(|l| l.kind == LoopKind::TrainBatch) {
                self.steps_every_nth(anchor, body);
            }
            let kind = selects.or(left).map_or(GuardKind::Condition, Selects::guard);
            if kind == GuardKind::MainModule {
                self.seen.main_guard = true;
            }
            let mut guard = self.condition(anchor, kind);
            if test.is_none() || (index > 0 && selects.is_none() && left.is_some()) {
                guard.text = format!("else of: {}", guard.text);
            }
            self.scopes.open_branch();
            self.guards.push(guard);
            if kind.is_rank_only() {
                self.collectors.push(BTreeSet::new());
            }
            let ends = self.body(body);
            self.guards.pop();
            if kind.is_rank_only() {
                let work = self.collectors.pop().unwrap_or_default();
                // `if rank != 0: return` does nothing itself; what follows it is the branch.
                if !(ends && work.is_empty()) {
                    self.fact(at, Fact::RankBranch { work: work.into_iter().collect() });
                }
            }
            let changes = self.close_branch();
            if ends {
                // `if rank != 0: return`: from here on only the others go on.
                if index == 0 && branch.elif_else_clauses.is_empty() {
                    goes_under = next_left.filter(|left| left.guard() != GuardKind::Condition).map(|left| {
                        let mut guard = self.condition(anchor, left.guard());
                        guard.text = format!("after: {}", guard.text);
                        guard
                    });
                }
            } else {
                ends_all = false;
                taken.push(changes);
            }
            left = next_left;
        }
        if has_else && taken.len() == 1 {
            // The other sides return or raise.
            if let Some(changes) = taken.pop() {
                self.scopes.apply(changes);
            }
        } else {
            self.scopes.merge(taken);
        }
        match goes_under {
            Some(guard) => Next::GoesUnder(guard),
            None if has_else && ends_all => Next::Ends,
            None => Next::Goes,
        }
    }

    /// `if (i + 1) % n == 0: optimizer.step()`.
    fn steps_every_nth(&mut self, test: &'a Expr, body: &'a [Stmt]) {
        if scan::picks_every_nth(test) && self.scan(body).steps {
            let what = self.text(test);
            self.fact(test.start(), Fact::GradAccumulation { what });
        }
    }

    /// One rank makes the weights, the others an empty model of the same name.
    fn rank_dependent_init(&mut self, branch: &'a ast::StmtIf, test: &Value<'a>) {
        let Value::Selects(selects, _) = test else { return };
        if !selects.guard().is_rank_only() || !self.spend(branch.range.len().to_usize()) {
            return;
        }
        let is_else = |clause: &&ast::ElifElseClause| clause.test.is_none();
        let Some(other) = branch.elif_else_clauses.iter().find(is_else) else { return };
        if let Some(what) = scan::makes_weights(&branch.body, &other.body) {
            self.fact(branch.start(), Fact::RankDependentInit { what: self.text(what) });
        }
    }

    fn for_stmt(&mut self, each: &'a ast::StmtFor) {
        let iterated = self.eval(&each.iter);
        let scan = self.scan(&each.body);
        let kind = self.kind_of_for(each, &iterated, &scan);
        if kind == LoopKind::Epoch {
            let variable = self.text(&*each.target);
            self.fact(each.start(), Fact::EpochLoop { variable });
        }
        if kind == LoopKind::EvalBatch {
            let sharded = match loader_in(&iterated) {
                Some(id) => self.is_sharded(id),
                None => None,
            };
            let what = format!("for {} in {}", self.text(&*each.target), self.text(&*each.iter));
            let no_grad = self.no_grad > 0 || (self.spend(scan::length(&each.body)) && scan::has_no_grad(&each.body));
            self.fact(each.start(), Fact::EvalLoop { what, no_grad, sharded });
        }
        self.keeps_weights(&each.iter, &each.body);
        let item = match &iterated {
            Value::Tuple(parts) => parts.iter().cloned().reduce(Value::join).unwrap_or(Value::Unknown),
            _ => Value::Unknown,
        };
        let item = if matches!(item, Value::Loader(_)) { Value::Unknown } else { item };
        self.assign(&each.target, item);
        self.loop_body(kind, scan, &each.body);
        self.body(&each.orelse);
    }

    fn while_stmt(&mut self, each: &'a ast::StmtWhile) {
        self.eval(&each.test);
        let scan = self.scan(&each.body);
        let kind = if scan.has_inner_training {
            LoopKind::Epoch
        } else if scan.trains {
            LoopKind::TrainBatch
        } else {
            LoopKind::Other
        };
        if kind == LoopKind::Epoch {
            self.fact(each.start(), Fact::EpochLoop { variable: String::new() });
        }
        self.loop_body(kind, scan, &each.body);
        self.body(&each.orelse);
    }

    fn loop_body(&mut self, kind: LoopKind, scan: BodyScan, body: &'a [Stmt]) {
        if self.frames.len() == 1 && scan.trains {
            self.seen.runs_on_import = true;
        }
        let frame = self.frames.len().saturating_sub(1);
        let held: usize = self.loops.iter().map(|each| each.assigned.len()).sum();
        let assigned = if held.saturating_add(scan.assigned.len()) > MAX_ASSIGNED {
            self.is_cut = true;
            HashSet::new()
        } else {
            scan.assigned
        };
        self.loops.push(Loop { kind, frame, assigned });
        self.scopes.open_branch();
        self.body(body);
        let changes = self.close_branch();
        self.scopes.merge(vec![changes]);
        self.loops.pop();
    }

    fn kind_of_for(&self, each: &'a ast::StmtFor, iterated: &Value<'a>, scan: &BodyScan) -> LoopKind {
        let target = self.text(&*each.target);
        let iter = self.text(&*each.iter);
        let loader = loader_in(iterated);
        let is_batches = loader.is_some() || scan::mentions(&each.iter, names::is_loader) || names_batch(&target);
        if is_batches {
            let role = loader.and_then(|id| match &self.facts.get(id)?.what {
                Fact::DataLoader { role, .. } => Some(*role),
                _ => None,
            });
            let named_eval = scan::mentions(&each.iter, names::is_eval);
            let named_train = scan::mentions(&each.iter, names::is_train);
            let function = self.function_name();
            return if scan.trains || (named_train && !named_eval) {
                LoopKind::TrainBatch
            } else if named_eval || role == Some(LoaderRole::Eval) || self.no_grad > 0 || names::is_eval(function) {
                LoopKind::EvalBatch
            } else if role == Some(LoaderRole::Train) || names::is_train(function) {
                LoopKind::TrainBatch
            } else if self.loops.iter().any(|l| l.kind == LoopKind::EvalBatch) {
                LoopKind::EvalBatch
            } else {
                LoopKind::Other
            };
        }
        if names::is_epoch(&target) || (names::is_epoch(&iter) && !scan.trains) || scan.has_inner_training {
            LoopKind::Epoch
        } else if scan.trains {
            LoopKind::TrainBatch
        } else {
            LoopKind::Other
        }
    }

    /// Whether a loader deals each rank its own part; `None` where that cannot be told.
    fn is_sharded(&self, id: FactId) -> Option<bool> {
        let maker = self.loader_makers.get(&id).and_then(|id| self.functions.get(*id));
        if maker.is_some_and(|function| function.calls > 1) {
            return None;
        }
        match &self.facts.get(id)?.what {
            Fact::DataLoader { sampler, .. } => match sampler {
                SamplerUse::Distributed | SamplerUse::Framework => Some(true),
                SamplerUse::Absent | SamplerUse::NotDistributed => Some(false),
                SamplerUse::Other => None,
            },
            _ => None,
        }
    }

    fn with_stmt(&mut self, with: &'a ast::StmtWith) -> Next {
        let mut no_grad = 0u32;
        let mut guards = 0usize;
        for item in &with.items {
            let value = self.eval(&item.context_expr);
            let path = match &value {
                Value::Made(path) | Value::Path(path) => Rc::clone(path),
                _ => "".into(),
            };
            match names::tail(&path) {
                "no_grad" | "inference_mode" => no_grad = no_grad.saturating_add(1),
                _ => {}
            }
            self.with_device(&item.context_expr, &path);
            if let Value::Selects(selects, _) = value {
                self.guards.push(self.condition(&item.context_expr, selects.guard()));
                guards = guards.saturating_add(1);
            }
            if let Some(target) = item.optional_vars.as_deref() {
                self.assign(target, value);
            }
        }
        self.no_grad = self.no_grad.saturating_add(no_grad);
        let ends = self.body(&with.body);
        self.no_grad = self.no_grad.saturating_sub(no_grad);
        for _ in 0..guards {
            self.guards.pop();
        }
        if ends { Next::Ends } else { Next::Goes }
    }
}

/// Steps to set one target: of several, each looks at the whole value.
pub(super) fn set_again(assign: &ast::StmtAssign) -> usize {
    if assign.targets.len() > 1 { assign.value.range().len().to_usize() } else { 1 }
}

/// Where the flow goes behind a statement.
enum Next {
    Goes,
    Ends,
    /// On, but only where this holds.
    GoesUnder(Guard),
}

fn names_batch(target: &str) -> bool {
    target.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| {
        let word = word.to_ascii_lowercase();
        word.split('_').any(|part| matches!(part, "batch" | "minibatch"))
    })
}

/// The loader that an iteration runs over, through `enumerate`, `zip` and the like (their values are tuples or
/// the loader itself).
fn loader_in(value: &Value) -> Option<FactId> {
    match value {
        Value::Loader(id) => Some(*id),
        Value::Tuple(parts) => parts.iter().find_map(loader_in),
        _ => None,
    }
}
