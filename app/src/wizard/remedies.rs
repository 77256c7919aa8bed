//! What to do about an item, in the words of the framework that the scripts use. Only where no cause with a remedy of
//! its own stands under the item. Never a smaller batch, accumulation, a memory cap or swap.

use rankscope_model::{Framework, Item};

/// A remedy and the framework that it is for.
pub struct ItemRemedy {
    /// `PyTorch DDP`, `Lightning`, ...
    pub framework: &'static str,
    /// Text, and after a blank line code lines that start with a space, `+` or `-`.
    pub text: &'static str,
}

/// The remedy for the framework of the scripts; plain PyTorch where none is known.
pub fn remedy(item: Item, frameworks: &[Framework]) -> ItemRemedy {
    // A trainer sets what plain PyTorch code would: it decides before the wrapper that it uses.
    let order =
        [Framework::HfTrainer, Framework::Lightning, Framework::DeepSpeed, Framework::Accelerate, Framework::Fsdp];
    let found = order.into_iter().filter(|framework| frameworks.contains(framework));
    let special =
        found.filter_map(|framework| Some(ItemRemedy { framework: name(framework), text: special(item, framework)? }));
    special.into_iter().next().unwrap_or(ItemRemedy { framework: "PyTorch DDP", text: plain(item) })
}

fn name(framework: Framework) -> &'static str {
    match framework {
        Framework::HfTrainer => "Hugging Face Trainer",
        Framework::Lightning => "Lightning",
        Framework::DeepSpeed => "DeepSpeed",
        Framework::Accelerate => "Accelerate",
        Framework::Fsdp => "FSDP",
        _ => "PyTorch DDP",
    }
}

fn special(item: Item, framework: Framework) -> Option<&'static str> {
    Some(match (item, framework) {
        (Item::DeviceVisibility | Item::DistributedInit, Framework::HfTrainer) => {
            "The Trainer binds the device and starts the process group when TrainingArguments is made. Make it first, and touch no GPU before.

+ args = TrainingArguments(...)   # binds the device, starts the process group
  model = AutoModel.from_pretrained(path)
- model = AutoModel.from_pretrained(path, device_map=\"auto\")"
        }
        (Item::DeviceVisibility | Item::DistributedInit, Framework::Lightning) => {
            "Lightning binds the device and moves the model. Take explicit devices out of the module and of the code before Trainer.fit.

- model = Net().cuda()
+ model = Net()
+ trainer = Trainer(accelerator=\"gpu\", devices=-1, strategy=\"ddp\")"
        }
        (Item::DeviceVisibility | Item::DistributedInit, Framework::DeepSpeed) => {
            "Bind the device, then let DeepSpeed start the process group.

+ torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))
+ deepspeed.init_distributed()
  engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)"
        }
        (Item::DeviceVisibility | Item::DistributedInit, Framework::Accelerate) => {
            "Make the Accelerator first: it binds the device. Use its device and no other.

+ accelerator = Accelerator()
- model.to(\"cuda\")
+ model.to(accelerator.device)"
        }
        (Item::DistributedSampler, Framework::HfTrainer) => {
            "The Trainer shards the data set by itself. Give it a plain data set, and group by length so that batches of a step are alike.

+ args = TrainingArguments(..., group_by_length=True, dataloader_drop_last=True)"
        }
        (Item::DistributedSampler, Framework::Lightning) => {
            "Lightning adds the sampler and calls set_epoch, unless it was told not to or a batch sampler of your own is in the way.

- trainer = Trainer(use_distributed_sampler=False)
+ trainer = Trainer(use_distributed_sampler=True)"
        }
        (Item::DistributedSampler, Framework::Accelerate) => {
            "Let prepare() shard the loader; do not add a DistributedSampler beside it.

+ loader = accelerator.prepare(loader)"
        }
        (Item::OptimizerState, Framework::Fsdp) => {
            "Wrap first, then build the optimizer on the sharded parameters.

  model = fully_shard(model)
+ optimizer = torch.optim.AdamW(model.parameters())"
        }
        (Item::OptimizerState, Framework::DeepSpeed) => {
            "Hand model and optimizer to initialize() together and use only what it returns; with ZeRO the state is sharded there.

+ engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)"
        }
        (Item::RankOnlyWork, Framework::Fsdp) => {
            "Save sharded, or gather the full state on the CPU.

+ options = StateDictOptions(full_state_dict=True, cpu_offload=True)
+ state = get_model_state_dict(model, options=options)   # on all ranks
  if rank == 0:
      torch.save(state, path)"
        }
        (Item::RankOnlyWork, Framework::HfTrainer) => {
            "Predictions of an evaluation gather on the GPU until they are moved. Move them early, and keep only what the metric needs.

+ args = TrainingArguments(..., eval_accumulation_steps=16)
+ trainer = Trainer(..., preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1))"
        }
        (Item::RankOnlyWork, Framework::Lightning) => {
            "Do not collect outputs on the GPU over an epoch; use a metric object, which keeps sums only.

- self.outputs.append(logits)
+ self.accuracy.update(logits, target)   # torchmetrics"
        }
        (Item::AccumulationCheckpointing, Framework::DeepSpeed) => {
            "One configuration for all ranks: gradient_accumulation_steps and activation_checkpointing are read from it, not from the rank.

+ config[\"gradient_accumulation_steps\"] = steps   # the same on every rank"
        }
        _ => return None,
    })
}

fn plain(item: Item) -> &'static str {
    match item {
        Item::DeviceVisibility => {
            "Bind every process to its own GPU before any CUDA or collective call, and load checkpoints with map_location.

  local_rank = int(os.environ[\"LOCAL_RANK\"])
+ torch.cuda.set_device(local_rank)
+ state = torch.load(path, map_location=\"cpu\")"
        }
        Item::DistributedInit => {
            "Move model and data work behind the process group.

+ torch.cuda.set_device(local_rank)
+ dist.init_process_group(\"nccl\")
  model = Net().to(local_rank)"
        }
        Item::DistributedSampler => {
            "Give the loader a sampler that deals the data over the ranks. drop_last=True makes the counts equal and costs the tail of the data set.

+ sampler = DistributedSampler(dataset, drop_last=True)
- loader = DataLoader(dataset, batch_size=8, shuffle=True)
+ loader = DataLoader(dataset, batch_size=8, sampler=sampler)
  for epoch in range(epochs):
+     sampler.set_epoch(epoch)"
        }
        Item::BatchDivisibility => {
            "Make the global batch a multiple of the world size. Where lengths vary, pack by tokens: sort by length, fill chunks up to a token budget, deal the chunks round-robin. The ranks' token counts come near each other; they do not become equal.

+ chunks = fill_by_tokens(sorted(range(len(lengths)), key=lengths.__getitem__), budget=32768)
+ mine = [chunk for n, chunk in enumerate(chunks) if n % world_size == rank]
+ loader = DataLoader(dataset, batch_sampler=mine)"
        }
        Item::OptimizerState => {
            "Move, wrap, then build the optimizer.

  model = Net().to(local_rank)
  model = DistributedDataParallel(model, device_ids=[local_rank])
+ optimizer = torch.optim.AdamW(model.parameters())"
        }
        Item::UnsyncedBuffers => {
            "Register buffers on the module so that all ranks hold them alike, or keep the large ones on the CPU.

+ self.register_buffer(\"table\", table, persistent=False)
- ema = copy.deepcopy(model)            # on rank 0 only
+ ema = copy.deepcopy(model).cpu()"
        }
        Item::RankOnlyWork => {
            "Evaluate on all ranks, gather on the CPU, and save from a CPU copy.

+ dist.all_gather_object(out, value.detach().cpu())
+ state = {k: v.cpu() for k, v in model.module.state_dict().items()}"
        }
        Item::MemoryStats => {
            "By kind: cached memory that cannot be used is fragmentation, memory outside PyTorch is contexts, NCCL or other processes.

+ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun ...   # fragmentation only"
        }
        Item::AccumulationCheckpointing => {
            "Take counts and wrapping out of code that asks for the rank.

- steps = 4 if rank == 0 else 2
+ steps = 4"
        }
        Item::Verified => "Run the same job with the fix, watch it at least as long, and add what it left behind here.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_a_remedy_for_every_framework_and_none_that_hides_the_cause() {
        let frameworks = [
            Framework::Torch,
            Framework::HfTrainer,
            Framework::Lightning,
            Framework::DeepSpeed,
            Framework::Accelerate,
            Framework::Fsdp,
        ];
        for item in Item::ALL {
            for framework in frameworks {
                let text = remedy(*item, &[framework]).text.to_lowercase();
                assert!(!text.is_empty());
                for never in ["smaller batch", "reduce the batch", "swap", "set_per_process_memory_fraction"] {
                    assert!(!text.contains(never), "{item:?} {framework:?}: {never}");
                }
            }
        }
        assert_eq!(remedy(Item::DistributedSampler, &[Framework::Torch, Framework::Lightning]).framework, "Lightning");
        assert_eq!(remedy(Item::MemoryStats, &[Framework::Lightning]).framework, "PyTorch DDP");
    }
}
