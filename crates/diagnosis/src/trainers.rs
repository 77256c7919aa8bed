//! Remedies in the words of the trainer that owns the loop, where they differ from what code of one's own would do.
//!
//! Knows labels and frameworks, no evidence.

use rankscope_model::{CauseLabel, Framework};
use std::collections::BTreeSet;

/// Who decides first: a trainer sets what plain PyTorch code would, before the wrapper that it uses.
pub(crate) const ORDER: [Framework; 5] =
    [Framework::HfTrainer, Framework::Lightning, Framework::DeepSpeed, Framework::Accelerate, Framework::Fsdp];

/// Words, and the lines that do it; `{local_rank}` stands for the expression of the local rank.
type Remedy = (&'static str, &'static str);

/// The remedy of the first framework, in [`ORDER`], that has one of its own for this cause.
pub(crate) fn remedy(label: CauseLabel, frameworks: &BTreeSet<Framework>) -> Option<Remedy> {
    ORDER.into_iter().filter(|framework| frameworks.contains(framework)).find_map(|framework| of(label, framework))
}

fn of(label: CauseLabel, framework: Framework) -> Option<Remedy> {
    Some(match (label, framework) {
        (CauseLabel::CtxNoSetDevice, Framework::HfTrainer) => (
            "The Trainer binds the device and starts the process group when TrainingArguments is made: make it first, and touch no GPU before.",
            "+ args = TrainingArguments(...)  # binds the device, starts the process group\n  model = AutoModel.from_pretrained(path)",
        ),
        (CauseLabel::CtxNoSetDevice, Framework::Lightning) => (
            "Lightning binds the device and moves the model: take explicit devices out of the module and of the code before Trainer.fit.",
            "+ model = Net()  # no .cuda(), no .to()\n+ trainer = Trainer(accelerator=\"gpu\", devices=-1, strategy=\"ddp\")",
        ),
        (CauseLabel::CtxNoSetDevice, Framework::DeepSpeed) => (
            "Bind the device, then let DeepSpeed start the process group.",
            "+ torch.cuda.set_device({local_rank})\n+ deepspeed.init_distributed()\n  engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)",
        ),
        (CauseLabel::CtxNoSetDevice, Framework::Accelerate) => (
            "Make the Accelerator first: it binds the device. Use its device and no other.",
            "+ accelerator = Accelerator()\n+ model.to(accelerator.device)",
        ),
        (CauseLabel::SamplerMissingOrNoSetEpoch, Framework::HfTrainer) => (
            "The Trainer shards the data set by itself: give it a plain data set and no sampler of your own. group_by_length makes the batches of a step alike, dataloader_drop_last the sample counts equal, at the cost of the tail.",
            "+ args = TrainingArguments(..., group_by_length=True, dataloader_drop_last=True)",
        ),
        (CauseLabel::SamplerMissingOrNoSetEpoch, Framework::Lightning) => (
            "Lightning adds the sampler and calls set_epoch, unless it was told not to or a batch sampler of your own is in the way.",
            "+ trainer = Trainer(use_distributed_sampler=True)",
        ),
        (CauseLabel::SamplerMissingOrNoSetEpoch, Framework::Accelerate) => (
            "Let prepare() shard the loader, and add no DistributedSampler beside it.",
            "+ loader = accelerator.prepare(loader)",
        ),
        (CauseLabel::OptimizerOrWrapOrder, Framework::Fsdp) => (
            "Wrap first, then build the optimizer on the sharded parameters.",
            "  fully_shard(model)\n+ optimizer = torch.optim.AdamW(model.parameters())  # behind the line that shards the model",
        ),
        (CauseLabel::OptimizerOrWrapOrder, Framework::DeepSpeed) => (
            "Hand model and optimizer to initialize() together and use only what it returns; with ZeRO the state is sharded there.",
            "+ engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)",
        ),
        (CauseLabel::MetricGatherOnGpu, Framework::HfTrainer) => (
            "Predictions of an evaluation stay on the GPU until they are moved: move them early, and keep only what the metric needs.",
            "+ args = TrainingArguments(..., eval_accumulation_steps=16)\n+ trainer = Trainer(..., preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1))",
        ),
        (CauseLabel::MetricGatherOnGpu, Framework::Lightning) => (
            "Collect no outputs on the GPU over an epoch: a metric object keeps sums only.",
            "+ self.accuracy.update(logits, target)  # torchmetrics, in place of a list of outputs",
        ),
        (CauseLabel::Rank0Eval, Framework::HfTrainer | Framework::Lightning) => (
            "Leave the evaluation to the Trainer, which runs it on all ranks: call it outside of any branch on the rank.",
            "",
        ),
        (CauseLabel::GradAccumOrCkptInconsistent, Framework::DeepSpeed) => (
            "One configuration for all ranks: accumulation and activation checkpointing are read from it, not from the rank.",
            "+ config[\"gradient_accumulation_steps\"] = steps  # the same on every rank",
        ),
        _ => return None,
    })
}
