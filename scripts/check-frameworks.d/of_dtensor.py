"""Steps of PyTorch's DTensor, and of its pipelines."""

import torch
import torch.distributed as dist
import transformers
from recorder import DEVICE, Recorder, configuration
from small_model import SEQUENCE, batch, causal_model, llama


@configuration("torchtitan-tp-2", 4, "--framework torchtitan --tp 2 --dp 2 --micro-batches 2 --activation-type fp32 --param-type fp32 "
               "--small-calls none")
@configuration("torchtitan-tp-2-checkpointed", 4, "--framework torchtitan --tp 2 --dp 2 --micro-batches 2 --activation-type fp32 "
               "--param-type fp32 --small-calls none --recompute full", recompute=True)
@configuration("dtensor-tp-2", 2, "--framework fsdp2 --tp 2 --micro-batches 2 --activation-type fp32", sequence=False)
@configuration("dtensor-tp-4", 4, "--framework fsdp2 --tp 4 --micro-batches 1 --activation-type fp32", sequence=False, accumulated=1)
def divided_by_dtensor(sequence=True, recompute=False, accumulated=2):
    """The plan of torchtitan's models/llama3/infra/parallelize.py apply_tp, for the same modules of transformers."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
                                                   parallelize_module)

    shards = 2 if sequence else 1
    both = init_device_mesh(DEVICE, (shards, dist.get_world_size() // shards), mesh_dim_names=("dp", "tp"))
    mesh = both["tp"]
    model = llama()
    model.config._attn_implementation = "sdpa"
    if recompute:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    between = Shard(1) if sequence else Replicate()
    parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
        **({"model.norm": SequenceParallel()} if sequence else {}),
    })
    for index, layer in enumerate(model.model.layers):
        plan = {name: ColwiseParallel() for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}
        plan |= {name: RowwiseParallel(output_layouts=between) for name in ("self_attn.o_proj", "mlp.down_proj")}
        if sequence:
            plan |= {
                "input_layernorm": SequenceParallel(),
                "post_attention_layernorm": SequenceParallel(),
                "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": Shard(1)},
                                                desired_input_kwarg_layouts={"hidden_states": Replicate()}),
                "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            }
        parallelize_module(layer, mesh, plan)
        if recompute:
            model.model.layers[index] = checkpoint_wrapper(layer)
    if sequence:
        from torch.distributed.fsdp import fully_shard

        for layer in model.model.layers:
            fully_shard(layer, mesh=both["dp"])
        fully_shard(model.model.embed_tokens, mesh=both["dp"])
        fully_shard([model.model.norm, model.lm_head], mesh=both["dp"], reshard_after_forward=False)
        fully_shard(model, mesh=both["dp"])
    tokens, positions = batch(), torch.arange(SEQUENCE, device=DEVICE).reshape(1, SEQUENCE)
    for _ in range(2):
        recorder = Recorder()
        with recorder, loss_parallel():
            for _ in range(accumulated):
                logits = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
                torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        model.zero_grad()
    return recorder


# torchtitan's models/llama3/infra/parallelize.py with stages: what was gathered stays so during the step.
SHARDED_STAGES = "--framework torchtitan --pp 2 --dp 2 --micro-batches 4 --activation-type fp32 --param-type fp32 --small-calls none"


@configuration("torchtitan-pp-2", 4, SHARDED_STAGES, model="mistral", schedule="Schedule1F1B", shards=2)
@configuration("torchtitan-pp-2-last", 4, SHARDED_STAGES, model="mistral", stage=1, rank=2, schedule="Schedule1F1B", shards=2)
@configuration("torch-pipelining-1f1b", 3, "--framework torchtitan --pp 3 --micro-batches 4 --activation-type fp32 --small-calls none",
               schedule="Schedule1F1B")
@configuration("torch-pipelining-gpipe", 3, "--framework torchtitan --pp 3 --micro-batches 4 --schedule gpipe --activation-type fp32 "
               "--small-calls none", schedule="ScheduleGPipe")
def pipelined(schedule, shards=1, model="llama"):
    """Equal numbers of layers on each stage; the first has the embedding too, the last norm and head."""
    from torch.distributed import pipelining
    from torch.distributed.device_mesh import init_device_mesh

    count, stages = 4, dist.get_world_size() // shards
    mesh = init_device_mesh(DEVICE, (stages, shards), mesh_dim_names=("pp", "dp"))
    rank, last = mesh.get_local_rank("pp"), stages - 1
    whole = causal_model(model)
    model, head = whole.model, whole.lm_head
    layers = len(model.layers) // stages

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = model.embed_tokens if rank == 0 else None
            self.layers = torch.nn.ModuleList(model.layers[rank * layers : (rank + 1) * layers])
            self.norm, self.head = (model.norm, head) if rank == last else (None, None)

        def forward(self, hidden):
            hidden = self.embed(hidden) if self.embed else hidden
            positions = torch.arange(SEQUENCE, device=DEVICE).reshape(1, SEQUENCE)
            for layer in self.layers:
                hidden = layer(hidden, position_embeddings=model.rotary_emb(hidden, positions), position_ids=positions)
            return self.head(self.norm(hidden)) if self.head else hidden

    module = Stage()
    if shards > 1:
        from torch.distributed.fsdp import fully_shard

        for layer in module.layers:
            fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=False)
        if module.embed:
            fully_shard(module.embed, mesh=mesh["dp"], reshard_after_forward=False)
        if module.head:
            fully_shard([module.norm, module.head], mesh=mesh["dp"], reshard_after_forward=False)
        fully_shard(module, mesh=mesh["dp"])
    device = torch.device(DEVICE)
    tokens = batch()
    between = torch.zeros(1, SEQUENCE, model.config.hidden_size, device=DEVICE)
    stage = pipelining.PipelineStage(module, rank, stages, device, input_args=(tokens if rank == 0 else between,),
                                     group=mesh["pp"].get_group())
    loss = lambda logits, target: torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    schedule = getattr(pipelining, schedule)(stage, count, loss_fn=loss)
    tokens = tokens.repeat(count, 1)
    for _ in range(2):
        recorder = Recorder()
        with recorder:
            if rank == 0:
                schedule.step(tokens)
            elif rank == last:
                schedule.step(target=tokens)
            else:
                schedule.step()
    return recorder


@configuration("torch-cp-2", 2, "--framework fsdp2 --cp 2 --micro-batches 2 --activation-type fp32")
@configuration("torch-cp-4", 4, "--framework fsdp2 --cp 4 --micro-batches 1 --activation-type fp32", accumulated=1)
@configuration("torch-cp-2-dp-2", 4, "--framework torchtitan --cp 2 --dp 2 --micro-batches 2 --small-calls none", ends=True, mixed=True)
def divided_context(accumulated=2, ends=False, mixed=False):
    """PyTorch's ring attention with the kernel of the CPU in place of those of a GPU: what it calls in between is its own."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    world = dist.get_world_size()
    both = init_device_mesh(DEVICE, (world // 2, 2) if ends else (1, world), mesh_dim_names=("dp", "cp"))
    group, mesh = both.get_group("cp"), both._flatten("dp_cp")
    kernels = torch.ops.aten

    def repeated(query, tensor):
        return tensor.repeat_interleave(query.shape[1] // tensor.shape[1], dim=1)

    def forward(query, key, value, is_causal, **_):
        key, value = repeated(query, key), repeated(query, value)
        if DEVICE == "cpu":
            return kernels._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal)
        query, key, value = (tensor.bfloat16() for tensor in (query, key, value))
        out, logsumexp, *_ = kernels._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal)
        return out.float(), logsumexp

    def backward(query, key, value, out, logsumexp, is_causal, grad_out, **_):
        inputs = [grad_out.contiguous(), query, repeated(query, key), repeated(query, value), out]
        if DEVICE == "cpu":
            gradients = kernels._scaled_dot_product_flash_attention_for_cpu_backward(*inputs, logsumexp, 0.0, is_causal)
        else:
            seed = torch.zeros((), dtype=torch.int64, device=DEVICE)
            gradients = kernels._scaled_dot_product_flash_attention_backward(
                *(tensor.bfloat16() for tensor in inputs), logsumexp, None, None, query.shape[2], key.shape[2], 0.0, is_causal, seed, seed)
        of_query, of_key, of_value = (gradient.float() for gradient in gradients)
        together = lambda tensor: tensor.reshape(key.shape[0], key.shape[1], -1, *key.shape[2:]).sum(2)
        return of_query, together(of_key), together(of_value)

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(context, query, key, value):
            out, logsumexp = ring._templated_ring_attention(group, 2, forward, query, key, value, is_causal=True)
            context.save_for_backward(query, key, value, out, logsumexp)
            return out

        @staticmethod
        def backward(context, gradient):
            query, key, value, out, logsumexp = context.saved_tensors
            return ring._templated_ring_attention_backward(group, 2, backward, gradient, "grad_out", query, key, value, out, logsumexp, True)

    def attention(module, query, key, value, *_, **__):
        return Attention.apply(query, key, value).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("divided", attention)
    model = llama()
    model.config._attn_implementation = "divided"
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else MixedPrecisionPolicy()
    choices = {"mesh": mesh, "mp_policy": policy}
    for layer in model.model.layers:
        fully_shard(layer, **choices)
    if ends:
        fully_shard(model.model.embed_tokens, **choices)
        fully_shard([model.model.norm, model.lm_head], **choices, reshard_after_forward=False)
    fully_shard(model, **choices)
    tokens = batch()[:, : SEQUENCE // dist.get_world_size(group)]
    for _ in range(2):
        recorder = Recorder()
        with recorder:
            for _ in range(accumulated):
                logits = model(input_ids=tokens, use_cache=False).logits
                torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        model.zero_grad()
    return recorder
