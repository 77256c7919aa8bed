//! What grows with every iteration: sums of losses that keep their graph, lists of outputs that stay on the GPU.
//!
//! Speaks only of targets that outlive the iteration; whether they are emptied later is told with the fact.

use super::Receiver;
use crate::python_script::names;
use crate::python_script::scan;
use crate::python_script::value::{Tensor, Value};
use crate::python_script::walk::{Args, Loop, Walker};
use rankscope_model::{Fact, Kept, LoopKind};
use ruff_python_ast::{self as ast, Expr, Operator};
use ruff_text_size::{Ranged, TextSize};

impl<'a> Walker<'a> {
    /// `total = total + loss`, `preds = torch.cat((preds, logits))`.
    pub(in crate::python_script) fn grows(
        &mut self,
        target: &'a Expr,
        expr: &'a Expr,
        value: &Value<'a>,
        at: TextSize,
    ) {
        let Some(tensor) = value.tensor() else { return };
        if !self.spend(expr.range().len().to_usize()) || !scan::is_made_of(expr, target, self.source) {
            return;
        }
        let is_sum = matches!(expr, Expr::BinOp(op) if op.op == Operator::Add);
        let is_joined = scan::mentions(expr, |name| {
            matches!(name, "cat" | "concat" | "concatenate" | "stack" | "vstack" | "hstack" | "nested_concat")
        });
        if is_sum || is_joined {
            let added = self.text(expr);
            self.growth(at, target, added, scan::mentions(expr, names::is_loss), tensor, is_joined);
        }
    }

    /// `total += loss`, `preds += [logits]`.
    pub(in crate::python_script) fn grows_by(&mut self, assign: &'a ast::StmtAugAssign, value: &Value<'a>) {
        let Some(tensor) = value.tensor().filter(|_| assign.op == Operator::Add) else { return };
        let adds_items = matches!(&*assign.value, Expr::List(_) | Expr::Tuple(_) | Expr::ListComp(_));
        let added = self.text(&*assign.value);
        let is_loss = scan::mentions(&assign.value, names::is_loss);
        self.growth(assign.range.start(), &assign.target, added, is_loss, tensor, adds_items);
    }

    /// `losses.append(loss)`, `preds.extend(...)`.
    pub(super) fn growth_method(
        &mut self,
        call: &'a ast::ExprCall,
        receiver: &Receiver<'a>,
        args: &Args<'a>,
    ) -> Option<Value<'a>> {
        if !matches!(receiver.name, "append" | "extend") {
            return None;
        }
        let (expr, value) = args.at(0)?;
        if let Some(tensor) = value.tensor() {
            let added = self.text(expr);
            self.growth(call.range_start, receiver.expr, added, scan::mentions(expr, names::is_loss), tensor, true);
        }
        Some(Value::Nothing)
    }

    fn growth(
        &mut self,
        at: TextSize,
        target: &'a Expr,
        value: String,
        is_loss: bool,
        tensor: Tensor,
        adds_items: bool,
    ) {
        let keeps = match (tensor.graph && self.no_grad == 0, adds_items && tensor.gpu) {
            (true, _) => Kept::Graph,
            // A detached loss is one number.
            (false, true) if !is_loss => Kept::GpuTensors,
            _ => return,
        };
        let text = self.text(target);
        let Some((kind, is_reset)) = self.outlives(target, &text) else { return };
        let training = kind == LoopKind::TrainBatch && self.no_grad == 0;
        self.fact(at, Fact::Accumulation { target: text, value, keeps, training, is_reset });
    }

    /// The batch loop whose iterations the target outlives, and whether it is emptied further out.
    fn outlives(&mut self, target: &'a Expr, text: &str) -> Option<(LoopKind, bool)> {
        let frame = self.frames.len().saturating_sub(1);
        let is_batch = |l: &Loop| matches!(l.kind, LoopKind::TrainBatch | LoopKind::EvalBatch);
        let is_local = matches!(base_of(target), Expr::Name(name) if name.id.as_str() != "self");
        let mut found = None;
        let mut is_reset = false;
        for each in self.loops.iter().rev() {
            if is_local && each.frame != frame {
                break;
            }
            if each.assigned.contains(text) {
                found?;
                is_reset = true;
            }
            if found.is_none() && is_batch(each) {
                found = Some((each.kind, each.frame));
            }
        }
        let (kind, loop_frame) = found?;
        if is_local {
            // A local goes with its function, unless the function itself runs the epochs.
            let has_outer = self.loops.iter().any(|l| l.frame == frame && l.kind == LoopKind::Epoch);
            return Some((kind, is_reset || (frame > 0 && !has_outer)));
        }
        if loop_frame != frame && self.sets_in_function(text) {
            return None;
        }
        let class = self.frame_function().and_then(|id| self.functions.get(id)).and_then(|function| function.class);
        let emptied = class.and_then(|id| self.classes.get(id)).is_some_and(|class| class.emptied.contains(text));
        Some((kind, is_reset || emptied))
    }

    /// The function at hand sets the target anew each time it is called.
    fn sets_in_function(&self, text: &str) -> bool {
        let Some(function) = self.frame_function().and_then(|id| self.functions.get(id)) else { return false };
        self.scan(&function.def.body).assigned.contains(text)
    }
}

/// The name at the beginning of `a.b[c].d`.
fn base_of(expr: &Expr) -> &Expr {
    match expr {
        Expr::Attribute(attribute) => base_of(&attribute.value),
        Expr::Subscript(subscript) => base_of(&subscript.value),
        other => other,
    }
}
