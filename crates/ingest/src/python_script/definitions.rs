//! Functions and classes of the file: what they are, and what happens when they are called.

use super::names;
use super::scan;
use super::statements::set_again;
use super::value::{ClassId, FunctionId, ScopeId, Value};
use super::walk::{Args, Class, Frame, Function, Loop, MAX_CALLS, MAX_LEVELS, Walker};
use rankscope_model::LoopKind;
use ruff_python_ast::{self as ast, Expr, Stmt};
use ruff_text_size::Ranged;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Bases of a class that are kept: each look-up of an attribute goes through them.
const MAX_BASES: usize = 16;

impl<'a> Walker<'a> {
    pub(super) fn define(&mut self, def: &'a ast::StmtFunctionDef, class: Option<ClassId>) {
        for decorator in &def.decorator_list {
            self.eval(&decorator.expression);
        }
        let known = self.function_at.get(&def.start()).copied();
        let id = known.unwrap_or_else(|| {
            let id = self.functions.len();
            let outer = self.frame_function();
            let name = match (class.and_then(|id| self.classes.get(id)), outer.and_then(|id| self.functions.get(id))) {
                (Some(class), _) => format!("{}.{}", class.name, def.name.as_str()),
                (None, Some(outer)) if outer.name.len() < 160 => {
                    format!("{}.{}", outer.name, def.name.as_str())
                }
                _ => def.name.as_str().to_owned(),
            };
            self.functions.push(Function {
                def,
                name,
                class,
                parent: outer,
                walks: 0,
                calls: 0,
                walked_freely: false,
                is_active: false,
                returns: Value::Unknown,
                works: BTreeSet::new(),
            });
            self.function_at.insert(def.start(), id);
            id
        });
        match class.and_then(|class| self.classes.get_mut(class)) {
            Some(class) => {
                class.methods.insert(def.name.as_str(), id);
            }
            None => self.bind_name(def.name.as_str(), Value::Function(id)),
        }
    }

    /// A class that is met for the first time.
    fn new_class(&mut self, def: &'a ast::StmtClassDef, bases: &[Value<'a>]) -> ClassId {
        let is_base = |wanted: fn(&str) -> bool, inherited: fn(&Class<'a>) -> bool| {
            bases.iter().any(|base| match base {
                Value::Path(path) => wanted(names::tail(path)),
                Value::Class(id) => self.classes.get(*id).is_some_and(inherited),
                _ => false,
            })
        };
        let methods: HashSet<&str> = def
            .body
            .iter()
            .filter_map(|stmt| if let Stmt::FunctionDef(def) = stmt { Some(def.name.as_str()) } else { None })
            .collect();
        let class = Class {
            name: def.name.as_str(),
            is_module: is_base(
                |tail| {
                    matches!(tail, "Module" | "LightningModule" | "MegatronModule" | "Model" | "BaseModel")
                        || tail.ends_with("PreTrainedModel")
                        || tail.starts_with("AutoModel")
                },
                |class| class.is_module,
            ),
            is_dataset: is_base(
                |tail| tail.ends_with("Dataset") || tail.ends_with("ImageFolder"),
                |class| class.is_dataset,
            ) || (methods.contains("__getitem__") && methods.contains("__len__")),
            is_lightning: is_base(
                |tail| matches!(tail, "LightningModule" | "Callback" | "LightningDataModule" | "TrainerCallback"),
                |class| class.is_lightning,
            ),
            bases: Vec::new(),
            methods: HashMap::new(),
            scope: self.new_scope(),
            emptied: scan::emptied_attributes(&def.body, self.source),
        };
        let id = self.classes.len();
        self.classes.push(class);
        self.class_at.insert(def.start(), id);
        id
    }

    pub(super) fn define_class(&mut self, def: &'a ast::StmtClassDef) {
        let bases: Vec<Value<'a>> =
            def.arguments.iter().flat_map(|arguments| arguments.args.iter()).map(|base| self.eval(base)).collect();
        let known = self.class_at.get(&def.start()).copied();
        let id = known.unwrap_or_else(|| self.new_class(def, &bases));
        if let Some(class) = self.classes.get_mut(id) {
            class.bases = bases.into_iter().filter(|base| *base != Value::Class(id)).take(MAX_BASES).collect();
        }
        // The body of a class runs where it stands; its names are attributes of the class.
        let scope = self.classes.get(id).map_or(0, |class| class.scope);
        for stmt in &def.body {
            match stmt {
                Stmt::FunctionDef(method) => self.define(method, Some(id)),
                Stmt::Assign(assign) => {
                    let value = self.eval(&assign.value);
                    for target in &assign.targets {
                        if !self.spend(set_again(assign)) {
                            break;
                        }
                        let value = self.setting(target, &assign.value, value.clone());
                        if let Expr::Name(name) = target {
                            self.scopes.set(scope, name.id.as_str(), value.clone());
                        }
                    }
                }
                Stmt::AnnAssign(assign) => {
                    if let (Some(expr), Expr::Name(name)) = (assign.value.as_deref(), &*assign.target) {
                        let value = self.eval(expr);
                        // Fields of an options class are defaults, like those of `add_argument`.
                        self.options.entry(name.id.as_str().to_owned()).or_insert_with(|| value.clone());
                        self.scopes.set(scope, name.id.as_str(), value);
                    }
                }
                Stmt::ClassDef(inner) => self.define_class(inner),
                _ => {}
            }
        }
        for decorator in &def.decorator_list {
            self.eval(&decorator.expression);
        }
        self.bind_name(def.name.as_str(), Value::Class(id));
    }

    /// A call of a function of this file.
    pub(super) fn call_function(&mut self, id: FunctionId, this: Option<Value<'a>>, args: &Args<'a>) -> Value<'a> {
        let positional: Vec<Value<'a>> = args.positional.iter().map(|(_, value)| value.clone()).collect();
        let keywords: Vec<(&'a str, Value<'a>)> =
            args.keywords.iter().map(|(key, _, value)| (*key, value.clone())).collect();
        self.follow(id, this, &positional, &keywords, args.is_open)
    }

    pub(super) fn follow(
        &mut self,
        id: FunctionId,
        this: Option<Value<'a>>,
        positional: &[Value<'a>],
        keywords: &[(&'a str, Value<'a>)],
        is_open: bool,
    ) -> Value<'a> {
        let is_free = !self.is_rank_only();
        let Some(function) = self.functions.get_mut(id) else { return Value::Unknown };
        function.calls = function.calls.saturating_add(1);
        if function.is_active {
            return Value::Unknown;
        }
        let is_known = function.walks > 0 && (function.walked_freely || !is_free);
        if is_known || self.frames.len() >= MAX_CALLS || self.levels >= MAX_LEVELS {
            if !is_known {
                self.is_cut = true;
            }
            self.spend(self.collectors.len());
            let Some(function) = self.functions.get(id) else { return Value::Unknown };
            for set in &mut self.collectors {
                set.extend(function.works.iter().copied());
            }
            return function.returns.clone();
        }
        function.walks = function.walks.saturating_add(1);
        function.walked_freely |= is_free;
        function.is_active = true;
        let def = function.def;
        let class = function.class;

        let scope = self.new_scope();
        self.bind_parameters(def, class, scope, this, positional, keywords, is_open);
        self.frames.push(Frame { function: Some(id), scope, returns: None, globals: HashSet::new() });
        let guards = self.guards.len();
        let no_grad = self.no_grad;
        let loops = self.loops.len();
        self.enter_function(def, class);
        self.collectors.push(BTreeSet::new());

        let ends = self.body(&def.body);

        let works = self.collectors.pop().unwrap_or_default();
        self.guards.truncate(guards);
        self.loops.truncate(loops);
        self.no_grad = no_grad;
        let returns = self.frames.pop().and_then(|frame| frame.returns);
        let returns = match returns {
            Some(value) if ends => value,
            Some(value) => value.join(Value::Nothing),
            None => Value::Nothing,
        };
        if let Some(function) = self.functions.get_mut(id) {
            function.is_active = false;
            function.works.extend(works);
            function.returns = returns.clone();
        }
        returns
    }

    /// What the name and the decorators of a function say of its surroundings.
    fn enter_function(&mut self, def: &'a ast::StmtFunctionDef, class: Option<ClassId>) {
        for decorator in &def.decorator_list {
            let name = scan::decorator_name(&decorator.expression);
            if let Some(selects) = names::rank_zero_decorator(name) {
                self.guards.push(self.condition(&decorator.expression, selects.guard()));
            }
            if matches!(name, "no_grad" | "inference_mode") {
                self.no_grad = self.no_grad.saturating_add(1);
            }
        }
        if class.is_none() {
            return;
        }
        let kind = match def.name.as_str() {
            "training_step" | "on_train_batch_end" | "compute_loss" => Some(LoopKind::TrainBatch),
            "validation_step"
            | "test_step"
            | "predict_step"
            | "prediction_step"
            | "on_validation_batch_end"
            | "on_test_batch_end" => {
                self.no_grad = self.no_grad.saturating_add(1);
                Some(LoopKind::EvalBatch)
            }
            "on_validation_epoch_end"
            | "validation_epoch_end"
            | "test_epoch_end"
            | "on_test_epoch_end"
            | "evaluation_loop" => {
                self.no_grad = self.no_grad.saturating_add(1);
                None
            }
            _ => None,
        };
        if let Some(kind) = kind {
            let frame = self.frames.len().saturating_sub(1);
            self.loops.push(Loop { kind, frame, assigned: HashSet::new() });
        }
    }

    #[allow(clippy::too_many_arguments)] // One call site; a struct would only move the names.
    fn bind_parameters(
        &mut self,
        def: &'a ast::StmtFunctionDef,
        class: Option<ClassId>,
        scope: ScopeId,
        this: Option<Value<'a>>,
        positional: &[Value<'a>],
        keywords: &[(&'a str, Value<'a>)],
        is_open: bool,
    ) {
        let parameters = &def.parameters;
        let mut names = parameters.posonlyargs.iter().chain(&parameters.args);
        let is_static = def.decorator_list.iter().any(|d| scan::decorator_name(&d.expression) == "staticmethod");
        if let Some(class) = class.filter(|_| !is_static)
            && let Some(first) = names.next()
        {
            let this = this.unwrap_or(Value::Instance(class));
            self.scopes.set(scope, first.parameter.name.as_str(), this);
        }
        let mut given = positional.iter();
        for parameter in names {
            let name = parameter.parameter.name.as_str();
            let by_position = given.next().cloned();
            self.bind_parameter(scope, name, by_position, parameter.default.as_deref(), keywords, is_open);
        }
        for parameter in &parameters.kwonlyargs {
            let name = parameter.parameter.name.as_str();
            self.bind_parameter(scope, name, None, parameter.default.as_deref(), keywords, is_open);
        }
    }

    fn bind_parameter(
        &mut self,
        scope: ScopeId,
        name: &'a str,
        by_position: Option<Value<'a>>,
        default: Option<&'a Expr>,
        keywords: &[(&'a str, Value<'a>)],
        is_open: bool,
    ) {
        self.spend(keywords.len());
        let given =
            by_position.or_else(|| keywords.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()));
        let value = match (given, default) {
            (Some(value), _) => value,
            // Unless `*args` may have brought it, the default holds.
            (None, Some(default)) if !is_open => self.eval(default),
            _ => Value::Unknown,
        };
        // A rank stays a rank when all that is known of it is a default number.
        let value = match (value, names::rank_name(name)) {
            (Value::Unknown | Value::Int(_) | Value::Nothing, Some(kind)) => Value::Rank(kind),
            (value, _) => value,
        };
        self.scopes.set(scope, name, value);
    }
}
