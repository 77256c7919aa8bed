//! What a call means: of a function of the file, of something imported, of a method on an object.
//!
//! Each submodule knows one subject and says `None` to calls that are not its own.

mod data;
mod distributed;
mod frameworks;
mod growth;
mod placement;
mod state;

use super::names;
use super::nesting::MAX_DEPTH;
use super::scan;
use super::value::{ClassId, Selects, Tensor, Value};
use super::walk::{Args, Walker};
use rankscope_model::{DeviceClass, Fact, Framework, RankWork};
use ruff_python_ast::{self as ast, Expr};
use ruff_text_size::{Ranged, TextSize};
use std::rc::Rc;

/// A call of a method: on what, and its name.
#[derive(Clone)]
struct Receiver<'a> {
    base: Value<'a>,
    expr: &'a Expr,
    name: &'a str,
}

impl<'a> Walker<'a> {
    /// One level deeper; `false` when that would be too deep.
    pub(super) fn enter(&mut self) -> bool {
        if self.levels >= 3 * MAX_DEPTH || !self.spend(1) {
            self.is_cut = true;
            return false;
        }
        self.levels = self.levels.saturating_add(1);
        true
    }

    pub(super) fn leave(&mut self) {
        self.levels = self.levels.saturating_sub(1);
    }

    pub(super) fn call(&mut self, call: &'a ast::ExprCall) -> Value<'a> {
        // What a call means is asked of its arguments as written; those of calls within calls are looked at each time.
        if !self.spend(call.range().len().to_usize()) {
            return Value::Unknown;
        }
        let (callee, receiver) = match &*call.func {
            Expr::Attribute(attribute) => {
                let base = self.eval(&attribute.value);
                let name = attribute.attr.as_str();
                let callee = match self.inherited(&attribute.value, name) {
                    Some(callee) => callee,
                    None => self.member(&base, &attribute.value, name),
                };
                (callee, Some(Receiver { base, expr: &attribute.value, name }))
            }
            func => (self.eval(func), None),
        };
        let args = self.args(&call.arguments);
        let at = call.range_start;
        let value = match callee {
            Value::Path(path) => self.call_imported(call, &path, &args),
            Value::Function(id) => self.call_own(at, id, None, call, &args),
            Value::Method(class, id) => self.call_own(at, id, Some(Value::Instance(class)), call, &args),
            Value::Class(class) => self.instantiate(class, &args),
            Value::Partial(inner, bound) => match &*inner {
                Value::Function(id) => {
                    let given = bound.iter().map(|value| (&*call.func, value.clone()));
                    let positional = given.chain(args.positional.iter().cloned()).collect();
                    let all = Args { positional, keywords: args.keywords.clone(), is_open: args.is_open };
                    self.call_own(at, *id, None, call, &all)
                }
                Value::Path(path) => self.call_imported(call, path, &args),
                _ => Value::Unknown,
            },
            Value::Instance(class) => self.call_instance(class, &args),
            Value::Model => {
                self.work(RankWork::Forward);
                self.model_output()
            }
            Value::Made(path) if is_layer(&path) => self.layer_output(&path, &args),
            _ => match receiver {
                Some(receiver) => self.call_method(call, &receiver, &args),
                None => self.call_by_name(call, &args),
            },
        };
        self.callbacks(&args);
        value
    }

    fn args(&mut self, arguments: &'a ast::Arguments) -> Args<'a> {
        let mut is_open = false;
        let mut positional = Vec::with_capacity(arguments.args.len());
        for arg in &arguments.args {
            let value = self.eval(arg);
            is_open |= matches!(arg, Expr::Starred(_));
            positional.push((arg, value));
        }
        let mut keywords = Vec::with_capacity(arguments.keywords.len());
        for keyword in &arguments.keywords {
            let value = self.eval(&keyword.value);
            match &keyword.arg {
                Some(name) => keywords.push((name.as_str(), &keyword.value, value)),
                None => is_open = true,
            }
        }
        Args { positional, keywords, is_open }
    }

    /// `super().method`: the method of the base class in the same file.
    fn inherited(&self, base: &'a Expr, name: &str) -> Option<Value<'a>> {
        let Expr::Call(call) = base else { return None };
        let is_super = matches!(&*call.func, Expr::Name(name) if name.id.as_str() == "super");
        let class = self.frame_function().filter(|_| is_super).and_then(|id| self.functions.get(id))?.class?;
        let base = self.classes.get(class)?.bases.iter().find_map(|base| match base {
            Value::Class(id) => Some(*id),
            _ => None,
        })?;
        Some(Value::Method(class, self.method_of(base, name)?))
    }

    /// A function or method of the file.
    fn call_own(
        &mut self,
        at: TextSize,
        id: usize,
        this: Option<Value<'a>>,
        call: &'a ast::ExprCall,
        args: &Args<'a>,
    ) -> Value<'a> {
        // The facts are looked through twice.
        self.spend(self.facts.iter().len());
        // A keyword that the function does not take goes to its decorator, as `device_id` of a DALI pipeline.
        if let Some(function) = self.functions.get(id) {
            let parameters = &function.def.parameters;
            let goes_on = args.keywords.iter().any(|(key, ..)| !parameters.includes(key));
            if goes_on && !function.def.decorator_list.is_empty() {
                self.named_devices(call, args);
            }
        }
        let is_known =
            |walker: &Self| walker.facts.iter().filter(|fact| matches!(fact.what, Fact::EvalLoop { .. })).count();
        let before = is_known(self);
        let value = self.call_function(id, this, args);
        let name = self.functions.get(id).map_or("", |function| function.def.name.as_str());
        if names::is_eval_call(name) && before == is_known(self) && !self.does_eval(id) {
            let what = self.text(call);
            self.fact(at, Fact::EvalLoop { what, no_grad: true, sharded: None });
        }
        match names::main_process_flag(name) {
            Some(selects) if !matches!(value, Value::Selects(..)) => Value::Selects(selects, true),
            _ => match (names::rank_call(name), value) {
                (Some(kind), Value::Unknown | Value::Int(_) | Value::Nothing | Value::Host) => Value::Rank(kind),
                (_, value) => value,
            },
        }
    }

    fn instantiate(&mut self, class: ClassId, args: &Args<'a>) -> Value<'a> {
        if let Some(init) = self.method_of(class, "__init__") {
            self.call_function(init, Some(Value::Instance(class)), args);
        }
        // A subclass of a sampler or loader is one.
        let base = self.classes.get(class).and_then(|class| {
            class.bases.iter().find_map(|base| if let Value::Path(path) = base { Some(Rc::clone(path)) } else { None })
        });
        if let Some(base) = base
            && names::tail(&base).ends_with("Trainer")
            && let Some((expr, _)) = args
                .positional
                .first()
                .map(|(expr, value)| (*expr, value))
                .or_else(|| args.keywords.first().map(|(_, expr, value)| (*expr, value)))
        {
            self.trainer_built(expr.start(), &base, args);
        }
        Value::Instance(class)
    }

    fn call_instance(&mut self, class: ClassId, args: &Args<'a>) -> Value<'a> {
        let is_module = self.classes.get(class).is_some_and(|class| class.is_module);
        let entry = if is_module { "forward" } else { "__call__" };
        let value = match self.method_of(class, entry) {
            Some(id) => self.call_function(id, Some(Value::Instance(class)), args),
            None => Value::Unknown,
        };
        if is_module {
            self.work(RankWork::Forward);
            self.model_output()
        } else {
            value
        }
    }

    /// What a model gives.
    fn model_output(&self) -> Value<'a> {
        Value::Tensor(Tensor { graph: self.no_grad == 0, gpu: true })
    }

    /// What a layer or criterion gives, called on tensors.
    fn layer_output(&self, path: &str, args: &Args<'a>) -> Value<'a> {
        match args.values().filter_map(Value::tensor).reduce(Tensor::and) {
            Some(tensor) => Value::Tensor(tensor),
            None if names::tail(path).ends_with("Loss") => Value::Unknown,
            None => self.model_output(),
        }
    }

    /// Something imported.
    fn call_imported(&mut self, call: &'a ast::ExprCall, path: &Rc<str>, args: &Args<'a>) -> Value<'a> {
        self.called(path);
        let found = self
            .placement_call(call, path, args)
            .or_else(|| self.distributed_call(call, path, args))
            .or_else(|| self.data_call(call, path, args))
            .or_else(|| self.state_call(call, path, args))
            .or_else(|| self.framework_call(call, path, args));
        if let Some(value) = found {
            return value;
        }
        self.named_devices(call, args);
        let tail = names::tail(path);
        if names::is_eval_call(tail) {
            let what = self.text(call);
            self.fact(call.range_start, Fact::EvalLoop { what, no_grad: true, sharded: None });
        }
        if self.project_call(call, path) {
            self.hands_over(tail, args);
        }
        if let Some(kind) = names::rank_call(tail) {
            return Value::Rank(kind);
        }
        if let Some(selects) = names::main_process_flag(tail) {
            return Value::Selects(selects, true);
        }
        if names::is_distributed_flag(tail) {
            return Value::Selects(Selects::Distributed, true);
        }
        if let Some(value) = passes_on(tail, args) {
            return value;
        }
        match names::root(path) {
            "torch" | "einops" | "apex" if !names::is_class_name(tail) => {
                if makes_host_value(tail) {
                    return Value::Host;
                }
                match args.values().filter_map(Value::tensor).reduce(Tensor::and) {
                    Some(tensor) => Value::Tensor(tensor_function(tail, tensor)),
                    None => Value::Made(Rc::clone(path)),
                }
            }
            "functools" if tail == "partial" => match args.positional.split_first() {
                Some(((_, target), bound)) => {
                    let bound: Vec<Value<'a>> = bound.iter().map(|(_, value)| value.clone()).collect();
                    Value::partial(target.clone(), bound)
                }
                None => Value::Unknown,
            },
            _ => Value::Made(Rc::clone(path)),
        }
    }

    /// A call whose name is not defined anywhere in the file: built in, or a parameter.
    fn call_by_name(&mut self, call: &'a ast::ExprCall, args: &Args<'a>) -> Value<'a> {
        let name = scan::last_name(&call.func).unwrap_or_default();
        self.named_devices(call, args);
        if let Some(value) = passes_on(name, args) {
            return value;
        }
        let first = args.at(0).map(|(_, value)| value.clone());
        match name {
            "int" | "str" => match first {
                Some(value @ (Value::Rank(_) | Value::Int(_) | Value::Text(_) | Value::Device(_))) => value,
                _ => Value::Host,
            },
            "float" | "len" | "bool" | "repr" | "range" | "isinstance" | "hasattr" | "print" | "open" | "type" => {
                Value::Host
            }
            "sum" | "max" | "min" | "dict" | "set" => {
                args.values().filter_map(Value::tensor).reduce(Tensor::and).map_or(Value::Unknown, Value::Tensor)
            }
            "getattr" => match args.at(1) {
                Some((_, Value::Text(attribute))) => match names::rank_name(attribute) {
                    Some(kind) => Value::Rank(kind),
                    None => self.options.get(*attribute).cloned().unwrap_or(Value::Unknown),
                },
                _ => Value::Unknown,
            },
            _ => self.call_unknown(call, name, args),
        }
    }

    /// A call of something that is not known at all.
    fn call_unknown(&mut self, call: &'a ast::ExprCall, name: &str, args: &Args<'a>) -> Value<'a> {
        if let Some(kind) = names::rank_call(name) {
            return Value::Rank(kind);
        }
        if let Some(selects) = names::main_process_flag(name) {
            return Value::Selects(selects, true);
        }
        if names::is_eval_call(name) {
            let what = self.text(call);
            self.fact(call.range_start, Fact::EvalLoop { what, no_grad: true, sharded: None });
        }
        if self.is_model_name(name) {
            self.work(RankWork::Forward);
            return self.model_output();
        }
        self.hands_over(name, args);
        let is_criterion = names::is_loss(name) || matches!(name, "criterion" | "criteria" | "objective");
        match args.values().filter_map(Value::tensor).reduce(Tensor::and) {
            Some(tensor) if is_criterion => Value::Tensor(tensor),
            _ => Value::Unknown,
        }
    }

    /// A method of an object that is not of a class of the file, or that its class does not define.
    fn call_method(&mut self, call: &'a ast::ExprCall, receiver: &Receiver<'a>, args: &Args<'a>) -> Value<'a> {
        let found = self
            .placement_method(call, receiver, args)
            .or_else(|| self.growth_method(call, receiver, args))
            .or_else(|| self.distributed_method(call, receiver, args))
            .or_else(|| self.data_method(call, receiver, args))
            .or_else(|| self.state_method(call, receiver, args))
            .or_else(|| self.framework_method(call, receiver, args));
        if let Some(value) = found {
            return value;
        }
        self.named_devices(call, args);
        if let Value::Tensor(tensor) = receiver.base {
            return tensor_method(receiver.name, tensor);
        }
        if let Some(value) = passes_on(receiver.name, args).filter(|_| receiver.name == "log_every") {
            return value;
        }
        if self.is_model(receiver.expr, &receiver.base) {
            return match receiver.name {
                "train" | "eval" | "requires_grad_" | "half" | "float" | "bfloat16" | "double" | "to_empty"
                | "apply" | "share_memory" => Value::Model,
                "parameters" | "named_parameters" | "buffers" | "modules" | "named_modules" | "children" => {
                    Value::Parameters(vec![self.text(receiver.expr)].into())
                }
                "zero_grad" | "load_state_dict" | "register_buffer" | "add_module" => Value::Nothing,
                _ => self.model_output(),
            };
        }
        // The method of the only class of the file that has one of this name.
        if let Some((class, method)) = self.only_method(receiver.name) {
            return self.call_own(call.range_start, method, Some(Value::Instance(class)), call, args);
        }
        match receiver.name {
            "item" | "tolist" | "numpy" | "size" | "dim" | "numel" => Value::Host,
            "format" => match (&receiver.base, args.at(0)) {
                (Value::Text(text), Some((_, value))) => match text.split_once("{}") {
                    Some((prefix, "")) => super::eval::numbered_device(prefix, value),
                    _ => Value::Host,
                },
                _ => Value::Host,
            },
            name => self.call_unknown(call, name, args),
        }
    }

    fn only_method(&self, name: &str) -> Option<(ClassId, usize)> {
        // Names that any object may have.
        const COMMON: [&str; 34] = [
            "train", "eval", "step", "forward", "update", "save", "load", "to", "cuda", "cpu", "get", "set", "add",
            "append", "close", "open", "write", "read", "log", "reset", "compute", "items", "keys", "values", "format",
            "join", "split", "copy", "pop", "init", "sample", "encode", "decode", "__init__",
        ];
        if COMMON.contains(&name) {
            return None;
        }
        if !self.spend(self.classes.len()) {
            return None;
        }
        let mut having =
            self.classes.iter().enumerate().filter_map(|(id, class)| Some((id, *class.methods.get(name)?)));
        let only = having.next()?;
        having.next().is_none().then_some(only)
    }

    /// Functions of the file that are handed to something else and called by it.
    fn callbacks(&mut self, args: &Args<'a>) {
        for (expr, value) in args.positional.iter().map(|(expr, value)| (*expr, value.clone())) {
            if let Value::Function(id) = value
                && matches!(expr, Expr::Name(_) | Expr::Attribute(_))
            {
                self.callback(id);
            }
        }
    }

    fn callback(&mut self, id: usize) {
        // Already followed as a process, a worker or a thread, or by an ordinary call.
        let is_new = self.functions.get(id).is_some_and(|function| function.calls == 0);
        if is_new && !self.worker_functions.contains(&id) {
            let args = Args { positional: Vec::new(), keywords: Vec::new(), is_open: true };
            self.call_function(id, None, &args);
        }
    }

    /// Whether an expression is a model.
    fn is_model(&self, expr: &'a Expr, value: &Value<'a>) -> bool {
        match value {
            Value::Model => true,
            Value::Instance(class) => self.classes.get(*class).is_some_and(|class| class.is_module),
            Value::Made(path) => makes_model(path) || self.is_model_expr(expr),
            Value::Unknown => self.is_model_expr(expr),
            _ => false,
        }
    }

    fn is_model_expr(&self, expr: &'a Expr) -> bool {
        scan::last_name(expr).is_some_and(|name| self.is_model_name(name))
    }

    fn is_model_name(&self, name: &str) -> bool {
        self.model_names.contains(name) || names::is_model(name)
    }

    /// Code that is not read here is given the model or a loader: what it does with them is open. What saves or logs
    /// by its name does so.
    fn hands_over(&mut self, name: &str, args: &Args<'a>) {
        let name = name.to_ascii_lowercase();
        let is_told = ["save", "log", "print", "write", "wrap"].iter().any(|word| name.contains(word));
        let positional = args.positional.iter().map(|(expr, value)| (*expr, value));
        let keywords = args.keywords.iter().map(|(_, expr, value)| (*expr, value));
        let is_given = positional
            .chain(keywords)
            .any(|(expr, value)| matches!(value, Value::Loader(_)) || self.is_model(expr, value));
        if is_given && !is_told {
            self.work(RankWork::Elsewhere);
        }
    }

    /// A file of the project is called; `false` when it is a package.
    fn project_call(&mut self, call: &'a ast::ExprCall, path: &str) -> bool {
        let is_project = path.starts_with('.') || !names::is_package(names::root(path));
        if !is_project {
            return false;
        }
        if let Some((module, name)) = path.rsplit_once('.') {
            let (module, name) = (module.to_owned(), name.to_owned());
            self.fact(call.range_start, Fact::CallsImported { module, name });
        }
        true
    }

    /// GPUs named in keywords: `device="cuda:0"`, `device_id=0`, `device_map={"": 0}`.
    fn named_devices(&mut self, call: &'a ast::ExprCall, args: &Args<'a>) {
        const KEYS: [&str; 8] =
            ["device", "device_id", "device_map", "gpu_id", "output_device", "main_gpu", "cuda_device", "gpu"];
        for (key, expr, value) in &args.keywords {
            if !KEYS.contains(key) {
                continue;
            }
            let Some(class) = super::eval::device_class(value) else { continue };
            let tells = class.is_shared_default() || class == DeviceClass::Auto;
            if tells {
                let device = self.device(expr, value);
                let object = self.text(&*call.func);
                self.fact(call.range_start, Fact::NamedDevice { how: format!("{key}="), object, device });
            }
        }
    }

    /// Notes what the name of a called thing says of frameworks.
    fn called(&mut self, path: &str) {
        if names::root(path) == "torch" {
            self.uses(Framework::Torch);
        }
    }
}

/// Iterators and wrappers that give what they got, item by item.
fn passes_on<'a>(name: &str, args: &Args<'a>) -> Option<Value<'a>> {
    match name {
        "enumerate" | "tqdm" | "iter" | "list" | "tuple" | "reversed" | "sorted" | "islice" | "cycle" | "track"
        | "log_every" | "progress_bar" | "auto" | "deepcopy" | "next" => {
            let value = args.at(0)?.1.clone();
            match value {
                Value::Loader(_) if name == "next" => Some(Value::Unknown),
                Value::Model if name == "deepcopy" => Some(value),
                _ if name == "deepcopy" => None,
                _ => Some(value),
            }
        }
        "zip" => Some(Value::tuple(args.positional.iter().map(|(_, value)| value.clone()).collect())),
        _ if name.contains("Prefetch") || name.ends_with("DeviceLoader") || name == "ParallelLoader" => {
            args.values().find(|value| matches!(value, Value::Loader(_))).cloned()
        }
        _ => None,
    }
}

/// A layer or criterion of torch.
fn is_layer(path: &str) -> bool {
    path.starts_with("torch.nn.") && names::is_class_name(names::tail(path))
}

/// Something that makes a model: a class of the project or of a model library, a function named so.
fn makes_model(path: &str) -> bool {
    let tail = names::tail(path);
    let is_helper =
        ["Loss", "Criterion", "Dataset", "Batch", "Sampler", "Loader", "Metric", "Scaler", "Tokenizer", "Config"]
            .iter()
            .any(|word| tail.contains(word));
    if is_helper {
        return false;
    }
    match names::root(path) {
        "torchvision" => path.contains(".models."),
        "timm" | "peft" | "segmentation_models_pytorch" => true,
        "torch" => path.starts_with("torch.nn.") && names::is_class_name(tail) && !tail.starts_with("Param"),
        "transformers" | "diffusers" | "sentence_transformers" => {
            path.contains("from_pretrained")
                || tail.contains("Model")
                || tail.contains("For")
                || tail.contains("Transformer")
        }
        root if names::is_package(root) => false,
        _ => {
            names::is_class_name(tail)
                || (["build", "create", "get", "make", "load"].iter().any(|verb| tail.starts_with(verb))
                    && ["model", "net", "network", "backbone"].iter().any(|noun| tail.ends_with(noun)))
        }
    }
}

/// Functions of torch that give numbers or objects on the host.
fn makes_host_value(tail: &str) -> bool {
    matches!(
        tail,
        "memory_allocated"
            | "max_memory_allocated"
            | "memory_reserved"
            | "max_memory_reserved"
            | "device_count"
            | "numel"
            | "is_tensor"
            | "manual_seed"
            | "manual_seed_all"
            | "clip_grad_norm_"
            | "reset_peak_memory_stats"
    )
}

/// What a function of torch keeps of its arguments.
fn tensor_function(tail: &str, tensor: Tensor) -> Tensor {
    match tail {
        "argmax" | "argmin" | "eq" | "ne" | "gt" | "lt" | "ge" | "le" | "argsort" | "bincount" | "zeros_like"
        | "ones_like" | "rand_like" | "randn_like" | "isnan" | "isfinite" => Tensor { graph: false, ..tensor },
        _ => tensor,
    }
}

/// What a method keeps of its tensor.
fn tensor_method<'a>(name: &str, tensor: Tensor) -> Value<'a> {
    match name {
        "item" | "tolist" | "numpy" | "size" | "dim" | "numel" | "backward" | "element_size" | "is_floating_point" => {
            Value::Host
        }
        "detach" | "detach_" | "argmax" | "argmin" | "eq" | "ne" | "gt" | "lt" | "ge" | "le" | "argsort" | "long"
        | "int" | "bool" | "byte" => Value::Tensor(Tensor { graph: false, ..tensor }),
        "cpu" => Value::Tensor(Tensor { gpu: false, ..tensor }),
        _ => Value::Tensor(tensor),
    }
}
