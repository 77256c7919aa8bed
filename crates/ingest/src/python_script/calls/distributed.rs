//! Process groups, wrappers, collectives, and processes that the script starts.

use super::Receiver;
use crate::python_script::names;
use crate::python_script::value::{RankKind, Value};
use crate::python_script::walk::{Args, Walker};
use rankscope_model::{Fact, FlowProcess, Framework, Launcher};
use ruff_python_ast as ast;
use ruff_python_ast::Expr;
use std::rc::Rc;

impl<'a> Walker<'a> {
    pub(super) fn distributed_call(
        &mut self,
        call: &'a ast::ExprCall,
        path: &Rc<str>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        let tail = names::tail(path);
        match tail {
            "init_process_group" => {
                self.process_group(call, path, args, false);
                Some(Value::Nothing)
            }
            "init_distributed" if names::root(path) == "deepspeed" => {
                self.process_group(call, path, args, false);
                Some(Value::Nothing)
            }
            "init_dist" if path.starts_with("mm") => {
                // Its pytorch launcher calls `torch.cuda.set_device(rank % num_gpus)` itself.
                self.facts.launchers.insert(Launcher::Environment);
                self.process_group(call, path, args, true);
                Some(Value::Nothing)
            }
            "init" if path.starts_with("horovod.") => {
                self.facts.launchers.insert(Launcher::Horovod);
                self.process_group(call, path, args, false);
                Some(Value::Nothing)
            }
            "initialize" if path.starts_with("jax.distributed") => {
                // It deals the devices of the host to its processes itself, or is told which.
                self.facts.launchers.insert(Launcher::Environment);
                self.process_group(call, path, args, true);
                Some(Value::Nothing)
            }
            "Accelerator" | "PartialState" => {
                self.uses(Framework::Accelerate);
                self.facts.launchers.insert(Launcher::Environment);
                self.process_group(call, path, args, true);
                self.trainer_built(call.range_start, path, args);
                Some(Value::Made(Rc::clone(path)))
            }
            "DistributedDataParallel" | "DDP" | "MMDistributedDataParallel" | "LightningDistributedDataParallel" => {
                Some(self.wrap_ddp(call, path, args))
            }
            "FullyShardedDataParallel" | "FSDP" | "fully_shard" => Some(self.wrap_fsdp(call, path, args)),
            "DataParallel" | "MMDataParallel" | "DataParallelModel" => {
                self.uses(Framework::DataParallel);
                let model = args.get("module", 0).map(|(expr, _)| self.text(expr)).unwrap_or_default();
                self.fact(call.range_start, Fact::DataParallel { model });
                Some(Value::Model)
            }
            "all_gather_object"
            | "gather_object"
            | "broadcast_object_list"
            | "scatter_object_list"
            | "allgather_object"
            | "broadcast_object" => {
                // The first argument is the list that receives, for `all_gather_object`; the object comes second.
                let position = usize::from(tail == "all_gather_object" && path.contains("distributed"));
                self.object_collective(call, path, args, position);
                Some(Value::Unknown)
            }
            "all_gather"
            | "gather"
            | "all_gather_into_tensor"
            | "_all_gather_base"
            | "allgather"
            | "concat_all_gather"
            | "all_gather_coalesced"
                if path.contains("dist") || path.contains("horovod") || names::root(path) != "torch" =>
            {
                let position = usize::from(path.starts_with("torch.") && tail != "gather");
                let payload = args.at(position).or_else(|| args.at(0)).map(|(expr, _)| self.text(expr));
                let payload = payload.unwrap_or_default();
                self.fact(call.range_start, Fact::TensorGather { call: path.to_string(), payload });
                let tensor = args.values().find_map(Value::tensor);
                Some(tensor.map_or(Value::Unknown, Value::Tensor))
            }
            "spawn" | "start_processes" if path.contains("multiprocessing") || path.contains("xla") => {
                self.facts.launchers.insert(Launcher::Spawn);
                self.spawn(call, path, args, FlowProcess::Spawned);
                Some(Value::Unknown)
            }
            "notebook_launcher" | "launch" | "elastic_launch" if has_function(args) => {
                self.facts.launchers.insert(Launcher::Spawn);
                self.spawn(call, path, args, FlowProcess::Spawned);
                Some(Value::Unknown)
            }
            "Process" if path.contains("multiprocessing") => {
                self.process(call, path, args);
                Some(Value::Made(Rc::clone(path)))
            }
            "Thread" | "Timer" if path.starts_with("threading") => {
                self.spawn(call, path, args, FlowProcess::Thread);
                Some(Value::Made(Rc::clone(path)))
            }
            "local_rank" if path.starts_with("horovod.") => Some(Value::Rank(RankKind::Local)),
            "rank" if path.starts_with("horovod.") => Some(Value::Rank(RankKind::Global)),
            "Get_rank" if path.starts_with("mpi4py") => {
                self.facts.launchers.insert(Launcher::Mpi);
                Some(Value::Rank(RankKind::Global))
            }
            _ => None,
        }
    }

    fn process_group(&mut self, call: &'a ast::ExprCall, path: &str, args: &Args<'a>, binds_device: bool) {
        let backend = match args.get("backend", 0) {
            Some((_, Value::Text(text))) if !text.contains("://") => Some((*text).to_owned()),
            _ => None,
        };
        let device_id = args.keyword("device_id").map(|(expr, value)| self.device(expr, value));
        let local_rank = self.local_rank_in_scope();
        let fact = Fact::InitProcessGroup { call: path.to_owned(), backend, device_id, local_rank, binds_device };
        self.fact(call.range_start, fact);
    }

    fn wrap_ddp(&mut self, call: &'a ast::ExprCall, path: &str, args: &Args<'a>) -> Value<'a> {
        self.uses(Framework::Ddp);
        let model = args.get("module", 0).map(|(expr, _)| self.text(expr)).unwrap_or_default();
        let device_ids = args.get("device_ids", 1).and_then(|(expr, value)| match value {
            Value::Nothing => None,
            Value::Tuple(parts) => {
                let inner = match expr {
                    Expr::List(ast::ExprList { elts, .. }) | Expr::Tuple(ast::ExprTuple { elts, .. }) => elts.first(),
                    _ => None,
                };
                let first = parts.first()?;
                Some(self.device(inner.unwrap_or(expr), first))
            }
            value => Some(self.device(expr, value)),
        });
        self.fact(call.range_start, Fact::WrapDdp { wrapper: path.to_owned(), model, device_ids });
        Value::Model
    }

    fn wrap_fsdp(&mut self, call: &'a ast::ExprCall, path: &str, args: &Args<'a>) -> Value<'a> {
        self.uses(Framework::Fsdp);
        let model = args.get("module", 0).map(|(expr, _)| self.text(expr)).unwrap_or_default();
        let device_id = args.keyword("device_id").map(|(expr, value)| self.device(expr, value));
        let syncs_states = args.flag("sync_module_states") == Some(true);
        self.fact(call.range_start, Fact::WrapFsdp { wrapper: path.to_owned(), model, device_id, syncs_states });
        Value::Model
    }

    fn object_collective(&mut self, call: &'a ast::ExprCall, path: &str, args: &Args<'a>, position: usize) {
        let payload = args.keyword("obj").or_else(|| args.at(position)).or_else(|| args.at(0));
        let on_gpu = payload.and_then(|(_, value)| value.tensor()).map(|tensor| tensor.gpu);
        let payload = payload.map(|(expr, _)| self.text(expr)).unwrap_or_default();
        self.fact(call.range_start, Fact::ObjectCollective { call: path.to_owned(), payload, on_gpu });
    }

    /// `Process(target=f, args=(rank, ...))`: a training process when its function takes a rank.
    fn process(&mut self, call: &'a ast::ExprCall, path: &str, args: &Args<'a>) {
        let takes_rank = match args.keyword("target") {
            Some((_, Value::Function(id))) => self.functions.get(*id).is_some_and(|function| {
                let mut parameters = function.def.parameters.args.iter();
                parameters.any(|parameter| names::rank_name(parameter.parameter.name.as_str()).is_some())
            }),
            _ => false,
        };
        if takes_rank {
            self.facts.launchers.insert(Launcher::Spawn);
        }
        self.spawn(call, path, args, FlowProcess::Spawned);
    }

    fn spawn(&mut self, call: &'a ast::ExprCall, path: &str, args: &Args<'a>, process: FlowProcess) {
        let found = args.keyword("target").or_else(|| args.get("fn", 0)).or_else(|| args.keyword("function"));
        let Some((expr, target)) = found else { return };
        let target = target.clone();
        self.fact(call.range_start, Fact::Spawn { call: path.to_owned(), target: self.text(expr) });
        let mut given = Vec::new();
        if names::tail(path) == "spawn" || names::tail(path) == "start_processes" {
            given.push(Value::Rank(RankKind::Local));
        }
        if let Some((_, Value::Tuple(parts))) = args.get("args", 1) {
            given.extend(parts.iter().cloned());
        }
        self.start(&target, process, given);
    }

    pub(super) fn distributed_method(
        &mut self,
        call: &'a ast::ExprCall,
        receiver: &Receiver<'a>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        let base_path = match &receiver.base {
            Value::Made(path) => Rc::clone(path),
            _ => "".into(),
        };
        let object = self.text(receiver.expr);
        match receiver.name {
            "no_sync" => {
                self.fact(call.range_start, Fact::NoSync { object });
                Some(Value::Unknown)
            }
            // FSDP2 has no `no_sync`; this is its switch.
            "set_requires_gradient_sync" if !matches!(args.at(0), Some((_, Value::Bool(true)))) => {
                self.fact(call.range_start, Fact::NoSync { object });
                Some(Value::Nothing)
            }
            "accumulate" if is_preparer(&base_path, &object) => {
                let what = self.text(call);
                self.fact(call.range_start, Fact::GradAccumulation { what });
                Some(Value::Unknown)
            }
            "Process" if args.keyword("target").is_some() => {
                self.process(call, "multiprocessing.Process", args);
                Some(Value::Unknown)
            }
            "spawn" if has_function(args) => {
                self.facts.launchers.insert(Launcher::Spawn);
                self.spawn(call, "multiprocessing.spawn", args, FlowProcess::Spawned);
                Some(Value::Unknown)
            }
            "map" | "imap" | "imap_unordered" | "starmap" | "apply" | "apply_async" | "map_async" | "starmap_async"
            | "submit"
                if has_function(args) && (is_pool(&base_path) || is_pool_name(&object)) =>
            {
                let process = if base_path.contains("Thread") { FlowProcess::Thread } else { FlowProcess::Worker };
                self.spawn(call, &format!("{object}.{}", receiver.name), args, process);
                Some(Value::Unknown)
            }
            "gather" | "gather_for_metrics" | "all_gather" if is_gatherer(&base_path, &object) => {
                let payload = args.at(0).map(|(expr, _)| self.text(expr)).unwrap_or_default();
                let name = format!("{object}.{}", receiver.name);
                self.fact(call.range_start, Fact::TensorGather { call: name, payload });
                args.at(0).map(|(_, value)| value.clone())
            }
            "gather_object" | "all_gather_object" | "allgather" => {
                self.object_collective(call, &format!("{object}.{}", receiver.name), args, 0);
                Some(Value::Unknown)
            }
            "prepare" | "setup" if is_preparer(&base_path, &object) => {
                let values: Vec<Value<'a>> = args.positional.iter().map(|(_, value)| value.clone()).collect();
                self.prepared(&values);
                let mut values = values;
                for (value, (expr, _)) in values.iter_mut().zip(&args.positional) {
                    if self.is_model(expr, value) {
                        *value = Value::Model;
                    }
                }
                Some(match values.as_slice() {
                    [only] => only.clone(),
                    _ => Value::tuple(values),
                })
            }
            "setup_dataloaders"
            | "prepare_data_loader"
            | "setup_module"
            | "setup_optimizers"
            | "prepare_model"
            | "process_dataloader" => {
                let values: Vec<Value<'a>> = args.positional.iter().map(|(_, value)| value.clone()).collect();
                self.prepared(&values);
                Some(match values.as_slice() {
                    [only] => only.clone(),
                    _ => Value::tuple(values),
                })
            }
            "launch" if base_path.ends_with("Fabric") || object == "fabric" => {
                self.process_group(call, &format!("{object}.launch"), args, true);
                Some(Value::Nothing)
            }
            _ => None,
        }
    }
}

fn has_function(args: &Args) -> bool {
    args.values().any(|value| matches!(value, Value::Function(_) | Value::Method(..) | Value::Partial(..)))
}

fn is_pool(path: &str) -> bool {
    path.contains("Pool")
}

fn is_pool_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("pool") || name.contains("executor")
}

/// An object whose `gather` is a collective.
fn is_gatherer(path: &str, object: &str) -> bool {
    let tail = names::tail(path);
    matches!(tail, "Accelerator" | "Fabric" | "PartialState")
        || ["accelerator", "fabric", "self", "trainer", "self.accelerator", "self.fabric", "pl_module", "self.trainer"]
            .contains(&object)
}

fn is_preparer(path: &str, object: &str) -> bool {
    matches!(names::tail(path), "Accelerator" | "Fabric")
        || ["accelerator", "fabric", "self.accelerator", "self.fabric"].contains(&object)
}
