//! Checkpoints, optimizers, buffers and copies of weights: what is loaded, saved, gathered and kept.

use super::Receiver;
use crate::python_script::eval::device_class;
use crate::python_script::names;
use crate::python_script::scan;
use crate::python_script::value::Value;
use crate::python_script::walk::{Args, Walker};
use rankscope_model::{Bytes, CopyPlace, DeviceClass, DeviceExpr, Fact, FactKind, Framework, MapLocation};
use ruff_python_ast::{self as ast, Expr, Stmt};
use ruff_text_size::{Ranged, TextSize};
use std::rc::Rc;

/// A plain tensor attribute below this size is no buffer worth a fact: 64 MiB.
const PLAIN_BUFFER_MIN: u64 = 64 << 20;

impl<'a> Walker<'a> {
    pub(super) fn state_call(&mut self, call: &'a ast::ExprCall, path: &Rc<str>, args: &Args<'a>) -> Option<Value<'a>> {
        let at = call.range_start;
        let tail = names::tail(path);
        match &**path {
            "torch.load" | "torch.jit.load" | "torch.hub.load_state_dict_from_url" => {
                let map_location = self.map_location(args);
                let file = args.at(0).map(|(expr, _)| self.text(expr)).unwrap_or_default();
                let fact = Fact::TorchLoad { map_location, path: file, into: Vec::new() };
                let id = self.fact(at, fact);
                return Some(match id {
                    Some(_) if &**path == "torch.jit.load" => Value::Model,
                    Some(id) => Value::Checkpoint(id),
                    None => Value::Unknown,
                });
            }
            "torch.save" => {
                self.save(call, path, args);
                return Some(Value::Nothing);
            }
            "copy.deepcopy" => {
                let (expr, value) = args.at(0)?;
                let place = match value {
                    Value::State { on_cpu: true, .. } => CopyPlace::Host,
                    _ => CopyPlace::WithModel,
                };
                let value = match value {
                    Value::State { .. } => value.clone(),
                    value if self.is_model(expr, value) => Value::Model,
                    _ => return None,
                };
                let what = self.text(call);
                self.fact(at, Fact::ModelCopy { what, place });
                return Some(value);
            }
            _ => {}
        }
        match tail {
            "save" | "save_state_dict" if path.contains("checkpoint") || path.starts_with("safetensors") => {
                self.save(call, path, args);
                Some(Value::Nothing)
            }
            "save_file" | "save_model" if path.starts_with("safetensors") => {
                self.save(call, path, args);
                Some(Value::Nothing)
            }
            "ModelEma"
            | "ModelEMA"
            | "ModelEmaV2"
            | "ModelEmaV3"
            | "EMA"
            | "EMAModel"
            | "ExponentialMovingAverage"
            | "AveragedModel"
            | "EMAHelper"
            | "LitEma" => {
                let what = self.text(call);
                // These copy the model where it is and then move the copy.
                let on_host =
                    args.keyword("device").is_some_and(|(_, value)| device_class(value) == Some(DeviceClass::Cpu));
                let place = if on_host { CopyPlace::ThroughGpu } else { CopyPlace::WithModel };
                self.fact(at, Fact::ModelCopy { what, place });
                Some(Value::Made(Rc::clone(path)))
            }
            "FullStateDictConfig" | "FullOptimStateDictConfig" | "StateDictOptions" => {
                let is_full = tail != "StateDictOptions" || args.flag("full_state_dict") == Some(true);
                if is_full {
                    let offload_to_cpu = args.flag("offload_to_cpu").or_else(|| args.flag("cpu_offload"));
                    let rank0_only = args.flag("rank0_only");
                    self.fact(at, Fact::FullStateDict { call: path.to_string(), offload_to_cpu, rank0_only });
                }
                Some(Value::Made(Rc::clone(path)))
            }
            "state_dict_type"
            | "set_state_dict_type"
            | "summon_full_params"
            | "full_optim_state_dict"
            | "consolidate_shard_weights"
            | "get_fp32_state_dict_from_zero_checkpoint" => {
                let is_full = tail != "state_dict_type" && tail != "set_state_dict_type"
                    || args
                        .values()
                        .any(|value| matches!(value, Value::Path(path) if path.contains("FULL_STATE_DICT")));
                if is_full {
                    let offload_to_cpu = args.flag("offload_to_cpu");
                    let rank0_only = args.flag("rank0_only");
                    self.fact(at, Fact::FullStateDict { call: path.to_string(), offload_to_cpu, rank0_only });
                }
                Some(Value::Unknown)
            }
            "GatheredParameters" if path.contains("zero") => {
                self.fact(at, Fact::FullStateDict { call: path.to_string(), offload_to_cpu: None, rank0_only: None });
                Some(Value::Unknown)
            }
            "checkpoint" | "checkpoint_sequential" | "apply_activation_checkpointing" | "checkpoint_wrapper"
                if names::root(path) == "torch"
                    || names::root(path) == "deepspeed"
                    || names::root(path) == "fairscale" =>
            {
                self.fact(at, Fact::Checkpointing { call: path.to_string() });
                Some(self.model_output())
            }
            "initialize" if names::root(path) == "deepspeed" => {
                self.uses(Framework::DeepSpeed);
                self.trainer_built(at, path, args);
                let loader = args.keyword("training_data").map_or(Value::Nothing, |_| Value::Unknown);
                Some(Value::Tuple(vec![Value::Model, Value::Optimizer, loader, Value::Unknown].into()))
            }
            "convert_sync_batchnorm" | "get_peft_model" | "prepare_model_for_kbit_training" => Some(Value::Model),
            "DistributedOptimizer" => Some(Value::Optimizer),
            _ if is_optimizer(path, args) => {
                let models = self.optimized(args);
                let sharded = tail.contains("ZeroRedundancy") || tail == "OSS" || tail.contains("Distributed");
                self.fact(at, Fact::OptimizerBuilt { class: path.to_string(), models, sharded });
                Some(Value::Optimizer)
            }
            _ if tail == "from_pretrained" => {
                self.named_devices(call, args);
                let class = path.rsplit('.').nth(1).unwrap_or_default();
                let is_model = !["Tokenizer", "Processor", "Config", "Extractor", "Scheduler"]
                    .iter()
                    .any(|word| class.contains(word));
                Some(if is_model { Value::Model } else { Value::Made(Rc::clone(path)) })
            }
            _ => None,
        }
    }

    /// `{k: v.clone() for k, v in model.state_dict().items()}`: all weights once more.
    pub(in crate::python_script) fn copies_weights(
        &mut self,
        expr: &'a Expr,
        element: &'a Expr,
        generators: &'a [ast::Comprehension],
    ) {
        if !self.spend(expr.range().len().to_usize()) || !generators.iter().any(|each| self.is_over_weights(&each.iter))
        {
            return;
        }
        if let Some(place) = scan::copies(element) {
            let what = self.text(expr);
            self.fact(expr.start(), Fact::ModelCopy { what, place });
        }
    }

    /// The same as a loop: `for k, v in model.state_dict().items(): kept[k] = v.clone()`.
    pub(in crate::python_script) fn keeps_weights(&mut self, iter: &'a Expr, body: &'a [Stmt]) {
        if !self.is_over_weights(iter) || !self.spend(scan::length(body)) {
            return;
        }
        let Some(value) = scan::kept_copy(body) else { return };
        if let Some(place) = scan::copies(value) {
            let what = self.text(value);
            self.fact(value.start(), Fact::ModelCopy { what, place });
        }
    }

    /// Goes through all weights of a model: of `model.state_dict()` and the like, or of a name that holds it.
    fn is_over_weights(&self, iter: &'a Expr) -> bool {
        let is_held = |expr: &'a Expr| match expr {
            Expr::Name(name) => matches!(self.lookup(name.id.as_str()), Value::State { .. } | Value::Parameters(_)),
            _ => false,
        };
        let items = match iter {
            Expr::Call(call) => match &*call.func {
                Expr::Attribute(attribute) if matches!(attribute.attr.as_str(), "items" | "values") => {
                    is_held(&attribute.value)
                }
                _ => false,
            },
            other => is_held(other),
        };
        items || scan::mentions(iter, scan::is_weights)
    }

    /// A copy of the weights that was made where the model is goes to the host: `copy.deepcopy(model).cpu()`.
    pub(super) fn copy_goes_to_host(&mut self, copy: &'a Expr) {
        let Expr::Call(call) = copy else { return };
        let Some(id) = self.facts.find(call.range_start, FactKind::ModelCopy) else { return };
        if let Some(Fact::ModelCopy { place, .. }) = self.facts.what_mut(id)
            && *place == CopyPlace::WithModel
        {
            *place = CopyPlace::ThroughGpu;
        }
    }

    /// The models whose parameters an optimizer is given.
    fn optimized(&self, args: &Args<'a>) -> Vec<String> {
        let mut models: Vec<String> = Vec::new();
        for (expr, value) in args
            .positional
            .iter()
            .map(|(expr, value)| (*expr, value))
            .chain(args.keywords.iter().filter(|(key, ..)| *key == "params").map(|(_, expr, value)| (*expr, value)))
        {
            match value {
                Value::Parameters(of) => models.extend(of.iter().cloned()),
                _ => models.extend(scan::parameter_owners(expr, self.source)),
            }
        }
        models.dedup();
        models.truncate(16);
        models
    }

    fn map_location(&mut self, args: &Args<'a>) -> MapLocation {
        let Some((expr, value)) = args.get("map_location", 1) else {
            return if args.is_open { MapLocation::Other("not told".to_owned()) } else { MapLocation::Absent };
        };
        match (expr, value) {
            (_, Value::Nothing) => MapLocation::Absent,
            // `lambda storage, loc: storage` is the old way to say the host; `storage.cuda(n)` names a GPU.
            (Expr::Lambda(lambda), _) => match &*lambda.body {
                Expr::Name(_) => MapLocation::Cpu,
                Expr::Call(call) => match call.arguments.args.first() {
                    Some(device) => {
                        let value = self.eval(device);
                        self.located(device, &value)
                    }
                    None => MapLocation::Shared(DeviceExpr { class: DeviceClass::Current, text: self.text(expr) }),
                },
                _ => MapLocation::Other(self.text(expr)),
            },
            // `{"cuda:0": f"cuda:{rank}"}` moves what was on GPU 0.
            (Expr::Dict(dict), _) => match dict.items.first() {
                Some(item) => {
                    let value = self.eval(&item.value);
                    self.located(&item.value, &value)
                }
                None => MapLocation::Absent,
            },
            _ => self.located(expr, value),
        }
    }

    fn located(&self, expr: &'a Expr, value: &Value<'a>) -> MapLocation {
        let device = self.device(expr, value);
        match device.class {
            DeviceClass::Cpu => MapLocation::Cpu,
            DeviceClass::Rank | DeviceClass::LocalRank | DeviceClass::Framework | DeviceClass::AskedCurrent => {
                MapLocation::Rank(device)
            }
            DeviceClass::Literal(_) | DeviceClass::Current => MapLocation::Shared(device),
            DeviceClass::Auto | DeviceClass::Unknown => MapLocation::Other(device.text),
        }
    }

    fn save(&mut self, call: &'a ast::ExprCall, path: &str, args: &Args<'a>) {
        let (what, state) = match args.at(0) {
            Some((expr, value)) => (self.text(expr), value.clone()),
            None => (String::new(), Value::Unknown),
        };
        let (with_optimizer, on_cpu) = match (&state, args.at(0)) {
            (Value::State { of_optimizer, on_cpu }, _) => (*of_optimizer, on_cpu.then_some(true)),
            (_, Some((expr, _))) => (scan::mentions(expr, |name| name.to_ascii_lowercase().contains("optim")), None),
            _ => (false, None),
        };
        self.fact(call.range_start, Fact::SaveState { call: path.to_owned(), what, with_optimizer, on_cpu });
    }

    pub(super) fn state_method(
        &mut self,
        call: &'a ast::ExprCall,
        receiver: &Receiver<'a>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        let at = call.range_start;
        match receiver.name {
            "state_dict" => {
                let of_optimizer = receiver.base == Value::Optimizer
                    || scan::last_name(receiver.expr).is_some_and(|name| name.to_ascii_lowercase().contains("opt"));
                Some(Value::State { of_optimizer, on_cpu: false })
            }
            "load_state_dict" => {
                if let Some((_, Value::Checkpoint(id))) = args.at(0) {
                    let name = self.text(receiver.expr);
                    if let Some(Fact::TorchLoad { into, .. }) = self.facts.what_mut(*id)
                        && into.len() < 16
                        && !into.contains(&name)
                    {
                        into.push(name);
                    }
                }
                Some(Value::Nothing)
            }
            "register_buffer" => {
                let Some((_, Value::Text(name))) = args.get("name", 0) else { return Some(Value::Nothing) };
                let name = (*name).to_owned();
                let tensor = args.get("tensor", 1);
                let bytes = tensor.and_then(|(expr, _)| self.tensor_bytes(expr));
                let value = tensor.map(|(expr, _)| self.text(expr)).unwrap_or_default();
                self.fact(at, Fact::RegisterBuffer { name, bytes, value, is_plain: false });
                Some(Value::Nothing)
            }
            "save_checkpoint" | "save_pretrained" | "save_model" | "save_state" | "save_16bit_model"
            | "save_weights" => {
                let what = self.text(receiver.expr);
                let name = format!("{what}.{}", receiver.name);
                if receiver.name == "save_16bit_model" {
                    let fact = Fact::FullStateDict { call: name.clone(), offload_to_cpu: None, rank0_only: None };
                    self.fact(at, fact);
                }
                self.fact(at, Fact::SaveState { call: name, what, with_optimizer: false, on_cpu: None });
                Some(Value::Nothing)
            }
            "consolidate_state_dict" | "_zero3_consolidated_16bit_state_dict" => {
                let name = format!("{}.{}", self.text(receiver.expr), receiver.name);
                self.fact(at, Fact::FullStateDict { call: name, offload_to_cpu: None, rank0_only: None });
                Some(Value::State { of_optimizer: true, on_cpu: false })
            }
            "gradient_checkpointing_enable" | "enable_gradient_checkpointing" | "set_grad_checkpointing" => {
                let name = self.text(&*call.func);
                self.fact(at, Fact::Checkpointing { call: name });
                Some(Value::Nothing)
            }
            "record_stream" => {
                let what = self.text(call);
                self.fact(at, Fact::SideStream { what });
                Some(Value::Nothing)
            }
            _ => None,
        }
    }

    /// A big tensor that becomes a plain attribute: `self.queue = torch.randn(...).cuda()`.
    pub(in crate::python_script) fn plain_buffer(&mut self, target: &'a Expr, value: &'a Expr, at: TextSize) {
        let Expr::Attribute(attribute) = target else { return };
        if !matches!(value, Expr::Call(_)) {
            return;
        }
        if let Some(bytes) = self.tensor_bytes(value).filter(|bytes| bytes.0 >= PLAIN_BUFFER_MIN) {
            let name = attribute.attr.as_str().to_owned();
            let value = self.text(value);
            self.fact(at, Fact::RegisterBuffer { name, bytes: Some(bytes), value, is_plain: true });
        }
    }

    /// Bytes of a tensor whose shape is written out: `torch.zeros(65536, 256, dtype=torch.float16).cuda()`.
    fn tensor_bytes(&mut self, expr: &'a Expr) -> Option<Bytes> {
        let Expr::Call(call) = expr else { return None };
        if let Expr::Attribute(attribute) = &*call.func
            && matches!(attribute.attr.as_str(), "cuda" | "to" | "requires_grad_" | "contiguous" | "normal_" | "clone")
        {
            return self.tensor_bytes(&attribute.value);
        }
        // Evaluated before, so this records nothing new.
        let Value::Path(path) = self.eval(&call.func) else { return None };
        let tail = names::tail(&path);
        if !path.starts_with("torch.")
            || !matches!(tail, "zeros" | "ones" | "empty" | "rand" | "randn" | "full" | "randint" | "arange" | "eye")
        {
            // `nn.functional.normalize(torch.randn(...))`: the size of its argument.
            return if path.starts_with("torch.nn.functional") {
                call.arguments.args.first().and_then(|inner| self.tensor_bytes(inner))
            } else {
                None
            };
        }
        let mut elements = 1u64;
        let mut is_any = false;
        let shape: Vec<&'a Expr> = match call.arguments.args.first() {
            Some(Expr::Tuple(ast::ExprTuple { elts, .. }) | Expr::List(ast::ExprList { elts, .. })) => {
                elts.iter().collect()
            }
            _ if tail == "full" || tail == "arange" => call.arguments.args.iter().take(1).collect(),
            _ => call.arguments.args.iter().collect(),
        };
        for dimension in shape {
            let Value::Int(size) = self.eval(dimension) else { return None };
            elements = elements.checked_mul(u64::try_from(size).ok()?)?;
            is_any = true;
        }
        if tail == "eye" {
            elements = elements.checked_mul(elements)?;
        }
        let dtype = match call.arguments.find_keyword("dtype").map(|keyword| &keyword.value) {
            Some(dtype) => self.source.slice(dtype.range()),
            None => String::new(),
        };
        let size = match names::tail(&dtype) {
            "float16" | "half" | "bfloat16" | "int16" | "short" => 2,
            "float64" | "double" | "int64" | "long" => 8,
            "uint8" | "int8" | "bool" => 1,
            _ if matches!(tail, "randint" | "arange") => 8,
            _ => 4,
        };
        is_any.then(|| Bytes(elements.saturating_mul(size)))
    }
}

/// A state dict moved to the host: `{k: v.cpu() for k, v in model.state_dict().items()}`.
pub(super) fn state_on_host<'a>(expr: &Expr) -> Option<Value<'a>> {
    let Expr::DictComp(comp) = expr else { return None };
    let moves = scan::mentions(&comp.value, |name| matches!(name, "cpu" | "numpy"));
    let of_state = comp.generators.iter().any(|generator| scan::mentions(&generator.iter, |name| name == "state_dict"));
    (moves && of_state).then_some(Value::State { of_optimizer: false, on_cpu: true })
}

/// An optimizer's class: by its module, by its name, or because it is given parameters.
fn is_optimizer(path: &str, args: &Args) -> bool {
    let tail = names::tail(path);
    if !names::is_class_name(tail) && !matches!(tail, "SGD" | "LAMB" | "LARS" | "ASGD" | "OSS") {
        return false;
    }
    if tail.contains("Scheduler") || tail.ends_with("LR") || path.contains("lr_scheduler") {
        return false;
    }
    let by_module = (path.starts_with("torch.optim.") || path.contains(".optimizers.") || path.contains(".optim."))
        && !tail.contains("Wrapper");
    let by_name = [
        "Adam",
        "SGD",
        "RMSprop",
        "Adafactor",
        "Lion",
        "Adagrad",
        "Muon",
        "Shampoo",
        "ZeroRedundancyOptimizer",
        "LAMB",
        "LARS",
        "OSS",
    ]
    .iter()
    .any(|name| tail.contains(name));
    let takes_parameters = args.positional.iter().take(1).any(|(_, value)| matches!(value, Value::Parameters(_)));
    (by_module || by_name || (takes_parameters && tail.contains("Optim"))) && !args.positional.is_empty()
        || (by_module || by_name) && args.keyword("params").is_some()
}
