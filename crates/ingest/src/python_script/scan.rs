//! Questions about a piece of syntax alone, answered without following anything: does this loop train, what does it
//! set anew, which names are used as models.

use super::names;
use super::source::Source;
use rankscope_model::CopyPlace;
use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{self as ast, Expr, Operator, Stmt};
use ruff_text_size::Ranged;
use std::collections::HashSet;

/// What the body of a loop does, inner loops and branches included, functions not.
pub(super) struct BodyScan {
    /// A backward pass or an optimizer step.
    pub(super) trains: bool,
    /// An optimizer step.
    pub(super) steps: bool,
    /// The same within an inner loop.
    pub(super) has_inner_training: bool,
    /// Targets that are set anew (and not from themselves), or emptied, as written.
    pub(super) assigned: HashSet<String>,
}

impl BodyScan {
    /// Of a body that was not looked at.
    pub(super) fn nothing() -> Self {
        Self { trains: false, steps: false, has_inner_training: false, assigned: HashSet::new() }
    }

    pub(super) fn of(body: &[Stmt], source: &Source) -> Self {
        let mut visitor = BodyVisitor { source, scan: Self::nothing(), loops: 0 };
        for stmt in body {
            visitor.visit_stmt(stmt);
        }
        visitor.scan
    }
}

struct BodyVisitor<'s> {
    source: &'s Source,
    scan: BodyScan,
    loops: u32,
}

impl<'a> Visitor<'a> for BodyVisitor<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => return,
            Stmt::Assign(assign) => {
                if let [target] = &*assign.targets {
                    if !is_made_of(&assign.value, target, self.source) {
                        self.scan.assigned.insert(self.source.slice(target.range()));
                    }
                } else {
                    // `a = b = ... = value`: the value is looked through once, not for each of them.
                    let used = names_in(&assign.value, self.source);
                    let texts = assign.targets.iter().map(|target| self.source.slice(target.range()));
                    self.scan.assigned.extend(texts.filter(|text| !used.contains(text)));
                }
            }
            Stmt::Delete(delete) => {
                for target in &delete.targets {
                    self.scan.assigned.insert(self.source.slice(target.range()));
                }
            }
            Stmt::For(_) | Stmt::While(_) => {
                self.loops = self.loops.saturating_add(1);
                walk_stmt(self, stmt);
                self.loops = self.loops.saturating_sub(1);
                return;
            }
            _ => {}
        }
        walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(call) = expr
            && let Expr::Attribute(attribute) = &*call.func
        {
            let trains = match attribute.attr.as_str() {
                "backward" | "train_batch" | "train_step" | "training_step" | "minimize" => true,
                "step" => {
                    let steps = last_name(&attribute.value).is_some_and(is_stepper);
                    self.scan.steps |= steps;
                    steps
                }
                "clear" => {
                    self.scan.assigned.insert(self.source.slice(attribute.value.range()));
                    false
                }
                _ => false,
            };
            self.scan.trains |= trains;
            self.scan.has_inner_training |= trains && self.loops > 0;
        }
        walk_expr(self, expr);
    }
}

/// Bytes of source that a body has.
pub(super) fn length(body: &[Stmt]) -> usize {
    match (body.first(), body.last()) {
        (Some(first), Some(last)) => (last.end().to_usize()).saturating_sub(first.start().to_usize()),
        _ => 0,
    }
}

/// A block without gradients stands somewhere in the body.
pub(super) fn has_no_grad(body: &[Stmt]) -> bool {
    struct Blocks(bool);
    impl<'a> Visitor<'a> for Blocks {
        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            if let Stmt::With(with) = stmt {
                let names = with.items.iter().map(|item| decorator_name(&item.context_expr));
                self.0 |= names.into_iter().any(|name| matches!(name, "no_grad" | "inference_mode"));
            }
            if !self.0 {
                walk_stmt(self, stmt);
            }
        }
    }
    let mut blocks = Blocks(false);
    for stmt in body {
        blocks.visit_stmt(stmt);
    }
    blocks.0
}

/// A name for an optimizer or the scaler that steps it.
fn is_stepper(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("opt") || name.contains("scaler")
}

/// Whether `value` uses the value of `target` itself, as in `x = torch.cat((x, y))`.
pub(super) fn is_made_of(value: &Expr, target: &Expr, source: &Source) -> bool {
    struct Uses<'s> {
        source: &'s Source,
        text: String,
        found: bool,
    }
    impl<'a> Visitor<'a> for Uses<'_> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if matches!(expr, Expr::Name(_) | Expr::Attribute(_) | Expr::Subscript(_))
                // Text is only ever shortened, so what is shorter as written is another one.
                && expr.range().len().to_usize().saturating_add('…'.len_utf8()) >= self.text.len()
                && self.source.slice(expr.range()) == self.text
            {
                self.found = true;
            }
            if !self.found {
                walk_expr(self, expr);
            }
        }
    }
    if !matches!(target, Expr::Name(_) | Expr::Attribute(_) | Expr::Subscript(_)) {
        return false;
    }
    let mut uses = Uses { source, text: source.slice(target.range()), found: false };
    uses.visit_expr(value);
    uses.found
}

/// All names, attributes and items in an expression, as written.
fn names_in(value: &Expr, source: &Source) -> HashSet<String> {
    struct Names<'s> {
        source: &'s Source,
        found: HashSet<String>,
    }
    impl<'a> Visitor<'a> for Names<'_> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if matches!(expr, Expr::Name(_) | Expr::Attribute(_) | Expr::Subscript(_)) {
                self.found.insert(self.source.slice(expr.range()));
            }
            walk_expr(self, expr);
        }
    }
    let mut names = Names { source, found: HashSet::new() };
    names.visit_expr(value);
    names.found
}

/// Attributes that some method other than `__init__` sets anew or empties, as written.
pub(super) fn emptied_attributes(body: &[Stmt], source: &Source) -> HashSet<String> {
    let mut emptied = HashSet::new();
    for stmt in body {
        if let Stmt::FunctionDef(def) = stmt
            && def.name.as_str() != "__init__"
        {
            emptied.extend(BodyScan::of(&def.body, source).assigned.into_iter().filter(|text| text.contains('.')));
        }
    }
    emptied
}

/// Names (last part) that are used as models: their parameters are taken, they are wrapped, switched to training.
pub(super) fn model_names(body: &[Stmt]) -> HashSet<&str> {
    struct Uses<'a>(HashSet<&'a str>);
    impl<'a> Visitor<'a> for Uses<'a> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Call(call) = expr {
                match &*call.func {
                    Expr::Attribute(attribute) => {
                        let is_model = match attribute.attr.as_str() {
                            "parameters" | "named_parameters" | "named_modules" => true,
                            "train" | "eval" | "requires_grad_" | "half" | "bfloat16" => call.arguments.args.len() <= 1,
                            _ => false,
                        };
                        if is_model && let Some(name) = last_name(&attribute.value) {
                            let lower = name.to_ascii_lowercase();
                            if !(lower.contains("trainer") || lower.contains("loss") || name == "self") {
                                self.0.insert(name);
                            }
                        }
                        self.wrapped(attribute.attr.as_str(), call);
                    }
                    Expr::Name(name) => self.wrapped(name.id.as_str(), call),
                    _ => {}
                }
            }
            walk_expr(self, expr);
        }
    }
    impl<'a> Uses<'a> {
        fn wrapped(&mut self, function: &str, call: &'a ast::ExprCall) {
            let is_wrapper = function.ends_with("DataParallel") || matches!(function, "DDP" | "FSDP" | "fully_shard");
            if is_wrapper && let Some(name) = call.arguments.args.first().and_then(last_name) {
                self.0.insert(name);
            }
        }
    }
    let mut uses = Uses(HashSet::new());
    for stmt in body {
        uses.visit_stmt(stmt);
    }
    // Tensors are cast too; what is only cast is no model, but names that are models by custom are known anyway.
    uses.0.retain(|name| !matches!(*name, "x" | "y" | "input" | "inputs" | "images" | "labels" | "target" | "batch"));
    uses.0
}

/// Whose parameters an expression takes: `model` of `model.parameters()`, `filter(..., net.parameters())` or
/// `param_groups(model, lr)`.
pub(super) fn parameter_owners(expr: &Expr, source: &Source) -> Vec<String> {
    struct Owners<'s> {
        source: &'s Source,
        found: Vec<String>,
    }
    impl<'a> Visitor<'a> for Owners<'_> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Call(call) = expr {
                if let Expr::Attribute(attribute) = &*call.func
                    && matches!(attribute.attr.as_str(), "parameters" | "named_parameters" | "trainable_parameters")
                {
                    self.found.push(self.source.slice(attribute.value.range()));
                    return;
                }
                let models = call.arguments.args.iter().filter(|arg| last_name(arg).is_some_and(names::is_model));
                self.found.extend(models.map(|arg| self.source.slice(arg.range())));
            }
            walk_expr(self, expr);
        }
    }
    let mut owners = Owners { source, found: Vec::new() };
    owners.visit_expr(expr);
    owners.found
}

/// The last part of a name: `model` of `self.model`, `model.module` gives `model`.
pub(super) fn last_name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Name(name) => Some(name.id.as_str()),
        Expr::Attribute(attribute) if attribute.attr.as_str() == "module" => last_name(&attribute.value),
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        Expr::Subscript(subscript) => last_name(&subscript.value),
        _ => None,
    }
}

/// Last part of a decorator's name, called or not.
pub(super) fn decorator_name(expr: &Expr) -> &str {
    match expr {
        Expr::Call(call) => decorator_name(&call.func),
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        _ => "",
    }
}

/// A call after which nothing goes on: `sys.exit()`.
pub(super) fn never_returns(expr: &Expr) -> bool {
    let Expr::Call(call) = expr else { return false };
    match &*call.func {
        Expr::Name(name) => matches!(name.id.as_str(), "exit" | "quit"),
        Expr::Attribute(attribute) => {
            let base = last_name(&attribute.value);
            matches!((base, attribute.attr.as_str()), (Some("sys"), "exit") | (Some("os"), "_exit" | "abort"))
        }
        _ => false,
    }
}

/// A call by which a program begins: `main()`, `cli()`, `trainer.fit(model)`, `fire.Fire(main)`.
pub(super) fn starts_program(expr: &Expr) -> bool {
    let Expr::Call(call) = expr else { return false };
    last_name(&call.func)
        .is_some_and(|name| matches!(name, "main" | "train" | "run" | "fit" | "launch" | "cli" | "Fire"))
}

/// What a loop keeps of each turn that is a copy: the value of `kept[k] = v.clone()` or `kept.append(v.clone())`.
pub(super) fn kept_copy(body: &[Stmt]) -> Option<&Expr> {
    struct Kept<'a>(Option<&'a Expr>);
    impl<'a> Kept<'a> {
        fn see(&mut self, value: &'a Expr) {
            if self.0.is_none() && copies(value).is_some() {
                self.0 = Some(value);
            }
        }
    }
    impl<'a> Visitor<'a> for Kept<'a> {
        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            match stmt {
                Stmt::FunctionDef(_) | Stmt::ClassDef(_) => return,
                Stmt::Assign(assign) if matches!(&*assign.targets, [Expr::Subscript(_)]) => self.see(&assign.value),
                _ => {}
            }
            walk_stmt(self, stmt);
        }

        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Call(call) = expr
                && let Expr::Attribute(attribute) = &*call.func
                && attribute.attr.as_str() == "append"
                && let Some(value) = call.arguments.args.first()
            {
                self.see(value);
            }
            walk_expr(self, expr);
        }
    }
    let mut kept = Kept(None);
    for stmt in body {
        kept.visit_stmt(stmt);
    }
    kept.0
}

/// Whether an expression makes a copy of a weight, and whether that is on the host. Gradients are no weights.
pub(super) fn copies(value: &Expr) -> Option<CopyPlace> {
    if mentions(value, |name| name == "grad") {
        None
    } else if mentions(value, |name| matches!(name, "cpu" | "numpy")) {
        Some(CopyPlace::Host)
    } else {
        mentions(value, |name| matches!(name, "clone" | "deepcopy")).then_some(CopyPlace::WithModel)
    }
}

/// Names by which all weights of a model are gone through.
pub(super) fn is_weights(name: &str) -> bool {
    matches!(name, "state_dict" | "parameters" | "named_parameters" | "named_buffers")
}

/// Whether some name or text in an expression is such a word.
pub(super) fn mentions(expr: &Expr, is_such: fn(&str) -> bool) -> bool {
    struct Names {
        is_such: fn(&str) -> bool,
        found: bool,
    }
    impl<'a> Visitor<'a> for Names {
        fn visit_expr(&mut self, expr: &'a Expr) {
            let name = match expr {
                Expr::Name(name) => name.id.as_str(),
                Expr::Attribute(attribute) => attribute.attr.as_str(),
                Expr::StringLiteral(text) => text.value.to_str(),
                _ => "",
            };
            self.found |= (self.is_such)(name);
            if !self.found {
                walk_expr(self, expr);
            }
        }
    }
    let mut names = Names { is_such, found: false };
    names.visit_expr(expr);
    names.found
}

/// One side makes a model with its weights, the other the same one empty: the call that makes the weights.
pub(super) fn makes_weights<'a>(one: &'a [Stmt], other: &[Stmt]) -> Option<&'a Expr> {
    let assigned = |stmt: &Stmt| match stmt {
        Stmt::Assign(assign) => assign.targets.first().and_then(last_name).map(str::to_owned),
        _ => None,
    };
    let full = one.iter().find_map(|stmt| match stmt {
        Stmt::Assign(assign) if mentions(&assign.value, is_weight_maker) => Some((assigned(stmt), &*assign.value)),
        _ => None,
    });
    let is_empty = |stmt: &Stmt| match stmt {
        Stmt::With(with) => with.items.iter().any(|item| mentions(&item.context_expr, is_empty_maker)),
        Stmt::Assign(assign) => mentions(&assign.value, is_empty_maker),
        _ => false,
    };
    let (_, call) = full?;
    other.iter().any(is_empty).then_some(call)
}

/// A call that makes a model with its weights.
fn is_weight_maker(name: &str) -> bool {
    matches!(name, "from_pretrained" | "load_checkpoint" | "load_pretrained" | "load_state_dict")
}

/// A context or call that makes a model without weights.
pub(super) fn is_empty_maker(name: &str) -> bool {
    matches!(name, "init_empty_weights" | "meta" | "from_config" | "init_on_device" | "meta_device_init_context")
}

/// Names that are worth resolving through `from torch.x import *`.
pub(super) fn is_known_star_name(name: &str) -> bool {
    matches!(
        name,
        "init_process_group"
            | "get_rank"
            | "all_gather"
            | "all_gather_object"
            | "gather_object"
            | "gather"
            | "barrier"
            | "DataLoader"
            | "DistributedSampler"
            | "DistributedDataParallel"
            | "FullyShardedDataParallel"
            | "DataParallel"
    )
}

/// `(i + 1) % accumulation == 0` and the like: true when the test picks every so many iterations.
pub(super) fn picks_every_nth(test: &Expr) -> bool {
    struct Modulo(bool);
    impl<'a> Visitor<'a> for Modulo {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::BinOp(op) = expr {
                self.0 |= op.op == Operator::Mod;
            }
            walk_expr(self, expr);
        }
    }
    let mut modulo = Modulo(false);
    modulo.visit_expr(test);
    modulo.0
}
