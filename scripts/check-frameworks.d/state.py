"""What a rank holds of parameters, gradients and the optimizer between the backward pass and the update: the tensors that are alive in two
ranks of PyTorch and DeepSpeed on gloo, compared with the same parts of `commgauge plan`."""

import gc
import os
import pathlib
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
import transformers
from planned import memory

RANKS = 2
# A vocabulary that no framework pads.
SHAPE = dict(model_type="llama", hidden_size=256, intermediate_size=768, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
             vocab_size=512, max_position_embeddings=256, tie_word_embeddings=False)
SEQUENCE = 16
# Tokens, tables of angles and counters are there besides, and of DeepSpeed's second stage the whole gradient of the tensor in which shares end.
TOLERANCE = 0.03
SHORT = dict(gradient_element_type="bf16")
# Parameters of a bucket of gradients; DeepSpeed's own is larger than the model.
BUCKET = 200_000


def model_of(dtype):
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**SHAPE)).to(dtype)


def loss_of(model):
    tokens = torch.arange(SEQUENCE).reshape(1, SEQUENCE)
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, foreach=False)


def stepped(model, optimizer, steps=2):
    """Steps, and one more backward pass."""
    for step in range(steps + 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model)
        loss.backward()
        if step < steps:
            optimizer.step()
            optimizer.zero_grad()
    return model, optimizer


def ddp(dtype=torch.float32, zero=False):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model_of(dtype))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4) if zero else adam(model.parameters())
    held = stepped(model, optimizer)
    # The buckets of its reducer, which Python does not see (torch/csrc/distributed/c10d/reducer.cpp `initialize_buckets`).
    return held, sum(parameter.grad.nbytes for parameter in model.parameters())


def fsdp1():
    from functools import partial

    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FullyShardedDataParallel(model_of(torch.float32), auto_wrap_policy=policy, mixed_precision=precision, use_orig_params=True,
                                     device_id=torch.device("cpu"))
    return stepped(model, adam(model.parameters())), 0


def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = model_of(torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return stepped(model, adam(model.parameters())), 0


def deepspeed(zero):
    import deepspeed
    import deepspeed.comm.torch

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    model = model_of(torch.bfloat16)
    bucket = {"reduce_bucket_size": BUCKET, "stage3_param_persistence_threshold": 0} if zero else {}
    settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": zero, **bucket}}
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=adam(model.parameters()), config=settings)
    for step in range(3):
        engine.backward(loss_of(engine))
        if step < 2:
            engine.step()
    return (engine, optimizer), 0


CASES = {
    "ddp": (ddp, {}, "ddp", 0, {}),
    "ddp in 16 bits": (ddp, dict(dtype=torch.bfloat16), "ddp", 0, SHORT),
    "hf": (ddp, {}, "hf", 0, {}),
    "ddp with ZeroRedundancyOptimizer": (ddp, dict(zero=True), "ddp", 1, {}),
    "fsdp1": (fsdp1, {}, "fsdp1", 3, {}),
    "fsdp2": (fsdp2, {}, "fsdp2", 3, {}),
    "deepspeed 0": (deepspeed, dict(zero=0), "deepspeed", 0, {}),
    # Of stage 1 whole gradients are gone by then.
    "deepspeed 2": (deepspeed, dict(zero=2), "deepspeed", 2, {}),
    "deepspeed 3": (deepspeed, dict(zero=3), "deepspeed", 3, dict(bucket_parameters=BUCKET)),
}


def rank_of(rank, name, port, file):
    warnings.filterwarnings("ignore")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
                   "DS_ACCELERATOR": "cpu"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    build, choices, *_ = CASES[name]
    held, unseen = build(**choices)  # kept alive while it is counted
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor):
            gradient = [thing.grad] if thing.is_leaf and thing.grad is not None else []
            for tensor in [thing, *gradient]:
                storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    del held
    if rank == 0:
        pathlib.Path(file).write_text(str(unseen + sum(storages.values())))
    dist.barrier()
    dist.destroy_process_group()


def planned(commgauge, framework, zero, training):
    words = [word for key, value in training.items() for word in ("--training", f"{key}={value}")]
    parts, problem = memory(commgauge, SHAPE, RANKS, SEQUENCE, framework, *words, only=f",dp={RANKS},zero_stage={zero}")
    counted = {"parameters", "gradients", "optimizer"} | ({"buffers"} if zero == 3 else set())
    return parts and sum(size for part, size in parts.items() if part in counted), problem


def main():
    commgauge = sys.argv[1]
    differ = 0
    for index, (name, (_, _, framework, zero, training)) in enumerate(CASES.items()):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "held"
            processes.spawn(rank_of, args=(name, 29600 + index, str(file)), nprocs=RANKS)
            theirs = int(file.read_text())
        ours, problem = planned(commgauge, framework, zero, training)
        if ours is None or abs(ours / theirs - 1) > TOLERANCE:
            differ += 1
            print(f"{name}: commgauge {ours}, held {theirs} {problem}")
    print(f"check-frameworks: of {len(CASES) - differ} of {len(CASES)} kinds of data parallelism a rank holds as much state as the frameworks', "
          f"within {TOLERANCE:.0%}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
