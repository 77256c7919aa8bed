//! Calls that choose a GPU, put something on one, or initialise CUDA.

use super::Receiver;
use crate::python_script::eval::{device_class, device_text};
use crate::python_script::names;
use crate::python_script::value::{Tensor, Value};
use crate::python_script::walk::{Args, Walker};
use rankscope_model::{DeviceClass, DeviceExpr, Fact, SetDeviceHow};
use ruff_python_ast::{self as ast, Expr};
use ruff_text_size::Ranged;
use std::rc::Rc;

impl<'a> Walker<'a> {
    pub(super) fn placement_call(
        &mut self,
        call: &'a ast::ExprCall,
        path: &Rc<str>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        let at = call.range_start;
        let tail = names::tail(path);
        if moves_itself(path) && args.keyword("device").is_none() {
            let device = DeviceExpr { class: DeviceClass::Current, text: format!("default of {tail}") };
            let object = self.text(call);
            self.fact(at, Fact::NamedDevice { how: tail.to_owned(), object, device });
            return Some(Value::Model);
        }
        if path.starts_with("torch.cuda.") || path.starts_with("torch.accelerator.") {
            return self.cuda_call(call, path, args);
        }
        match &**path {
            "torch.device" => {
                let (_, first) = args.at(0)?;
                let value = match (first, args.get("index", 1)) {
                    (Value::Text("cuda"), Some((_, index))) => device_class(index).unwrap_or(DeviceClass::Unknown),
                    (value, _) => device_class(value).unwrap_or(DeviceClass::Unknown),
                };
                Some(Value::Device(value))
            }
            "torch.set_default_device" => {
                let (expr, value) = args.at(0)?;
                let device = self.device(expr, value);
                if device.class.is_shared_default() {
                    self.fact(
                        at,
                        Fact::NamedDevice { how: tail.to_owned(), object: "default device".to_owned(), device },
                    );
                }
                Some(Value::Nothing)
            }
            "torch.set_default_tensor_type" => {
                let (expr, value) = args.at(0)?;
                let names_cuda = matches!(value, Value::Text(text) if text.contains("cuda"))
                    || matches!(value, Value::Path(path) if path.contains(".cuda."));
                if names_cuda {
                    let device = DeviceExpr { class: DeviceClass::Current, text: self.text(expr) };
                    self.fact(
                        at,
                        Fact::NamedDevice { how: tail.to_owned(), object: "default tensors".to_owned(), device },
                    );
                }
                Some(Value::Nothing)
            }
            "torch.compile" => {
                if self.in_worker() {
                    self.worker_cuda(at, path.to_string());
                }
                args.at(0).map(|(_, value)| value.clone())
            }
            "os.environ.get" | "os.getenv" => match args.at(0)? {
                (_, Value::Text(name)) => {
                    let name = *name;
                    Some(self.environment(name))
                }
                _ => Some(Value::Unknown),
            },
            "os.environ.setdefault" => {
                if let (Some((_, Value::Text(name))), Some((expr, value))) = (args.at(0), args.at(1)) {
                    let (name, value) = (*name, value.clone());
                    self.environment_set(name, expr, &value, at);
                }
                Some(Value::Unknown)
            }
            "os.environ.update" => {
                for (key, expr, value) in &args.keywords {
                    self.environment_set(key, expr, value, at);
                }
                Some(Value::Nothing)
            }
            "tensorflow.config.set_visible_devices" | "tensorflow.config.experimental.set_visible_devices" => {
                let (expr, value) = args.at(0)?;
                let device = self.device(expr, value);
                self.fact(at, Fact::SetDevice { how: SetDeviceHow::TensorFlow, device });
                Some(Value::Nothing)
            }
            _ => None,
        }
    }

    fn cuda_call(&mut self, call: &'a ast::ExprCall, path: &Rc<str>, args: &Args<'a>) -> Option<Value<'a>> {
        let at = call.range_start;
        match names::tail(path) {
            "set_device" | "set_device_index" => {
                let (expr, value) = args.get("device", 0)?;
                let device = self.device(expr, value);
                self.fact(at, Fact::SetDevice { how: SetDeviceHow::SetDevice, device });
                Some(Value::Nothing)
            }
            "device" | "device_of" => Some(Value::Made(Rc::clone(path))),
            "empty_cache" => {
                self.fact(at, Fact::EmptyCache {});
                Some(Value::Nothing)
            }
            "current_device" | "current_device_index" => {
                self.cuda_touch(call, path, args);
                Some(Value::Device(DeviceClass::AskedCurrent))
            }
            "init"
            | "synchronize"
            | "mem_get_info"
            | "get_device_name"
            | "get_device_properties"
            | "get_device_capability"
            | "current_stream"
            | "memory_summary"
            | "ipc_collect"
            | "Event" => {
                self.cuda_touch(call, path, args);
                Some(Value::Host)
            }
            "Stream" | "stream" | "ExternalStream" => {
                let what = self.text(call);
                self.fact(at, Fact::SideStream { what });
                Some(Value::Made(Rc::clone(path)))
            }
            "set_per_process_memory_fraction" => {
                let what = self.text(call);
                self.fact(at, Fact::MemoryGrowth { what, on_demand: false });
                Some(Value::Nothing)
            }
            _ => None,
        }
    }

    fn cuda_touch(&mut self, call: &'a ast::ExprCall, path: &Rc<str>, args: &Args<'a>) {
        let device = args.get("device", 0).map(|(expr, value)| self.device(expr, value));
        self.fact(call.range_start, Fact::CudaCall { call: path.to_string(), device });
    }

    /// `with torch.cuda.device(x):`.
    pub(in crate::python_script) fn with_device(&mut self, context: &'a Expr, path: &str) {
        if path != "torch.cuda.device" && path != "torch.device" {
            return;
        }
        let Expr::Call(call) = context else { return };
        let Some(expr) = call.arguments.args.first() else { return };
        let value = self.eval(expr);
        let device = self.device(expr, &value);
        self.fact(context.start(), Fact::SetDevice { how: SetDeviceHow::WithDevice, device });
    }

    pub(super) fn placement_method(
        &mut self,
        call: &'a ast::ExprCall,
        receiver: &Receiver<'a>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        let at = call.range_start;
        let device = match receiver.name {
            "cuda" => match args.get("device", 0) {
                Some((expr, value)) if *value != Value::Bool(true) => self.device(expr, value),
                _ => DeviceExpr { class: DeviceClass::Current, text: ".cuda()".to_owned() },
            },
            "to" | "to_empty" | "_apply_device" => {
                let (expr, value) = args.get("device", 0)?;
                // `.to(torch.float16)`, `.to(other)`: no device.
                let class = device_class(value)?;
                DeviceExpr { class, text: self.text(expr) }
            }
            "cpu" => match receiver.base {
                Value::Tensor(tensor) => return Some(Value::Tensor(Tensor { gpu: false, ..tensor })),
                Value::State { of_optimizer, .. } => return Some(Value::State { of_optimizer, on_cpu: true }),
                _ => {
                    return if self.is_model(receiver.expr, &receiver.base) {
                        self.copy_goes_to_host(receiver.expr);
                        Some(Value::Model)
                    } else {
                        Some(Value::Host)
                    };
                }
            },
            _ => return None,
        };
        let how = if receiver.name == "cuda" { ".cuda()" } else { ".to()" };
        if self.is_model(receiver.expr, &receiver.base) {
            if device.class == DeviceClass::Cpu {
                self.copy_goes_to_host(receiver.expr);
            }
            let model = self.text(receiver.expr);
            self.fact(at, Fact::ModelToDevice { model, device });
            return Some(match &receiver.base {
                Value::Unknown => Value::Model,
                value => value.clone(),
            });
        }
        let on_gpu = !matches!(device.class, DeviceClass::Cpu | DeviceClass::Unknown);
        if device.class.is_shared_default() {
            let object = self.text(receiver.expr);
            self.fact(at, Fact::NamedDevice { how: how.to_owned(), object, device });
        }
        Some(match &receiver.base {
            Value::Tensor(tensor) => Value::Tensor(Tensor { gpu: on_gpu || tensor.gpu, ..*tensor }),
            // What is moved to a GPU there is at least a tensor, or a batch of them.
            Value::Unknown | Value::Host if on_gpu => Value::Tensor(Tensor { graph: false, gpu: true }),
            Value::Made(path) if on_gpu && path.starts_with("torch.") => {
                Value::Tensor(Tensor { graph: false, gpu: true })
            }
            value => value.clone(),
        })
    }

    /// `os.environ[name] = value` and its relatives.
    pub(in crate::python_script) fn environment_set(
        &mut self,
        name: &str,
        expr: &'a Expr,
        value: &Value<'a>,
        at: ruff_text_size::TextSize,
    ) {
        match name {
            "CUDA_VISIBLE_DEVICES" => {
                let class = match value {
                    Value::Text(text) => match text.trim().parse() {
                        Ok(index) => DeviceClass::Literal(index),
                        Err(_) => device_text(text).unwrap_or(DeviceClass::Unknown),
                    },
                    value => device_class(value).unwrap_or(DeviceClass::Unknown),
                };
                let device = DeviceExpr { class, text: self.text(expr) };
                self.fact(at, Fact::SetDevice { how: SetDeviceHow::VisibleDevices, device });
            }
            "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" => {
                let value = self.text(expr);
                self.fact(at, Fact::AllocatorConfig { value });
            }
            "XLA_PYTHON_CLIENT_PREALLOCATE" | "TF_FORCE_GPU_ALLOW_GROWTH" | "XLA_PYTHON_CLIENT_MEM_FRACTION" => {
                let text = self.text(expr).to_ascii_lowercase();
                let on_demand = match name {
                    "XLA_PYTHON_CLIENT_PREALLOCATE" => text.contains("false") || text.contains('0'),
                    "TF_FORCE_GPU_ALLOW_GROWTH" => text.contains("true") || text.contains('1'),
                    _ => false,
                };
                self.fact(at, Fact::MemoryGrowth { what: format!("{name}={}", self.text(expr)), on_demand });
            }
            _ => {}
        }
    }
}

/// Library calls that put their model on the current GPU unless they are told a device.
fn moves_itself(path: &str) -> bool {
    matches!(
        path,
        "sentence_transformers.SentenceTransformer"
            | "sentence_transformers.CrossEncoder"
            | "sentence_transformers.SparseEncoder"
            | "clip.load"
            | "whisper.load_model"
    )
}
