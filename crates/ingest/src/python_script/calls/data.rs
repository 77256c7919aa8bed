//! Loaders, samplers, and whether they find each other.

use super::Receiver;
use crate::python_script::names;
use crate::python_script::value::{FactId, Value};
use crate::python_script::walk::{Args, Walker};
use rankscope_model::{Fact, LoaderRole, LoopKind, SamplerUse};
use ruff_python_ast as ast;
use std::rc::Rc;

impl<'a> Walker<'a> {
    pub(super) fn data_call(&mut self, call: &'a ast::ExprCall, path: &Rc<str>, args: &Args<'a>) -> Option<Value<'a>> {
        let tail = names::tail(path);
        if is_loader_class(tail) {
            return Some(self.loader(call, args));
        }
        if !names::is_class_name(tail) || !tail.ends_with("Sampler") {
            self.hand_on(args);
            return None;
        }
        if tail.contains("Distributed") || args.keyword("num_replicas").is_some() || args.keyword("rank").is_some() {
            let fact = Fact::DistributedSampler {
                class: path.to_string(),
                reaches_loader: false,
                shuffle: args.flag("shuffle"),
                drop_last: args.flag("drop_last"),
                has_set_epoch: false,
            };
            self.hand_on(args);
            return Some(self.fact(call.range_start, fact).map_or(Value::Unknown, Value::Sampler));
        }
        // A batch sampler around another sampler; a random sampler; one of the project.
        let inner = args.values().find_map(|value| match value {
            Value::Sampler(id) | Value::OtherSampler(Some(id)) => Some(*id),
            _ => None,
        });
        self.hand_on(args);
        let knows_no_rank =
            matches!(tail, "RandomSampler" | "SequentialSampler" | "WeightedRandomSampler" | "SubsetRandomSampler");
        Some(match inner {
            Some(id) => Value::OtherSampler(Some(id)),
            None if knows_no_rank => Value::Made(Rc::clone(path)),
            None => Value::OtherSampler(None),
        })
    }

    /// A sampler that is given to something reaches its loader, as far as can be seen.
    fn hand_on(&mut self, args: &Args<'a>) {
        let ids: Vec<FactId> = args
            .values()
            .filter_map(|value| match value {
                Value::Sampler(id) | Value::OtherSampler(Some(id)) => Some(*id),
                _ => None,
            })
            .collect();
        for id in ids {
            self.sampler_reaches(id);
        }
    }

    fn sampler_reaches(&mut self, id: FactId) {
        if let Some(Fact::DistributedSampler { reaches_loader, .. }) = self.facts.what_mut(id) {
            *reaches_loader = true;
        }
    }

    fn loader(&mut self, call: &'a ast::ExprCall, args: &Args<'a>) -> Value<'a> {
        let given = args.keyword("sampler").or_else(|| args.keyword("batch_sampler")).or_else(|| args.at(3));
        let sampler = match given.map(|(_, value)| value) {
            None if args.is_open => SamplerUse::Other,
            None | Some(Value::Nothing) => SamplerUse::Absent,
            Some(Value::Sampler(_) | Value::OtherSampler(Some(_))) => SamplerUse::Distributed,
            Some(Value::Made(path)) if names::tail(path).ends_with("Sampler") => SamplerUse::NotDistributed,
            Some(_) => SamplerUse::Other,
        };
        // What shards itself needs no sampler.
        let shards_itself = args.flag("distributed") == Some(true) || args.keyword("num_shards").is_some();
        let sampler = if shards_itself { SamplerUse::Framework } else { sampler };
        self.hand_on(args);
        let dataset = args.get("dataset", 0).map(|(expr, _)| self.text(expr)).unwrap_or_default();
        let text = |key: &str, position: usize| args.get(key, position).map(|(expr, _)| self.text(expr));
        let batch_size = text("batch_size", 1);
        let collate = args.keyword("collate_fn").map(|(expr, _)| self.text(expr));
        let num_workers = match args.keyword("num_workers") {
            Some((_, Value::Int(count))) => u32::try_from(*count).ok(),
            _ => None,
        };
        for (key, _, value) in &args.keywords {
            if let (&("collate_fn" | "worker_init_fn"), Value::Function(id)) = (key, value) {
                self.worker_functions.push(*id);
            }
        }
        let role = self.role_of(&dataset);
        let fact = Fact::DataLoader {
            sampler,
            role,
            dataset,
            shuffle: args.flag("shuffle").or_else(|| match args.at(2) {
                Some((_, Value::Bool(flag))) => Some(*flag),
                _ => None,
            }),
            drop_last: args.flag("drop_last"),
            num_workers,
            batch_size,
            collate,
        };
        let Some(id) = self.fact(call.range_start, fact) else { return Value::Unknown };
        if let Some(function) = self.frame_function() {
            self.loader_makers.insert(id, function);
        }
        if let Some(Value::Sampler(sampler) | Value::OtherSampler(Some(sampler))) = given.map(|(_, value)| value) {
            self.loader_samplers.insert(id, *sampler);
        }
        Value::Loader(id)
    }

    /// What a loader is for, by the names around it.
    fn role_of(&self, dataset: &str) -> LoaderRole {
        let function = self.function_name();
        match (names::is_train(dataset), names::is_eval(dataset)) {
            (true, false) => LoaderRole::Train,
            (false, true) => LoaderRole::Eval,
            _ if matches!(function, "val_dataloader" | "test_dataloader" | "predict_dataloader") => LoaderRole::Eval,
            _ if function == "train_dataloader" => LoaderRole::Train,
            _ => LoaderRole::Unknown,
        }
    }

    /// The name that a loader gets tells its role, where its data set does not.
    pub(in crate::python_script) fn loader_named(&mut self, id: FactId, name: &str) {
        let named = match (names::is_train(name), names::is_eval(name)) {
            (true, false) => LoaderRole::Train,
            (false, true) => LoaderRole::Eval,
            _ => return,
        };
        if let Some(Fact::DataLoader { role, .. }) = self.facts.what_mut(id)
            && *role == LoaderRole::Unknown
        {
            *role = named;
        }
    }

    pub(in crate::python_script) fn sampler_of(&self, loader: FactId) -> Option<FactId> {
        self.loader_samplers.get(&loader).copied()
    }

    /// A framework takes loaders over and deals the samples itself.
    pub(super) fn prepared(&mut self, values: &[Value<'a>]) {
        for value in values {
            if let Value::Loader(id) = value
                && let Some(Fact::DataLoader { sampler, .. }) = self.facts.what_mut(*id)
                && *sampler != SamplerUse::Distributed
            {
                *sampler = SamplerUse::Framework;
            }
        }
    }

    pub(super) fn data_method(
        &mut self,
        call: &'a ast::ExprCall,
        receiver: &Receiver<'a>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        match receiver.name {
            "set_epoch" => {
                let in_epoch_loop = self.loops.iter().any(|l| matches!(l.kind, LoopKind::Epoch | LoopKind::Other));
                let object = self.text(receiver.expr);
                self.fact(call.range_start, Fact::SetEpoch { object, in_epoch_loop });
                match &receiver.base {
                    Value::Sampler(id) | Value::OtherSampler(Some(id)) => self.reshuffles(*id),
                    Value::Loader(id) => {
                        if let Some(sampler) = self.sampler_of(*id) {
                            self.reshuffles(sampler);
                        }
                    }
                    _ => self.seen.set_epoch_elsewhere = true,
                }
                Some(Value::Nothing)
            }
            "add_argument" => {
                let name = args.positional.iter().filter_map(|(_, value)| match value {
                    Value::Text(text) => Some(*text),
                    _ => None,
                });
                let name = name.max_by_key(|text| text.len())?;
                let destination = match args.keyword("dest") {
                    Some((_, Value::Text(text))) => *text,
                    _ => name,
                };
                let attribute = destination.trim_start_matches('-').replace('-', "_");
                if matches!(attribute.as_str(), "local_rank" | "local-rank") {
                    self.facts.launchers.insert(rankscope_model::Launcher::Argument);
                }
                if let Some((_, value)) = args.keyword("default") {
                    let value = value.clone();
                    self.options.insert(attribute, value);
                }
                Some(Value::Nothing)
            }
            _ => {
                self.hand_on(args);
                None
            }
        }
    }

    fn reshuffles(&mut self, id: FactId) {
        if let Some(Fact::DistributedSampler { has_set_epoch, .. }) = self.facts.what_mut(id) {
            *has_set_epoch = true;
        }
    }
}

fn is_loader_class(tail: &str) -> bool {
    matches!(
        tail,
        "DataLoader"
            | "StatefulDataLoader"
            | "DataLoaderX"
            | "DataListLoader"
            | "BackgroundDataLoader"
            | "MultiEpochsDataLoader"
    )
}
