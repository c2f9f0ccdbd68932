"""Records every call of collective communication that frameworks make in one step of a small Llama, on gloo and the CPU, and compares the
calls with what `commgauge ops` lists: collective, element type, bytes, ranks of the group, and how often.

    calls.py COMMGAUGE          runs every configuration and compares
    calls.py COMMGAUGE --write  also keeps what was recorded in tests/data/frameworks
"""

import collections
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
import transformers
import torch.multiprocessing as mp
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

FOLDER = pathlib.Path("tests/data/frameworks")
MODEL = FOLDER / "llama"
SEQUENCE = 64

# Name, ranks, flags of `commgauge ops`, and the function that runs it with its choices.
CONFIGURATIONS = []


def configuration(name, ranks, flags, **choices):
    def keep(run):
        CONFIGURATIONS.append((name, ranks, flags, run, choices))
        return run

    return keep


class Recorder(TorchDispatchMode):
    """Every call of c10d, in order, as collective, element type, bytes in the sense of nccl-tests, and the ranks of its group."""

    # Collective, and which argument is counted.
    NAMES = {
        "allreduce_": ("all_reduce", 0),
        "allreduce_coalesced_": ("all_reduce", 0),
        "_allgather_base_": ("all_gather", 0),
        "allgather_": ("all_gather", 1),
        "allgather_into_tensor_coalesced_": ("all_gather", 0),
        "_reduce_scatter_base_": ("reduce_scatter", 1),
        "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
        "broadcast_": ("broadcast", 0),
        "alltoall_base_": ("all_to_all", 1),
        "send": ("send", 0),
    }
    FUNCTIONAL = {
        "all_reduce": "all_reduce",
        "all_reduce_": "all_reduce",
        "all_gather_into_tensor": "all_gather",
        "all_gather_into_tensor_out": "all_gather",
        "reduce_scatter_tensor": "reduce_scatter",
        "all_to_all_single": "all_to_all",
    }

    def __init__(self):
        super().__init__()
        self.calls, self.others = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # DTensor goes first, so that the calls inside of it are seen
        namespace, name = function._schema.name.split("::")
        if namespace == "c10d":
            self.direct(function, name, args, kwargs or {})
        elif namespace in ("_c10d_functional", "_c10d_functional_autograd"):
            self.functional(name, args, kwargs or {})
        return function(*args, **(kwargs or {}))

    def keep(self, collective, tensors, times, ranks):
        for tensor in tensors:
            element = str(tensor.dtype).removeprefix("torch.")
            self.calls.append([collective, element, tensor.numel() * tensor.element_size() * times, ranks])

    def direct(self, function, name, args, kwargs):
        if name not in self.NAMES:
            if not name.startswith(("recv", "barrier", "monitored")):
                self.others.append(name)
            return
        collective, which = self.NAMES[name]
        group = next(dist.ProcessGroup.unbox(value) for value in [*args, *kwargs.values()] if isinstance(value, torch.ScriptObject)
                     and "ProcessGroup" in str(value._type()))
        tensors = args[which]
        while isinstance(tensors, (list, tuple)) and tensors and isinstance(tensors[0], (list, tuple)):
            tensors = [each for part in tensors for each in part]
        tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        # The forms on lists have what each rank gives; the others the whole buffer.
        times = dist.get_world_size(group) if name == "allgather_" else 1
        self.keep(collective, tensors, times, dist.get_process_group_ranks(group))

    def functional(self, name, args, kwargs):
        if name in ("wait_tensor", "_wrap_tensor_autograd"):
            return
        if name not in self.FUNCTIONAL:
            self.others.append(name)
            return
        collective = self.FUNCTIONAL[name]
        group = dist.distributed_c10d._resolve_process_group([value for value in args if isinstance(value, str)][-1])
        times = dist.get_world_size(group) if collective == "all_gather" else 1
        self.keep(collective, [args[0]], times, dist.get_process_group_ranks(group))


def llama(dtype=torch.float32):
    torch.manual_seed(1)
    fields = json.loads((MODEL / "config.json").read_text())
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields, attn_implementation="eager")).to(dtype)


def batch():
    return torch.arange(SEQUENCE).remainder(320).reshape(1, SEQUENCE)


def loss_of(model, tokens=None):
    tokens = batch() if tokens is None else tokens
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss


def micro_batches(model, count, before=None):
    """The second step: the first one prepares what later steps keep."""
    for step in range(2):
        recorder = Recorder()
        with recorder:
            for index in range(count):
                if before:
                    before(index == count - 1)
                loss_of(model).backward()
        model.zero_grad()
    return recorder


@configuration("ddp", 2, "--framework ddp --dp 2 --micro-batches 1")
@configuration("ddp-4", 4, "--framework ddp --dp 4 --micro-batches 2", accumulated=2)
@configuration("ddp-bf16", 2, "--framework ddp --dp 2 --micro-batches 1 --grad-type bf16", dtype=torch.bfloat16)
def ddp(accumulated=1, dtype=torch.float32):
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(llama(dtype), broadcast_buffers=False)
    for _ in range(3):  # buckets are made again in the second
        recorder = Recorder()
        with recorder:
            for index in range(accumulated):
                model.require_backward_grad_sync = index == accumulated - 1
                loss_of(model).backward()
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

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) if strategy == "HYBRID_SHARD" else None
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
        device_id=torch.device("cpu"),
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
          recompute=False, once=False):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    world = dist.get_world_size()
    if replicas > 1:
        mesh = init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,))
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
    fully_shard(model, **choices, **({} if reshard is None else {"reshard_after_forward": reshard}))

    def before(last):
        if kept:
            model.set_reshard_after_backward(last)
        if deferred:
            model.set_requires_all_reduce(last)
        if once:
            model.set_requires_gradient_sync(last)

    return micro_batches(model, accumulated, before)


@configuration("hf-trainer-fsdp", 2, "--framework hf --dp 2 --data-style fsdp --micro-batches 3 --param-type fp32", sharded=2)
@configuration("hf-trainer-hsdp", 4, "--framework hf --dp 4 --data-style hsdp --replicas-of-shards 2 --gradient-accumulation sharded "
               "--micro-batches 3 --param-type fp32", sharded=2)
def hugging_face_trainer(sharded):
    """The second step of the Trainer itself, of a model that transformers shards as it loads it."""
    from transformers.distributed import DistributedConfig

    folder = pathlib.Path(os.environ["RECORDED_MODEL"])
    if dist.get_rank() == 0:
        llama().save_pretrained(folder)
    dist.barrier()
    config = DistributedConfig(fsdp_size=sharded, dp_replicate_size=dist.get_world_size() // sharded)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, distributed_config=config, dtype=torch.float32,
                                                              attn_implementation="eager")
    recorder = Recorder()

    class SecondStep(transformers.TrainerCallback):
        def on_step_begin(self, arguments, state, control, **_):
            if state.global_step == 1:
                recorder.__enter__()

        def on_step_end(self, arguments, state, control, **_):
            if state.global_step == 2:
                recorder.__exit__(None, None, None)

    tokens = batch()[0]
    arguments = transformers.TrainingArguments(
        output_dir=folder, use_cpu=True, max_steps=2, per_device_train_batch_size=1, gradient_accumulation_steps=3, report_to=[],
        save_strategy="no", disable_tqdm=True,
    )
    data = [{"input_ids": tokens, "labels": tokens}] * 64
    transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[SecondStep()]).train()
    return recorder


@configuration("hf-tp-2", 2, "--framework hf --tp 2 --micro-batches 2 --activation-type fp32 --small-calls none")
@configuration("hf-tp-2-bf16", 2, "--framework hf --tp 2 --micro-batches 1 --small-calls none", accumulated=1, dtype=torch.bfloat16)
@configuration("hf-tp-4", 4, "--framework hf --tp 4 --micro-batches 1 --activation-type fp32 --small-calls none", accumulated=1)
def hugging_face_tensor(accumulated=2, dtype=torch.float32):
    folder = pathlib.Path(os.environ["RECORDED_MODEL"])
    if dist.get_rank() == 0 and not (folder / "config.json").exists():
        llama().save_pretrained(folder)
    dist.barrier()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", dtype=dtype, attn_implementation="eager")
    return micro_batches(model, accumulated)


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
    both = init_device_mesh("cpu", (shards, dist.get_world_size() // shards), mesh_dim_names=("dp", "tp"))
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
    tokens, positions = batch(), torch.arange(SEQUENCE).reshape(1, SEQUENCE)
    for _ in range(2):
        recorder = Recorder()
        with recorder, loss_parallel():
            for _ in range(accumulated):
                logits = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
                torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        model.zero_grad()
    return recorder


@configuration("torch-pipelining-1f1b", 3, "--framework torchtitan --pp 3 --micro-batches 4 --activation-type fp32 --small-calls none",
               schedule="Schedule1F1B")
@configuration("torch-pipelining-gpipe", 3, "--framework torchtitan --pp 3 --micro-batches 4 --schedule gpipe --activation-type fp32 "
               "--small-calls none", schedule="ScheduleGPipe")
def pipelined(schedule):
    """One layer on each rank; the first has the embedding too, the last norm and head."""
    from torch.distributed import pipelining

    count, rank, ranks = 4, dist.get_rank(), dist.get_world_size()
    model = llama().model
    head = llama().lm_head

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = model.embed_tokens if rank == 0 else None
            self.layer = model.layers[rank]
            self.norm, self.head = (model.norm, head) if rank == ranks - 1 else (None, None)

        def forward(self, hidden):
            hidden = self.embed(hidden) if self.embed else hidden
            positions = torch.arange(SEQUENCE).reshape(1, SEQUENCE)
            hidden = self.layer(hidden, position_embeddings=model.rotary_emb(hidden, positions), position_ids=positions)
            return self.head(self.norm(hidden)) if self.head else hidden

    device = torch.device("cpu")
    tokens = batch()
    between = torch.zeros(1, SEQUENCE, model.config.hidden_size)
    stage = pipelining.PipelineStage(Stage(), rank, ranks, device, input_args=(tokens if rank == 0 else between,))
    loss = lambda logits, target: torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    schedule = getattr(pipelining, schedule)(stage, count, loss_fn=loss)
    tokens = tokens.repeat(count, 1)
    for _ in range(2):
        recorder = Recorder()
        with recorder:
            if rank == 0:
                schedule.step(tokens)
            elif rank == ranks - 1:
                schedule.step(target=tokens)
            else:
                schedule.step()
    return recorder


@configuration("deepspeed-zero0", 2, "--framework deepspeed --dp 2 --micro-batches 2", stage=0)
@configuration("deepspeed-zero1", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero1", stage=1)
@configuration("deepspeed-zero2", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero2", stage=2)
@configuration("deepspeed-zero0-4", 4, "--framework deepspeed --dp 4 --micro-batches 1", stage=0, accumulated=1)
@configuration("deepspeed-zero1-4", 4, "--framework deepspeed --dp 4 --micro-batches 3 --data-style zero1", stage=1, accumulated=3)
@configuration("deepspeed-zero2-4", 4, "--framework deepspeed --dp 4 --micro-batches 3 --data-style zero2", stage=2, accumulated=3)
@configuration("deepspeed-zero2-buckets", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero2 --bucket-parameters 30000",
               stage=2, bucket=30000)
@configuration("deepspeed-zero1-buckets", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero1 --bucket-parameters 30000",
               stage=1, bucket=30000)
@configuration("deepspeed-zero0-buckets", 2, "--framework deepspeed --dp 2 --micro-batches 2 --bucket-parameters 30000", stage=0, bucket=30000)
def deepspeed_zero(stage, accumulated=2, bucket=None):
    import deepspeed
    import deepspeed.comm.torch

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # shared memory between the processes of a CPU, which no GPU has
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulated,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, **({"reduce_bucket_size": bucket} if bucket else {})},
    }
    model = llama(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    if stage == 0 and bucket:
        fallback = engine.buffered_allreduce_fallback
        engine.buffered_allreduce_fallback = lambda grads=None, elements_per_buffer=0: fallback(grads, elements_per_buffer=bucket)
    for _ in range(2):
        recorder = Recorder()
        with recorder:
            for _ in range(accumulated):
                engine.backward(loss_of(engine))
                engine.step()
    return recorder


def work(rank, world, port, run, choices, file):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RECORDED_MODEL=file + ".model")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    try:
        recorder = run(**choices)
        if rank == 0:
            pathlib.Path(file).write_text(json.dumps({"calls": recorder.calls, "others": recorder.others}))
    except Exception:
        if rank == 0:
            pathlib.Path(file).write_text(json.dumps({"problem": traceback.format_exc()}))
        raise
    finally:
        dist.destroy_process_group()


def record(world, run, choices):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "recorded.json"
        try:
            # Forked, so that the frameworks are imported once.
            mp.start_processes(work, (world, port, run, choices, str(file)), nprocs=world, start_method="fork")
        except Exception as cause:
            known = json.loads(file.read_text()).get("problem", "") if file.exists() else ""
            return {"problem": known or str(cause)}
        return json.loads(file.read_text())


def listed(commgauge, flags):
    """What `commgauge ops` lists, counted as the recorded calls are."""
    command = [commgauge, "ops", "--model", str(MODEL / "config.json"), "--sequence", str(SEQUENCE), *flags.split(), "--stage", "0",
               "--format", "json"]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr)
    counts = collections.Counter()
    for op in json.loads(answer.stdout)["ops"]:
        collective = "send" if op["collective"].startswith("send_recv") else op["collective"]
        counts[(collective, op["element_type"], op["bytes_total"], op["group_size"])] += op["count_per_step"]
    return counts


def counted(calls):
    return collections.Counter((collective, element, size, len(ranks)) for collective, element, size, ranks in calls)


def versions():
    known = {"torch": torch.__version__, "transformers": transformers.__version__}
    try:
        import deepspeed

        known["deepspeed"] = deepspeed.__version__
    except ImportError:
        pass
    return known


def differs(name):
    """What is known to differ in a configuration, and why; empty where nothing does."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text()).get("differs", "") if file.exists() else ""


def keep_recorded(name, world, flags, calls):
    document = {"name": name, "versions": versions(), "ranks": world, "flags": flags, "sequence": SEQUENCE, "differs": differs(name)}
    head = json.dumps(document, indent=1).removesuffix("\n}")
    rows = ",\n".join("  " + json.dumps(call) for call in calls)
    (FOLDER / f"{name}.json").write_text(f'{head},\n "calls": [\n{rows}\n ]\n}}\n')


def main():
    commgauge, write = sys.argv[1], "--write" in sys.argv[2:]
    wanted = [name for name in sys.argv[2:] if not name.startswith("--")]
    agree, differ, unexpected, skipped = 0, 0, 0, 0
    for name, world, flags, run, choices in CONFIGURATIONS:
        if wanted and name not in wanted:
            continue
        recorded = record(world, run, choices)
        if "problem" in recorded:
            print(f"{name}: cannot run: {recorded['problem'].strip().splitlines()[-1]}")
            skipped += 1
            continue
        theirs, ours = counted(recorded["calls"]), listed(commgauge, flags)
        if recorded["others"]:
            print(f"{name}: calls that are not compared: {sorted(set(recorded['others']))}")
        if write:
            keep_recorded(name, world, flags, recorded["calls"])
        if theirs == ours:
            agree += 1
            continue
        differ += 1
        known = differs(name)
        unexpected += not known
        print(f"{name}: commgauge ops {flags}{': ' + known if known else ''}")
        for call in sorted({*theirs, *ours}, key=str):
            if theirs[call] != ours[call]:
                print(f"    {call}: ran {theirs[call]}, listed {ours[call]}")
    print(f"check-frameworks: {agree} of {agree + differ} configurations call what commgauge lists, {skipped} could not be run")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
