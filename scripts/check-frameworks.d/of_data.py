"""Steps of PyTorch's data parallelism: DDP, FSDP, and fully_shard as torchtitan wraps a model."""

import torch
import torch.distributed as dist
from recorder import DEVICE, Recorder, configuration
from small_model import causal_model, llama, loss_of, micro_batches


@configuration("ddp", 2, "--framework ddp --dp 2 --micro-batches 1")
@configuration("ddp-4", 4, "--framework ddp --dp 4 --micro-batches 2", accumulated=2)
@configuration("ddp-bf16", 2, "--framework ddp --dp 2 --micro-batches 1 --grad-type bf16 --broadcast-buffers none", dtype=torch.bfloat16,
               buffers=False)
@configuration("ddp-zero", 2, "--framework ddp --dp 2 --micro-batches 1 --data-style zero1", zero={})
@configuration("ddp-zero-4", 4, "--framework ddp --dp 4 --micro-batches 2 --data-style zero1 --broadcast-buffers none", accumulated=2,
               buffers=False, zero={})
@configuration("ddp-zero-views", 2, "--framework ddp --dp 2 --micro-batches 1 --data-style zero1 --parameter-return broadcast_shares",
               zero={"parameters_as_bucket_view": True})
@configuration("ddp-zero-views-4", 4, "--framework ddp --dp 4 --micro-batches 2 --data-style zero1 --parameter-return broadcast_shares",
               accumulated=2, zero={"parameters_as_bucket_view": True})
@configuration("ddp-experts", 2, "--framework ddp --dp 2 --micro-batches 1 --broadcast-buffers none", model="mixtral", buffers=False)
def ddp(accumulated=1, dtype=torch.float32, buffers=True, zero=None, model="llama"):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(causal_model(model, dtype), broadcast_buffers=buffers)
    optimizer = None if zero is None else ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4, **zero)
    for _ in range(3):  # buckets are made again in the second
        recorder = Recorder()
        with recorder:
            for index in range(accumulated):
                model.require_backward_grad_sync = index == accumulated - 1
                loss_of(model).backward()
            if optimizer:
                optimizer.step()
    return recorder


@configuration("fsdp1", 2, "--framework fsdp1 --dp 2 --micro-batches 2")
@configuration("fsdp1-4", 4, "--framework fsdp1 --dp 4 --micro-batches 1", accumulated=1)
@configuration("fsdp1-grad-op", 2, "--framework fsdp1 --dp 2 --micro-batches 2 --no-reshard-after-forward", strategy="SHARD_GRAD_OP")
@configuration("fsdp1-hsdp", 4, "--framework fsdp1 --dp 4 --micro-batches 2 --data-style hsdp --replicas-of-shards 2", strategy="HYBRID_SHARD")
@configuration("fsdp1-bf16", 4, "--framework fsdp1 --dp 4 --micro-batches 1 --param-type bf16 --grad-type bf16", accumulated=1,
               dtype=torch.bfloat16)
@configuration("fsdp1-checkpointed", 2, "--framework fsdp1 --dp 2 --micro-batches 1 --recompute full", accumulated=1, recompute=True)
@configuration("fsdp1-mixed", 2, "--framework fsdp1 --dp 2 --micro-batches 2 --param-type bf16", mixed=True)
@configuration("fsdp1-no-sync", 2, "--framework fsdp1 --dp 2 --micro-batches 3 --gradient-accumulation unsharded", accumulated=3, once=True)
def fsdp1(accumulated=2, strategy="FULL_SHARD", mixed=False, dtype=torch.float32, recompute=False, once=False):
    import contextlib
    from functools import partial

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("replicate", "shard")) if strategy == "HYBRID_SHARD" else None
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else None
    inner = llama(dtype)
    if recompute:
        inner.gradient_checkpointing_enable()
        inner.train()
    model = FullyShardedDataParallel(
        inner,
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}),
        mixed_precision=precision,
        use_orig_params=True,
        device_id=torch.device(DEVICE),
    )
    if not once:
        return micro_batches(model, accumulated)
    for _ in range(2):
        recorder = Recorder()
        with recorder:
            for index in range(accumulated):
                with contextlib.nullcontext() if index == accumulated - 1 else model.no_sync():
                    loss_of(model).backward()
        model.zero_grad()
    return recorder


@configuration("fsdp2", 2, "--framework fsdp2 --dp 2 --micro-batches 2")
@configuration("fsdp2-4", 4, "--framework fsdp2 --dp 4 --micro-batches 3", accumulated=3)
@configuration("fsdp2-no-reshard", 2, "--framework fsdp2 --dp 2 --micro-batches 2 --no-reshard-after-forward", reshard=False)
@configuration("fsdp2-kept", 2, "--framework fsdp2 --dp 2 --micro-batches 2 --no-reshard-after-forward --reshard-after-backward=false",
               reshard=False, kept=True)
@configuration("fsdp2-secondary", 4, "--framework fsdp2 --dp 4 --micro-batches 2 --secondary-shards 2 --unit-rule layers", reshard=2)
@configuration("fsdp2-secondary-bf16", 4, "--framework fsdp2 --dp 4 --micro-batches 1 --secondary-shards 2 --param-type bf16 --grad-type bf16",
               accumulated=1, reshard=2, dtype=torch.bfloat16, root=False)
@configuration("fsdp2-hsdp", 4, "--framework fsdp2 --dp 4 --micro-batches 2 --data-style hsdp --replicas-of-shards 2", replicas=2)
@configuration("fsdp2-hsdp-once", 4, "--framework fsdp2 --dp 4 --micro-batches 2 --data-style hsdp --replicas-of-shards 2 "
               "--replica-reduction step", replicas=2, deferred=True)
@configuration("fsdp2-mixed", 2, "--framework fsdp2 --dp 2 --micro-batches 2 --param-type bf16", mixed=True)
@configuration("fsdp2-bf16", 2, "--framework fsdp2 --dp 2 --micro-batches 2 --param-type bf16 --grad-type bf16", dtype=torch.bfloat16)
@configuration("fsdp2-torchtitan", 2, "--framework torchtitan --dp 2 --micro-batches 2 --small-calls none", mixed=True, ends=True)
@configuration("fsdp2-torchtitan-hsdp", 4, "--framework torchtitan --dp 4 --micro-batches 2 --small-calls none --data-style hsdp "
               "--replicas-of-shards 2", mixed=True, ends=True, replicas=2)
@configuration("fsdp2-hsdp-mixed", 4, "--framework fsdp2 --dp 4 --micro-batches 1 --data-style hsdp --replicas-of-shards 2 --param-type bf16",
               replicas=2, mixed=True, accumulated=1)
@configuration("fsdp2-torchtitan-checkpointed", 2, "--framework torchtitan --dp 2 --micro-batches 1 --small-calls none --recompute full",
               mixed=True, ends=True, recompute=True, accumulated=1)
@configuration("fsdp2-checkpointed", 2, "--framework fsdp2 --dp 2 --micro-batches 2 --recompute full", recompute=True)
@configuration("fsdp2-unsharded", 2, "--framework fsdp2 --dp 2 --micro-batches 3 --gradient-accumulation unsharded", accumulated=3, once=True)
@configuration("fsdp2-unsharded-hsdp", 4, "--framework fsdp2 --dp 4 --micro-batches 2 --gradient-accumulation unsharded --data-style hsdp "
               "--replicas-of-shards 2", replicas=2, once=True)
@configuration("fsdp2-unsharded-mixed", 2, "--framework fsdp2 --dp 2 --micro-batches 2 --gradient-accumulation unsharded --param-type bf16",
               mixed=True, once=True)
def fsdp2(accumulated=2, reshard=None, kept=False, replicas=1, deferred=False, mixed=False, dtype=torch.float32, ends=False,
          recompute=False, once=False, root=True):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    world = dist.get_world_size()
    if replicas > 1:
        mesh = init_device_mesh(DEVICE, (replicas, world // replicas), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh(DEVICE, (world,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else MixedPrecisionPolicy()
    choices = {"mesh": mesh, "mp_policy": policy}
    model = llama(dtype)
    if recompute:
        model.gradient_checkpointing_enable()
        model.train()
    for layer in model.model.layers:
        fully_shard(layer, **choices, **({} if reshard is None else {"reshard_after_forward": reshard}))
    if ends:
        fully_shard(model.model.embed_tokens, **choices, reshard_after_forward=True)
        fully_shard([model.model.norm, model.lm_head], **choices, reshard_after_forward=False)
    fully_shard(model, **choices, **({} if reshard is None or not root else {"reshard_after_forward": reshard}))

    def before(last):
        if kept:
            model.set_reshard_after_backward(last)
        if deferred:
            model.set_requires_all_reduce(last)
        if once:
            model.set_requires_gradient_sync(last)

    return micro_batches(model, accumulated, before)

