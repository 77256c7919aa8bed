//! What an expression is worth: devices, ranks, conditions on ranks, tensors and what they keep alive.
//!
//! Every sub-expression is evaluated once, in the order in which Python would, because calls inside of it are facts.

use super::names;
use super::scan;
use super::value::{RankKind, Selects, Tensor, Value};
use super::walk::Walker;
use rankscope_model::{DeviceClass, DeviceExpr, Fact, Framework};
use ruff_python_ast::{self as ast, CmpOp, Expr, Number, Operator, UnaryOp};
use ruff_text_size::Ranged;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Longest dotted name that is put together.
const MAX_PATH: usize = 160;

impl<'a> Walker<'a> {
    pub(super) fn eval(&mut self, expr: &'a Expr) -> Value<'a> {
        if self.enter() {
            let value = self.eval_inner(expr);
            self.leave();
            value
        } else {
            Value::Unknown
        }
    }

    fn eval_inner(&mut self, expr: &'a Expr) -> Value<'a> {
        match expr {
            Expr::Name(name) => self.named(name.id.as_str()),
            Expr::Attribute(attribute) => self.attribute(attribute),
            Expr::Call(call) => self.call(call),
            Expr::StringLiteral(text) => Value::Text(text.value.to_str()),
            Expr::NumberLiteral(number) => match &number.value {
                Number::Int(int) => int.as_i64().map_or(Value::Unknown, Value::Int),
                _ => Value::Unknown,
            },
            Expr::BooleanLiteral(literal) => Value::Bool(literal.value),
            Expr::NoneLiteral(_) => Value::Nothing,
            Expr::FString(text) => self.f_string(text),
            Expr::BinOp(op) => self.binary(op),
            Expr::UnaryOp(op) => {
                let value = self.eval(&op.operand);
                match (op.op, value) {
                    (UnaryOp::Not, Value::Selects(selects, is_exact)) => match selects.opposite() {
                        Some(opposite) if is_exact => Value::Selects(opposite, true),
                        _ => Value::Unknown,
                    },
                    (UnaryOp::Not, Value::Rank(_)) => Value::Selects(Selects::RankZero, true),
                    (UnaryOp::Not, Value::Bool(flag)) => Value::Bool(!flag),
                    (UnaryOp::USub, Value::Int(int)) => int.checked_neg().map_or(Value::Unknown, Value::Int),
                    (UnaryOp::USub, Value::Tensor(tensor)) => Value::Tensor(tensor),
                    _ => Value::Unknown,
                }
            }
            Expr::BoolOp(op) => self.boolean(op),
            Expr::Compare(compare) => self.compare(compare),
            Expr::If(branch) => self.conditional(branch),
            Expr::Tuple(ast::ExprTuple { elts, .. }) | Expr::List(ast::ExprList { elts, .. }) => {
                let parts: Vec<Value<'a>> = elts.iter().map(|part| self.eval(part)).collect();
                Value::tuple(parts)
            }
            Expr::Set(set) => {
                for part in &set.elts {
                    self.eval(part);
                }
                Value::Unknown
            }
            Expr::Dict(dict) => self.dict(dict),
            Expr::Subscript(subscript) => self.subscript(subscript),
            Expr::Starred(starred) => self.eval(&starred.value),
            Expr::Named(named) => {
                let value = self.eval(&named.value);
                self.assign(&named.target, value.clone());
                value
            }
            Expr::Await(await_) => self.eval(&await_.value),
            Expr::Yield(yield_) => {
                if let Some(value) = yield_.value.as_deref() {
                    self.eval(value);
                }
                Value::Unknown
            }
            Expr::YieldFrom(yield_) => self.eval(&yield_.value),
            Expr::Lambda(lambda) => {
                // Its body is part of whatever it is handed to; a call of it is not followed.
                self.eval(&lambda.body);
                Value::Unknown
            }
            Expr::ListComp(ast::ExprListComp { elt, generators, .. })
            | Expr::SetComp(ast::ExprSetComp { elt, generators, .. })
            | Expr::Generator(ast::ExprGenerator { elt, generators, .. }) => {
                self.generators(generators);
                let element = self.eval(elt);
                self.copies_weights(expr, elt, generators);
                // `[model(x) for x in xs]`: as many as there are; what one keeps, all keep.
                element.tensor().map_or(Value::Unknown, Value::Tensor)
            }
            Expr::DictComp(comp) => {
                self.generators(&comp.generators);
                if let Some(key) = comp.key.as_deref() {
                    self.eval(key);
                }
                let value = self.eval(&comp.value);
                self.copies_weights(expr, &comp.value, &comp.generators);
                value.tensor().map_or(Value::Unknown, Value::Tensor)
            }
            Expr::TString(_)
            | Expr::BytesLiteral(_)
            | Expr::EllipsisLiteral(_)
            | Expr::Slice(_)
            | Expr::IpyEscapeCommand(_) => Value::Unknown,
        }
    }

    fn generators(&mut self, generators: &'a [ast::Comprehension]) {
        for generator in generators {
            let iterated = self.eval(&generator.iter);
            let item = match &iterated {
                Value::Tuple(parts) => parts.iter().cloned().reduce(Value::join).unwrap_or(Value::Unknown),
                Value::Tensor(tensor) => Value::Tensor(*tensor),
                _ => Value::Unknown,
            };
            let item = if matches!(item, Value::Loader(_)) { Value::Unknown } else { item };
            self.assign(&generator.target, item);
            for test in &generator.ifs {
                self.eval(test);
            }
        }
    }

    fn named(&mut self, name: &'a str) -> Value<'a> {
        match self.lookup(name) {
            Value::Unknown => by_custom(name),
            value => value,
        }
    }

    fn attribute(&mut self, attribute: &'a ast::ExprAttribute) -> Value<'a> {
        let base = self.eval(&attribute.value);
        self.member(&base, &attribute.value, attribute.attr.as_str())
    }

    /// `base.name`.
    pub(super) fn member(&mut self, base: &Value<'a>, base_expr: &'a Expr, name: &'a str) -> Value<'a> {
        match base {
            Value::Path(path) => {
                if path.len().saturating_add(name.len()) > MAX_PATH {
                    return Value::Unknown;
                }
                let path: Rc<str> = format!("{path}.{name}").into();
                return Value::Path(path);
            }
            Value::Instance(class) | Value::Class(class) => {
                if let Some(value) = self.class_of_attribute(*class, name)
                    && *value != Value::Unknown
                {
                    return value.clone();
                }
                if let Some(method) = self.method_of(*class, name) {
                    return Value::Method(*class, method);
                }
                let of_framework = self.classes.get(*class).is_some_and(|class| class.is_lightning);
                if of_framework && name == "device" {
                    return Value::Device(DeviceClass::Framework);
                }
            }
            Value::Tensor(tensor) => {
                return match name {
                    "shape" | "dtype" | "device" | "ndim" | "requires_grad" => Value::Unknown,
                    "data" => Value::Tensor(Tensor { graph: false, ..*tensor }),
                    _ => Value::Tensor(*tensor),
                };
            }
            Value::Model if name == "module" => return Value::Model,
            Value::Loader(id) if matches!(name, "sampler" | "batch_sampler") => {
                return self.sampler_of(*id).map_or(Value::Unknown, Value::Sampler);
            }
            Value::Made(path) if name == "device" && is_rank_aware(path) => {
                return Value::Device(DeviceClass::Framework);
            }
            _ => {}
        }
        let base_name = scan::last_name(base_expr).unwrap_or_default();
        if name == "device" && matches!(base_name, "accelerator" | "fabric" | "trainer" | "state" | "distributed_state")
        {
            return Value::Device(DeviceClass::Framework);
        }
        if names::is_options(base_name)
            && let Some(value) = self.options.get(name)
        {
            return match (value, names::rank_name(name)) {
                (Value::Int(_) | Value::Nothing | Value::Unknown, Some(kind)) => Value::Rank(kind),
                _ => value.clone(),
            };
        }
        if matches!(name, "is_world_process_zero") {
            return Value::Selects(Selects::RankZero, true);
        }
        by_custom(name)
    }

    /// A device written as a text, or put together from one.
    fn f_string(&mut self, text: &'a ast::ExprFString) -> Value<'a> {
        let mut prefix = String::new();
        let mut inner = None;
        let mut count = 0usize;
        for part in text.value.as_slice() {
            match part {
                ast::FStringPart::Literal(literal) => prefix.push_str(literal.as_str()),
                ast::FStringPart::FString(string) => {
                    for element in &string.elements {
                        match element {
                            ast::InterpolatedStringElement::Literal(literal) if count == 0 && prefix.len() < 64 => {
                                prefix.push_str(&literal.value);
                            }
                            ast::InterpolatedStringElement::Literal(_) => {}
                            ast::InterpolatedStringElement::Interpolation(field) => {
                                count = count.saturating_add(1);
                                inner = Some(self.eval(&field.expression));
                            }
                        }
                    }
                }
            }
        }
        match inner {
            Some(value) if count == 1 => numbered_device(&prefix, &value),
            _ => Value::Unknown,
        }
    }

    fn binary(&mut self, op: &'a ast::ExprBinOp) -> Value<'a> {
        let left = self.eval(&op.left);
        let right = self.eval(&op.right);
        match (op.op, &left, &right) {
            // `rank % torch.cuda.device_count()` is how a local rank is made of a global one.
            (Operator::Mod, Value::Rank(_), _) => Value::Rank(RankKind::Local),
            (Operator::Mod, Value::Text(text), value) => match text.split_once('%') {
                Some((prefix, "d" | "s" | "i")) => numbered_device(prefix, value),
                _ => Value::Unknown,
            },
            (Operator::Add, Value::Text(text), value) => numbered_device(text, value),
            // `rank + offset` still differs from rank to rank.
            (Operator::Add | Operator::Sub, Value::Rank(kind), Value::Int(_) | Value::Unknown)
            | (Operator::Add, Value::Int(_) | Value::Unknown, Value::Rank(kind)) => Value::Rank(*kind),
            (_, Value::Int(a), Value::Int(b)) => arithmetic(op.op, *a, *b).map_or(Value::Unknown, Value::Int),
            (Operator::Add, Value::Tuple(_), _) | (Operator::Add, _, Value::Tuple(_)) => {
                match left.tensor().into_iter().chain(right.tensor()).reduce(Tensor::and) {
                    Some(tensor) => Value::Tensor(tensor),
                    None => Value::Unknown,
                }
            }
            _ => match (left.tensor(), right.tensor()) {
                (Some(a), Some(b)) => Value::Tensor(a.and(b)),
                (Some(one), None) | (None, Some(one)) => Value::Tensor(one),
                (None, None) => Value::Unknown,
            },
        }
    }

    fn boolean(&mut self, op: &'a ast::ExprBoolOp) -> Value<'a> {
        let mut values: Vec<Value<'a>> = Vec::with_capacity(op.values.len());
        // `rank == 0 and save(model)`: what stands behind a condition on ranks happens on those only.
        let mut only: Option<(Selects, &'a Expr)> = None;
        for part in &op.values {
            let value = match only {
                Some((selects, test)) => self.eval_where(selects, test, "", part),
                None => self.eval(part),
            };
            if let (ast::BoolOp::And, None, Value::Selects(selects, _)) = (op.op, only, &value) {
                only = Some((*selects, part));
            }
            values.push(value);
        }
        let selected: Vec<Selects> = values
            .iter()
            .filter_map(|value| if let Value::Selects(selects, _) = value { Some(*selects) } else { None })
            .collect();
        let rank = selected.iter().copied().find(|selects| selects.guard().is_rank_only());
        match (op.op, rank, selected.first()) {
            // `rank == 0 and step % 100 == 0`: true only there; false says nothing.
            (ast::BoolOp::And, Some(rank), _) => Value::Selects(rank, false),
            // `not distributed or rank == 0`: of several ranks, only the first.
            (ast::BoolOp::Or, Some(rank), _) if selected.len() == values.len() => Value::Selects(rank, true),
            // `if distributed and ...`.
            (ast::BoolOp::And, None, Some(first)) => Value::Selects(*first, false),
            (ast::BoolOp::Or, None, Some(first)) if selected.len() == values.len() => Value::Selects(*first, true),
            (ast::BoolOp::Or, _, _) if selected.is_empty() => {
                // `device or "cuda"`: the one that says more.
                values.into_iter().reduce(Value::join).unwrap_or(Value::Unknown)
            }
            _ => Value::Unknown,
        }
    }

    fn compare(&mut self, compare: &'a ast::ExprCompare) -> Value<'a> {
        let left = self.eval(&compare.left);
        let rights: Vec<Value<'a>> = compare.comparators.iter().map(|right| self.eval(right)).collect();
        let ([op], [right], [right_expr]) = (&*compare.ops, rights.as_slice(), &*compare.comparators) else {
            return Value::Unknown;
        };
        if matches!((&left, right), (Value::Text("__main__"), _) | (_, Value::Text("__main__")))
            && (is_dunder_name(&compare.left) || is_dunder_name(right_expr))
        {
            return Value::Selects(Selects::MainModule, false);
        }
        let is_world = |expr: &Expr, value: &Value| {
            scan::last_name(expr).is_some_and(names::is_world_size)
                || matches!(value, Value::Made(path) if matches!(names::tail(path), "get_world_size" | "size" | "device_count"))
        };
        let (rank, other, op) = match (&left, right) {
            (Value::Rank(kind), other) => (Some(*kind), other, *op),
            (other, Value::Rank(kind)) => (Some(*kind), other, mirrored(*op)),
            (value, other) if is_world(&compare.left, value) => (None, other, *op),
            _ => return Value::Unknown,
        };
        match rank {
            Some(kind) => select_ranks(kind, op, other),
            None => match (op, other) {
                (CmpOp::Gt | CmpOp::NotEq, Value::Int(1)) | (CmpOp::GtE, Value::Int(2)) => {
                    Value::Selects(Selects::Distributed, true)
                }
                (CmpOp::Eq | CmpOp::LtE, Value::Int(1)) | (CmpOp::Lt, Value::Int(2)) => {
                    Value::Selects(Selects::SingleProcess, true)
                }
                _ => Value::Unknown,
            },
        }
    }

    fn conditional(&mut self, branch: &'a ast::ExprIf) -> Value<'a> {
        let test = self.eval(&branch.test);
        let (body, other) = match test {
            Value::Selects(selects, is_exact) => {
                let body = self.eval_where(selects, &branch.test, "", &branch.body);
                let other = match selects.opposite().filter(|_| is_exact) {
                    Some(opposite) => self.eval_where(opposite, &branch.test, "else of: ", &branch.orelse),
                    None => self.eval(&branch.orelse),
                };
                (body, other)
            }
            _ => (self.eval(&branch.body), self.eval(&branch.orelse)),
        };
        match test {
            // `"cuda" if torch.cuda.is_available() else "cpu"`.
            Value::Made(path) if names::tail(&path) == "is_available" => body,
            Value::Selects(Selects::Distributed, _) => body,
            Value::Selects(Selects::SingleProcess, _) => other,
            Value::Selects(selects, _) if selects.guard().is_rank_only() => {
                if scan::mentions(&branch.body, scan::is_empty_maker)
                    || scan::mentions(&branch.orelse, scan::is_empty_maker)
                {
                    self.fact(branch.start(), Fact::RankDependentInit { what: self.text(branch) });
                }
                body.join(other)
            }
            _ => body.join(other),
        }
    }

    /// An expression that only those ranks evaluate that `test` selects. A branch of its own where it does something: most
    /// such expressions choose between two numbers.
    fn eval_where(&mut self, selects: Selects, test: &'a Expr, prefix: &str, expr: &'a Expr) -> Value<'a> {
        let kind = selects.guard();
        if !kind.is_rank_only() {
            return self.eval(expr);
        }
        let mut guard = self.condition(test, kind);
        guard.text.insert_str(0, prefix);
        self.guards.push(guard);
        self.collectors.push(BTreeSet::new());
        let value = self.eval(expr);
        self.guards.pop();
        let work = self.collectors.pop().unwrap_or_default();
        if !work.is_empty() {
            self.fact(expr.start(), Fact::RankBranch { work: work.into_iter().collect() });
        }
        value
    }

    fn dict(&mut self, dict: &'a ast::ExprDict) -> Value<'a> {
        let mut whole: Option<Tensor> = None;
        let mut only = None;
        for item in &dict.items {
            let key = item.key.as_ref().map(|key| self.eval(key));
            let value = self.eval(&item.value);
            whole = whole.into_iter().chain(value.tensor()).reduce(Tensor::and);
            if let Some(Value::Text(key)) = key {
                self.config_entry(key, &item.value, &value);
                only = Some((key, value.clone()));
            }
            if let Value::State { .. } = value {
                only = Some(("", value));
            }
        }
        match (whole, only) {
            (Some(tensor), _) => Value::Tensor(tensor),
            (None, Some((_, state @ Value::State { .. }))) => state,
            // `device_map={"": 0}`.
            (None, Some(("", value))) if dict.items.len() == 1 => value,
            _ => Value::Unknown,
        }
    }

    fn subscript(&mut self, subscript: &'a ast::ExprSubscript) -> Value<'a> {
        let base = self.eval(&subscript.value);
        let index = match &*subscript.slice {
            Expr::Slice(slice) => {
                for part in [&slice.lower, &slice.upper, &slice.step].into_iter().filter_map(|part| part.as_deref()) {
                    self.eval(part);
                }
                Value::Unknown
            }
            slice => self.eval(slice),
        };
        match (base, index) {
            (Value::Path(path), Value::Text(name)) if &*path == "os.environ" => self.environment(name),
            (Value::Tuple(parts), Value::Int(index)) => {
                usize::try_from(index).ok().and_then(|index| parts.get(index)).cloned().unwrap_or(Value::Unknown)
            }
            (Value::Tensor(tensor), _) => Value::Tensor(tensor),
            (Value::Checkpoint(id), _) => Value::Checkpoint(id),
            (Value::Model, _) => Value::Model,
            (_, Value::Text(name)) if names::rank_name(name).is_some() => {
                names::rank_name(name).map_or(Value::Unknown, Value::Rank)
            }
            _ => Value::Unknown,
        }
    }

    /// What `os.environ[name]` holds.
    pub(super) fn environment(&mut self, name: &str) -> Value<'a> {
        match names::rank_variable(name) {
            Some((kind, launcher)) => {
                self.facts.launchers.insert(launcher);
                Value::Rank(kind)
            }
            None => Value::Unknown,
        }
    }

    /// A device as written, with what it comes to.
    pub(super) fn device(&self, expr: &'a Expr, value: &Value<'a>) -> DeviceExpr {
        DeviceExpr { class: device_class(value).unwrap_or(DeviceClass::Unknown), text: self.text(expr) }
    }

    /// Something of a framework is used.
    pub(super) fn uses(&mut self, framework: Framework) {
        self.facts.frameworks.insert(framework);
    }
}

/// What a name means where nothing else is known of it.
fn by_custom<'a>(name: &str) -> Value<'a> {
    if let Some(kind) = names::rank_name(name) {
        return Value::Rank(kind);
    }
    if let Some(selects) = names::main_process_flag(name) {
        return Value::Selects(selects, true);
    }
    if names::is_distributed_flag(name) {
        return Value::Selects(Selects::Distributed, true);
    }
    Value::Unknown
}

/// The device that a value names, if it can be one.
pub(super) fn device_class(value: &Value) -> Option<DeviceClass> {
    Some(match value {
        Value::Device(class) => *class,
        Value::Rank(kind) => kind.device(),
        Value::Int(index) => DeviceClass::Literal(u32::try_from(*index).ok()?),
        Value::Text(text) => device_text(text)?,
        Value::Tuple(parts) => device_class(parts.first()?)?,
        _ => return None,
    })
}

/// A device written out.
pub(super) fn device_text(text: &str) -> Option<DeviceClass> {
    Some(match text {
        "cpu" => DeviceClass::Cpu,
        "cuda" => DeviceClass::Current,
        "auto" | "balanced" | "balanced_low_0" | "sequential" => DeviceClass::Auto,
        _ => DeviceClass::Literal(text.strip_prefix("cuda:")?.trim().parse().ok()?),
    })
}

/// `"cuda:"` with a number behind it.
pub(super) fn numbered_device<'a>(prefix: &str, value: &Value<'a>) -> Value<'a> {
    if prefix.trim() != "cuda:" {
        return Value::Unknown;
    }
    match value {
        Value::Rank(kind) => Value::Device(kind.device()),
        Value::Int(index) => u32::try_from(*index).map_or(Value::Unknown, |n| Value::Device(DeviceClass::Literal(n))),
        Value::Text(text) => text.parse().map_or(Value::Unknown, |n| Value::Device(DeviceClass::Literal(n))),
        Value::Device(DeviceClass::AskedCurrent) => Value::Device(DeviceClass::AskedCurrent),
        _ => Value::Device(DeviceClass::Unknown),
    }
}

/// An object that knows the rank's device.
fn is_rank_aware(path: &str) -> bool {
    matches!(names::tail(path), "Accelerator" | "PartialState" | "Fabric" | "TrainingArguments" | "AcceleratorState")
}

fn is_dunder_name(expr: &Expr) -> bool {
    matches!(expr, Expr::Name(name) if name.id.as_str() == "__name__")
}

fn mirrored(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Lt => CmpOp::Gt,
        CmpOp::LtE => CmpOp::GtE,
        CmpOp::Gt => CmpOp::Lt,
        CmpOp::GtE => CmpOp::LtE,
        other => other,
    }
}

/// Which ranks a comparison with a rank selects.
fn select_ranks<'a>(kind: RankKind, op: CmpOp, other: &Value<'a>) -> Value<'a> {
    let zero = match kind {
        RankKind::Global => Selects::RankZero,
        RankKind::Local => Selects::LocalRankZero,
    };
    let not_zero = match kind {
        RankKind::Global => Selects::NotRankZero,
        RankKind::Local => Selects::OtherRank,
    };
    let number = match other {
        Value::Int(number) => Some(*number),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    let selects = match (op, number, other) {
        (CmpOp::Eq | CmpOp::Is | CmpOp::LtE, Some(0), _) | (CmpOp::Lt, Some(1), _) => zero,
        (CmpOp::NotEq | CmpOp::IsNot | CmpOp::Gt, Some(0), _) | (CmpOp::GtE, Some(1), _) => not_zero,
        (CmpOp::Eq | CmpOp::Lt, Some(-1), _) | (CmpOp::Lt, Some(0), _) | (CmpOp::Is, _, Value::Nothing) => {
            Selects::SingleProcess
        }
        (CmpOp::NotEq | CmpOp::Gt, Some(-1), _) | (CmpOp::GtE, Some(0), _) | (CmpOp::IsNot, _, Value::Nothing) => {
            Selects::Distributed
        }
        (CmpOp::In, _, Value::Tuple(parts)) if parts.contains(&Value::Int(0)) => zero,
        (CmpOp::NotIn, _, Value::Tuple(parts)) if parts.contains(&Value::Int(0)) => not_zero,
        // A comparison with the world size or another rank.
        _ => Selects::OtherRank,
    };
    Value::Selects(selects, true)
}

fn arithmetic(op: Operator, a: i64, b: i64) -> Option<i64> {
    match op {
        Operator::Add => a.checked_add(b),
        Operator::Sub => a.checked_sub(b),
        Operator::Mult => a.checked_mul(b),
        Operator::FloorDiv => a.checked_div_euclid(b),
        Operator::Mod => a.checked_rem_euclid(b),
        Operator::Pow => a.checked_pow(u32::try_from(b).ok()?),
        Operator::LShift => a.checked_mul(1i64.checked_shl(u32::try_from(b).ok().filter(|b| *b < 62)?)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_apart() {
        assert_eq!(device_text("cuda"), Some(DeviceClass::Current));
        assert_eq!(device_text("cuda:3"), Some(DeviceClass::Literal(3)));
        assert_eq!(device_text("cpu"), Some(DeviceClass::Cpu));
        assert_eq!(device_text("mps"), None);
        assert_eq!(numbered_device("cuda:", &Value::Rank(RankKind::Local)), Value::Device(DeviceClass::LocalRank));
        assert_eq!(numbered_device("cuda:", &Value::Int(0)), Value::Device(DeviceClass::Literal(0)));
        assert_eq!(numbered_device("x", &Value::Int(0)), Value::Unknown);
    }

    #[test]
    fn comparisons_select_ranks() {
        let selects = |op, n| select_ranks(RankKind::Global, op, &Value::Int(n));
        assert_eq!(selects(CmpOp::Eq, 0), Value::Selects(Selects::RankZero, true));
        assert_eq!(selects(CmpOp::NotEq, 0), Value::Selects(Selects::NotRankZero, true));
        assert_eq!(selects(CmpOp::Gt, 0), Value::Selects(Selects::NotRankZero, true));
        assert_eq!(selects(CmpOp::NotEq, -1), Value::Selects(Selects::Distributed, true));
        assert_eq!(selects(CmpOp::Eq, 3), Value::Selects(Selects::OtherRank, true));
    }
}
