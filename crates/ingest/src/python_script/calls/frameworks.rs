//! Frameworks, trainers, inference engines, graph traces and options that bear on memory.

use super::Receiver;
use crate::python_script::eval::device_class;
use crate::python_script::names;
use crate::python_script::scan;
use crate::python_script::value::{Tensor, Value};
use crate::python_script::walk::{Args, Walker};
use rankscope_model::{DeviceClass, DeviceExpr, Fact, Framework, Launcher, LoopKind, SetDeviceHow};
use ruff_python_ast::{self as ast, Expr};
use ruff_text_size::{Ranged, TextSize};
use std::rc::Rc;

/// Options of trainers that bear on devices, data or memory.
const OPTIONS: [&str; 44] = [
    "accelerator",
    "accumulate_grad_batches",
    "auto_find_batch_size",
    "auto_select_gpus",
    "config",
    "cpu_offload",
    "dataloader_drop_last",
    "dataloader_num_workers",
    "ddp_find_unused_parameters",
    "deepspeed",
    "device_placement",
    "devices",
    "distributed_backend",
    "enable_checkpointing",
    "eval_accumulation_steps",
    "eval_strategy",
    "evaluation_strategy",
    "fsdp",
    "fsdp_config",
    "gpus",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "group_by_length",
    "include_inputs_for_metrics",
    "local_rank",
    "num_nodes",
    "num_sanity_val_steps",
    "per_device_eval_batch_size",
    "per_device_train_batch_size",
    "precision",
    "predict_with_generate",
    "prediction_loss_only",
    "reload_dataloaders_every_n_epochs",
    "replace_sampler_ddp",
    "save_only_model",
    "save_strategy",
    "sharding_strategy",
    "state_dict_type",
    "strategy",
    "sync_batchnorm",
    "use_distributed_sampler",
    "use_vllm",
    "vllm_gpu_memory_utilization",
    "vllm_mode",
];

impl<'a> Walker<'a> {
    /// Something is imported.
    pub(in crate::python_script) fn imported(&mut self, path: &str) {
        let framework = match names::root(path) {
            "torch" => Framework::Torch,
            "tensorflow" | "keras" => Framework::TensorFlow,
            "jax" | "flax" | "optax" => Framework::Jax,
            "ray" => Framework::Ray,
            "horovod" => Framework::Horovod,
            "megatron" | "nemo" => Framework::Megatron,
            "mmcv" | "mmengine" | "mmdet" | "mmseg" => Framework::OpenMmlab,
            "torchrec" => Framework::TorchRec,
            "mpi4py" => {
                self.facts.launchers.insert(Launcher::Mpi);
                Framework::Mpi
            }
            _ => return,
        };
        self.uses(framework);
    }

    pub(super) fn framework_call(
        &mut self,
        call: &'a ast::ExprCall,
        path: &Rc<str>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        let at = call.range_start;
        let tail = names::tail(path);
        let root = names::root(path);
        match tail {
            "Trainer" if matches!(root, "lightning" | "pytorch_lightning") => {
                self.uses(Framework::Lightning);
                self.facts.launchers.insert(Launcher::Trainer);
                self.trainer_built(at, path, args);
            }
            "Fabric" | "LightningLite" if matches!(root, "lightning" | "lightning_fabric" | "pytorch_lightning") => {
                self.uses(Framework::LightningFabric);
                self.facts.launchers.insert(Launcher::Trainer);
                self.trainer_built(at, path, args);
            }
            "LLM" | "AsyncLLMEngine" | "LLMEngine" | "AsyncLLM" if root == "vllm" => self.engine(at, path, args),
            "Engine" if root == "sglang" => self.engine(at, path, args),
            "MirroredStrategy" | "MultiWorkerMirroredStrategy" | "CollectiveAllReduceStrategy"
                if root == "tensorflow" =>
            {
                if tail != "MirroredStrategy" {
                    self.facts.launchers.insert(Launcher::Environment);
                }
                self.trainer_built(at, path, args);
            }
            "set_memory_growth" => {
                let what = self.text(call);
                let on_demand = !matches!(args.at(1), Some((_, Value::Bool(false))));
                self.fact(at, Fact::MemoryGrowth { what, on_demand });
            }
            "trace" | "trace_module" if path.starts_with("torch.jit") => self.trace(at, path),
            "export" if path.starts_with("torch.onnx") || &**path == "torch.export.export" => self.trace(at, path),
            "PipelineModule"
            | "PipelineStage"
            | "Pipe"
            | "ScheduleGPipe"
            | "Schedule1F1B"
            | "ScheduleInterleaved1F1B"
            | "get_forward_backward_func" => {
                self.uses(Framework::Pipeline);
                return Some(if tail == "PipelineModule" || tail == "Pipe" {
                    Value::Model
                } else {
                    Value::Made(Rc::clone(path))
                });
            }
            "MoE" | "MoELayer" | "FMoE" | "FMoETransformerMLP" | "SwitchTransformer" => {
                self.uses(Framework::MixtureOfExperts);
            }
            "DistributedModelParallel" | "EmbeddingBagCollection" | "EmbeddingShardingPlanner" => {
                self.uses(Framework::TorchRec);
            }
            _ if matches!(root, "transformers" | "trl" | "sentence_transformers" | "setfit" | "peft")
                && (tail.ends_with("Trainer")
                    || tail.ends_with("TrainingArguments")
                    || (root == "trl" && tail.ends_with("Config"))) =>
            {
                self.uses(Framework::HfTrainer);
                self.trainer_built(at, path, args);
            }
            _ if tail.ends_with("Strategy") && matches!(root, "lightning" | "pytorch_lightning" | "accelerate") => {
                if tail.contains("FSDP") {
                    self.uses(Framework::Fsdp);
                }
                self.trainer_built(at, path, args);
            }
            _ if names::is_trace_call(tail) => self.trace(at, path),
            _ if names::is_sampling_call(tail) && !matches!(root, "random" | "numpy" | "torch" | "secrets") => {
                self.fact(at, Fact::Sampling { call: path.to_string() });
                return None;
            }
            _ => return None,
        }
        Some(Value::Made(Rc::clone(path)))
    }

    fn trace(&mut self, at: TextSize, path: &str) {
        self.fact(at, Fact::GraphTrace { call: path.to_owned() });
    }

    fn engine(&mut self, at: TextSize, path: &str, args: &Args<'a>) {
        self.uses(Framework::InferenceEngine);
        let share = args.keyword("gpu_memory_utilization").or_else(|| args.keyword("mem_fraction_static"));
        let memory_share = share.map(|(expr, _)| self.text(expr));
        self.fact(at, Fact::EngineBuilt { call: path.to_owned(), memory_share });
    }

    /// A trainer, its arguments or its strategy.
    pub(in crate::python_script) fn trainer_built(&mut self, at: TextSize, path: &str, args: &Args<'a>) {
        let options: Vec<(String, String)> = args
            .keywords
            .iter()
            .filter(|(key, ..)| OPTIONS.binary_search(key).is_ok())
            .map(|(key, expr, _)| ((*key).to_owned(), self.text(*expr)))
            .collect();
        for (key, expr, value) in &args.keywords {
            self.config_entry(key, expr, value);
        }
        self.fact(at, Fact::TrainerBuilt { class: path.to_owned(), options });
    }

    /// An option in a configuration, as a keyword or in a dictionary.
    pub(in crate::python_script) fn config_entry(&mut self, key: &str, expr: &'a Expr, value: &Value<'a>) {
        let at = expr.start();
        match (key, value) {
            (
                "stage3_gather_16bit_weights_on_model_save" | "stage3_gather_fp16_weights_on_model_save",
                Value::Bool(true),
            ) => {
                self.fact(at, Fact::FullStateDict { call: key.to_owned(), offload_to_cpu: None, rank0_only: None });
            }
            ("state_dict_type", Value::Text(text)) if text.to_ascii_lowercase().contains("full") => {
                let call = format!("state_dict_type=\"{text}\"");
                self.fact(at, Fact::FullStateDict { call, offload_to_cpu: None, rank0_only: None });
            }
            ("gradient_accumulation_steps" | "accumulate_grad_batches", Value::Int(steps)) if *steps > 1 => {
                self.fact(at, Fact::GradAccumulation { what: format!("{key}={steps}") });
            }
            ("gradient_checkpointing" | "activation_checkpointing", Value::Bool(true)) => {
                self.fact(at, Fact::Checkpointing { call: key.to_owned() });
            }
            ("activation_checkpointing_policy" | "activation_checkpointing", value) if *value != Value::Nothing => {
                self.fact(at, Fact::Checkpointing { call: key.to_owned() });
            }
            ("use_vllm", Value::Bool(true)) => {
                self.uses(Framework::InferenceEngine);
                self.fact(at, Fact::EngineBuilt { call: "use_vllm=True".to_owned(), memory_share: None });
            }
            _ => {}
        }
    }

    pub(super) fn framework_method(
        &mut self,
        call: &'a ast::ExprCall,
        receiver: &Receiver<'a>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        let at = call.range_start;
        let name = receiver.name;
        let object = || self.source.slice(receiver.expr.range());
        match name {
            "add_graph" | "log_graph" => {
                let call = format!("{}.{name}", object());
                self.fact(at, Fact::GraphTrace { call });
                Some(Value::Nothing)
            }
            "fit" | "train" if object().to_ascii_lowercase().contains("trainer") => {
                if self.frames.len() == 1 {
                    self.seen.runs_on_import = true;
                }
                None
            }
            "evaluate" | "validate" | "predict" if object().to_ascii_lowercase().contains("trainer") => {
                let what = self.text(call);
                self.fact(at, Fact::EvalLoop { what, no_grad: true, sharded: None });
                Some(Value::Unknown)
            }
            "set_memory_growth" => {
                let what = self.text(call);
                let on_demand = !matches!(args.at(1), Some((_, Value::Bool(false))));
                self.fact(at, Fact::MemoryGrowth { what, on_demand });
                Some(Value::Nothing)
            }
            _ if names::is_sampling_call(name)
                && (self.is_model(receiver.expr, &receiver.base) || self.is_rank_only()) =>
            {
                let call = format!("{}.{name}", object());
                self.fact(at, Fact::Sampling { call });
                Some(Value::Tensor(Tensor { graph: self.no_grad == 0, gpu: true }))
            }
            _ => None,
        }
    }

    /// An assignment that sets something outside: the environment, a backend's switch, an option. Gives the value
    /// that the target then holds, which the target's name may tell more of.
    pub(in crate::python_script) fn setting(
        &mut self,
        target: &'a Expr,
        expr: &'a Expr,
        value: Value<'a>,
    ) -> Value<'a> {
        let at = target.start();
        match target {
            Expr::Subscript(subscript) => {
                let base = self.eval(&subscript.value);
                if matches!(&base, Value::Path(path) if &**path == "os.environ")
                    && let Value::Text(name) = self.eval(&subscript.slice)
                {
                    self.environment_set(name, expr, &value, at);
                }
            }
            Expr::Attribute(attribute) => match attribute.attr.as_str() {
                "benchmark" if value == Value::Bool(true) && scan::last_name(&attribute.value) == Some("cudnn") => {
                    self.fact(at, Fact::CudnnBenchmark {});
                }
                "allow_growth" => {
                    let what = format!("{} = {}", self.text(target), self.text(expr));
                    self.fact(at, Fact::MemoryGrowth { what, on_demand: value == Value::Bool(true) });
                }
                "per_process_gpu_memory_fraction" => {
                    let what = format!("{} = {}", self.text(target), self.text(expr));
                    self.fact(at, Fact::MemoryGrowth { what, on_demand: false });
                }
                "visible_device_list" => {
                    let class = device_class(&value).unwrap_or(DeviceClass::Unknown);
                    let device = DeviceExpr { class, text: self.text(expr) };
                    self.fact(at, Fact::SetDevice { how: SetDeviceHow::TensorFlow, device });
                }
                name => {
                    if let Value::Loader(id) = value {
                        self.loader_named(id, name);
                    }
                    self.plain_buffer(target, expr, at);
                }
            },
            Expr::Name(name) => match value {
                Value::Loader(id) => self.loader_named(id, name.id.as_str()),
                // `loss = compute(...)`: what is called a loss and comes from a call has a graph, while training.
                Value::Unknown
                    if matches!(expr, Expr::Call(_))
                        && names::is_loss(name.id.as_str())
                        && self.no_grad == 0
                        && self.loops.iter().any(|l| l.kind == LoopKind::TrainBatch) =>
                {
                    return Value::Tensor(Tensor { graph: true, gpu: true });
                }
                _ => {}
            },
            Expr::Tuple(ast::ExprTuple { elts, .. }) => {
                if let Value::Tuple(parts) = &value {
                    for (target, part) in elts.iter().zip(parts.iter()) {
                        if let (Value::Loader(id), Some(name)) = (part, scan::last_name(target)) {
                            self.loader_named(*id, name);
                        }
                    }
                }
            }
            _ => {}
        }
        super::state::state_on_host(expr).unwrap_or(value)
    }
}

#[cfg(test)]
mod tests {
    use super::OPTIONS;

    #[test]
    fn options_are_sorted_for_the_search() {
        assert!(OPTIONS.is_sorted());
    }
}
