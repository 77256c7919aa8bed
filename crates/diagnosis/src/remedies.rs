//! What to do about each cause: text, a blank line, then code lines that start with a space, `+` or `-`.
//!
//! Never a smaller batch, gradient accumulation, a memory cap or swap: they hide a difference, they do not cure it.

use rankscope_model::CauseLabel;

/// The remedy of a label.
pub(crate) fn remedy(label: CauseLabel) -> &'static str {
    match label {
        CauseLabel::CtxNoSetDevice => {
            "Bind every process to its own GPU before any CUDA or collective call.

  local_rank = int(os.environ[\"LOCAL_RANK\"])
+ torch.cuda.set_device(local_rank)
+ device = torch.device(\"cuda\", local_rank)
- dist.init_process_group(\"nccl\")
+ dist.init_process_group(\"nccl\", device_id=device)"
        }
        CauseLabel::CkptNoMapLocation => {
            "Load checkpoints to the CPU, or onto the rank's own GPU; otherwise tensors come back on the GPU that saved them.

- state = torch.load(path)
+ state = torch.load(path, map_location=\"cpu\")
  model.load_state_dict(state[\"model\"])
+ del state"
        }
        CauseLabel::HelperThreadOrLibCtx => {
            "The current device is kept per thread and does not carry over to helper threads or libraries. Set it there too, or hide the other GPUs from the process before CUDA starts.

  def worker():
+     torch.cuda.set_device(local_rank)
      ...

+ os.environ[\"CUDA_VISIBLE_DEVICES\"] = os.environ[\"LOCAL_RANK\"]  # first lines, before import torch; the device is then cuda:0"
        }
        CauseLabel::HardcodedOrDefaultDevice => {
            "Name the rank's own device wherever code names a device; move nothing to a GPU before the ranks are started.

- model.to(\"cuda:0\")
+ model.to(torch.device(\"cuda\", local_rank))"
        }
        CauseLabel::RankGpuMapping => {
            "Give each rank of a node its own GPU: use the local rank, not the global one, and set CUDA_VISIBLE_DEVICES before the first CUDA call.

- torch.cuda.set_device(0)
+ torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))  # MPI: OMPI_COMM_WORLD_LOCAL_RANK, Slurm: SLURM_LOCALID"
        }
        CauseLabel::ObjectCollectiveDevice => {
            "Send CPU objects through object collectives: a CUDA tensor is revived on its sender's GPU in every receiver.

- dist.all_gather_object(out, {\"loss\": loss})
+ dist.all_gather_object(out, {\"loss\": loss.item()})  # tensors: .detach().cpu()"
        }
        CauseLabel::CtxInWorkerProcesses => {
            "Keep CUDA out of loader workers and side processes: return CPU tensors and move them in the training process, or hide the GPUs from the helpers.

  def worker_init(_):
+     os.environ[\"CUDA_VISIBLE_DEVICES\"] = \"\"
  loader = DataLoader(dataset, num_workers=8, worker_init_fn=worker_init)
- return image.cuda()
+ return image"
        }
        CauseLabel::SingleGpuJobIdleContexts => {
            "The job is one process. Start one per GPU, or show it only the GPU that it uses.

- python train.py
+ torchrun --nproc_per_node=8 train.py"
        }
        CauseLabel::DataparallelMaster => {
            "Replace DataParallel, which gathers outputs and gradients on its first GPU, by one process per GPU.

- model = torch.nn.DataParallel(model).cuda()
+ torch.cuda.set_device(local_rank)
+ dist.init_process_group(\"nccl\")
+ model = DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])
- python train.py
+ torchrun --nproc_per_node=8 train.py"
        }
        CauseLabel::Rank0Eval => {
            "Evaluate on all ranks with a sharded loader, or in a process of its own; keep no graph while evaluating.

- if rank == 0:
-     evaluate(model.module, full_loader)
+ with torch.inference_mode():
+     evaluate(model, DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False)))"
        }
        CauseLabel::CkptStateGather => {
            "Save sharded, or gather the full state on the CPU.

- with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
+ cpu = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
+ with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cpu):
      state = model.state_dict()"
        }
        CauseLabel::Rank0LoggingOrTrace => {
            "Trace graphs and draw samples on the CPU or in a process of its own, without a graph.

- if rank == 0:
-     writer.add_graph(model, batch)
+ if rank == 0:
+     writer.add_graph(copy.deepcopy(model).cpu(), batch.cpu())"
        }
        CauseLabel::MetricGatherOnGpu => {
            "Move predictions off the GPU before they are kept or gathered; reduce numbers, not tensors.

- outputs.append(logits)
+ outputs.append(logits.detach().cpu())"
        }
        CauseLabel::Rank0AuxBuffers => {
            "Hold the buffer on all ranks alike, shard it, or keep it on the CPU.

- if rank == 0:
-     ema = copy.deepcopy(model)
+ ema = copy.deepcopy(model).cpu()  # or one shard per rank"
        }
        CauseLabel::VariableShapeBatches => {
            "Pack batches by tokens (or pixels) instead of samples and deal them round-robin: sort by length, fill up to a budget, batch index mod world size is the rank. Token counts come near each other, not equal; with drop_last sample counts agree and the tail is dropped.

- loader = DataLoader(dataset, batch_size=64, sampler=DistributedSampler(dataset))
+ loader = DataLoader(dataset, batch_sampler=TokenBatchSampler(lengths, max_tokens=32768, num_replicas=world, rank=rank))"
        }
        CauseLabel::SamplerMissingOrNoSetEpoch => {
            "Give every rank its own shard and reshuffle it each epoch. drop_last makes sample counts equal and drops up to world size - 1 samples.

+ sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
- loader = DataLoader(dataset, batch_size=64, shuffle=True)
+ loader = DataLoader(dataset, batch_size=64, sampler=sampler)
  for epoch in range(epochs):
+     sampler.set_epoch(epoch)"
        }
        CauseLabel::UnevenBatchSplit => {
            "Make the global batch a multiple of the world size and drop the incomplete tail (up to one batch of samples per epoch is left out).

- loader = DataLoader(dataset, batch_size=global_batch // world, sampler=sampler)
+ assert global_batch % world == 0
+ loader = DataLoader(dataset, batch_size=global_batch // world, sampler=sampler, drop_last=True)"
        }
        CauseLabel::MoeRoutingImbalance => {
            "Balance the router: add the auxiliary load loss, or bound the tokens per expert.

- moe = MoE(num_experts=64, k=2, drop_tokens=False)
+ moe = MoE(num_experts=64, k=2, capacity_factor=1.25)"
        }
        CauseLabel::PipelineStageImbalance => {
            "Cut the stages by bytes: count embeddings and the output layer, and give early stages fewer layers, since they hold more batches in flight.

- partition_method=\"uniform\"
+ partition_method=\"parameters\"  # or an explicit list of layers per stage"
        }
        CauseLabel::EmbeddingTableSharding => {
            "Place tables by bytes, and split the largest by rows.

- owner = table_index % world
+ plan = sorted(tables, key=lambda t: -t.nbytes)  # largest first onto the emptiest rank"
        }
        CauseLabel::ColocatedEngineOrDeviceMap => {
            "Give the other engine GPUs of its own, or spread its parts over all cards alike.

- CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py
+ CUDA_VISIBLE_DEVICES=0,1,2 python train.py
+ CUDA_VISIBLE_DEVICES=3 python serve.py"
        }
        CauseLabel::OptimizerOrWrapOrder => {
            "Move, wrap, then build the optimizer from the wrapped parameters.

- optimizer = AdamW(model.parameters())
  model = FSDP(model.to(local_rank))
+ optimizer = AdamW(model.parameters())"
        }
        CauseLabel::ShardedInitAsymmetry => {
            "Initialise all ranks alike: on the meta device, then shard, then load shards.

- model = build() if rank == 0 else build(device=\"meta\")
+ with torch.device(\"meta\"):
+     model = build()
+ fully_shard(model)
+ model.to_empty(device=\"cuda\")"
        }
        CauseLabel::AllocatorFragmentation => {
            "Let segments grow instead of splitting fixed ones, and keep shapes few.

+ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun --nproc_per_node=8 train.py"
        }
        CauseLabel::StreamHeldBlocks => {
            "Blocks stay active until every stream that used them is done. Bound how far streams run ahead.

- model = FSDP(model, limit_all_gathers=False)
+ model = FSDP(model, limit_all_gathers=True)
+ TORCH_NCCL_AVOID_RECORD_STREAMS=1 torchrun --nproc_per_node=8 train.py"
        }
        CauseLabel::NcclNontorchBuffers => {
            "NCCL takes its buffers outside PyTorch, per communicator and channel. Make fewer communicators, or smaller buffers, and do it on all ranks alike.

+ NCCL_BUFFSIZE=2097152 NCCL_MAX_NCHANNELS=8 torchrun --nproc_per_node=8 train.py"
        }
        CauseLabel::CudnnWorkspace => {
            "Do not search for algorithms on shapes that keep changing.

- torch.backends.cudnn.benchmark = True
+ torch.backends.cudnn.benchmark = False"
        }
        CauseLabel::PerStepLeak => {
            "Keep no tensor with a graph from one step to the next.

- total_loss += loss
+ total_loss += loss.item()
- history.append(output)
+ history.append(output.detach().cpu())"
        }
        CauseLabel::GradAccumOrCkptInconsistent => {
            "Use the same accumulation count, no_sync blocks and checkpoint wrapping on all ranks and in all runs that are compared.

- with model.no_sync():
-     loss.backward()
+ with (model.no_sync() if (step + 1) % accum else contextlib.nullcontext()):
+     loss.backward()"
        }
        CauseLabel::OtherTenant => {
            "Keep the card for one job: ask the owner of the other process, or start the job on free cards.

  nvidia-smi --query-compute-apps=pid,used_memory,gpu_uuid --format=csv
  ps -o pid,user,lstart,cmd -p PID
+ CUDA_VISIBLE_DEVICES=1,2,3 torchrun --nproc_per_node=3 train.py"
        }
        CauseLabel::ZombieLeftover => {
            "End what is left of the earlier job, then start again. Look before you end it.

  ps -o pid,ppid,user,lstart,stat,cmd -p PID
+ kill PID
  fuser -v /dev/nvidia*  # processes that hold the device but are not listed"
        }
        CauseLabel::HeterogeneousOrDisplayGpu => {
            "Use equal cards for equal ranks, and a card without a display; otherwise give each card work by its free memory.

+ CUDA_VISIBLE_DEVICES=1,2,3 torchrun --nproc_per_node=3 train.py"
        }
        CauseLabel::FrameworkPrealloc => {
            "Used memory shows what the framework took, not what it needs. Show each process one GPU and let it grow.

+ os.environ[\"CUDA_VISIBLE_DEVICES\"] = str(local_rank)
+ tf.config.experimental.set_memory_growth(gpu, True)  # JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false"
        }
        CauseLabel::Benign => "Nothing to do.",
        CauseLabel::Unresolved => "Collect what the checklist asks for, most telling first.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_text_then_code_lines() {
        for label in CauseLabel::ALL {
            let text = remedy(*label);
            assert!(!text.is_empty());
            let Some((prose, code)) = text.split_once("\n\n") else {
                assert!(matches!(label, CauseLabel::Benign | CauseLabel::Unresolved), "{label} has no code");
                continue;
            };
            assert!(!prose.contains('\n'), "{label}: prose is one paragraph");
            for line in code.lines().filter(|line| !line.is_empty()) {
                assert!(line.starts_with([' ', '+', '-']), "{label}: {line}");
            }
        }
    }

    #[test]
    fn no_remedy_hides_the_cause() {
        for label in CauseLabel::ALL {
            let text = remedy(*label).to_lowercase();
            for word in ["smaller batch", "reduce the batch", "per_process_memory_fraction", "swap", "max_split_size"] {
                assert!(!text.contains(word), "{label} advises {word}");
            }
        }
    }
}
