"""Steps of DeepSpeed's engine."""

import os
import sys

import torch
import torch.distributed as dist
from quantizer_replaced import replace_quantizer
from recorder import Recorder, configuration
from small_model import causal_model, loss_of


# What a step says of parameters in stage 3: flag of `commgauge ops`, and setting of DeepSpeed.
GATHERED = {
    "persistence": ("--persistent-parameters", "stage3_param_persistence_threshold"),
    "prefetch": ("--prefetch-bucket", "stage3_prefetch_bucket_size"),
    "live": ("--live-parameters", "stage3_max_live_parameters"),
    "reuse": ("--reuse-distance", "stage3_max_reuse_distance"),
}


def zero3(name, ranks, flags, accumulated=2, bucket=None, secondary=None, weights=False, node=None, model="llama", **choices):
    given = [f"{GATHERED[choice][0]} {number}" for choice, number in choices.items()] + ([f"--bucket-parameters {bucket}"] if bucket else [])
    flags = " ".join([f"--framework deepspeed --dp {ranks} --data-style zero3", flags, *given])
    settings = {GATHERED[choice][1]: number for choice, number in choices.items()}
    if secondary:
        settings["zero_hpz_partition_size"] = secondary
    if weights:
        flags += " --quantised-parameters"
        settings["zero_quantized_weights"] = True
    if node:
        flags += f" --quantised-gradients {node}"
        settings |= {"zero_quantized_gradients": True, "node": node}
    return configuration(name, ranks, flags, model=model, zero=3, accumulated=accumulated, bucket=bucket, **settings)


@configuration("deepspeed-zero0", 2, "--framework deepspeed --dp 2 --micro-batches 2", zero=0)
@configuration("deepspeed-zero1", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero1", zero=1)
@configuration("deepspeed-zero2", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero2", zero=2)
@configuration("deepspeed-zero0-4", 4, "--framework deepspeed --dp 4 --micro-batches 1", zero=0, accumulated=1)
@configuration("deepspeed-zero1-4", 4, "--framework deepspeed --dp 4 --micro-batches 3 --data-style zero1", zero=1, accumulated=3)
@configuration("deepspeed-zero2-4", 4, "--framework deepspeed --dp 4 --micro-batches 3 --data-style zero2", zero=2, accumulated=3)
@configuration("deepspeed-zero2-buckets", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero2 --bucket-parameters 30000",
               zero=2, bucket=30000)
@configuration("deepspeed-zero1-buckets", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero1 --bucket-parameters 30000",
               zero=1, bucket=30000)
@configuration("deepspeed-zero0-buckets", 2, "--framework deepspeed --dp 2 --micro-batches 2 --bucket-parameters 30000", zero=0, bucket=30000)
@zero3("deepspeed-zero3", 2, "--micro-batches 2")
@zero3("deepspeed-zero3-4", 4, "--micro-batches 1", accumulated=1)
@zero3("deepspeed-zero3-large", 2, "--micro-batches 2", persistence=100)
@zero3("deepspeed-zero3-alone", 2, "--micro-batches 2", persistence=100, prefetch=0, live=0, reuse=0)
@zero3("deepspeed-zero3-ahead", 2, "--micro-batches 1", accumulated=1, persistence=100, prefetch=10000, live=60000, reuse=0)
@zero3("deepspeed-zero3-kept", 4, "--micro-batches 2", persistence=3000, prefetch=20000, live=100000, reuse=50000)
@zero3("deepspeed-zero3-narrow", 2, "--micro-batches 2", persistence=100, prefetch=5000, live=20000, reuse=15000)
@zero3("deepspeed-zero3-hpz", 4, "--micro-batches 1 --secondary-shards 2", accumulated=1, persistence=100, secondary=2)
@zero3("deepspeed-zero3-hpz-kept", 4, "--micro-batches 1 --secondary-shards 2", accumulated=1, persistence=3000, prefetch=20000, secondary=2)
@zero3("deepspeed-zero3-buckets", 4, "--micro-batches 2", persistence=5000, prefetch=30000, bucket=30000)
@zero3("deepspeed-zero3-qwz", 4, "--micro-batches 2", persistence=100, prefetch=20000, weights=True)
@zero3("deepspeed-zero3-qwz-alone", 2, "--micro-batches 2", persistence=100, prefetch=0, live=0, reuse=0, weights=True)
@zero3("deepspeed-zero3-qwz-hpz", 4, "--micro-batches 1 --secondary-shards 2", accumulated=1, persistence=100, secondary=2, weights=True)
@zero3("deepspeed-zero3-qgz", 4, "--micro-batches 2", persistence=100, node=2)
@zero3("deepspeed-zero-plus-plus", 4, "--micro-batches 1 --secondary-shards 2", accumulated=1, persistence=3000, prefetch=20000, secondary=2,
       weights=True, node=2)
@zero3("deepspeed-zero3-experts-alone", 2, "--micro-batches 2", persistence=100, prefetch=0, live=0, reuse=0, model="mixtral")
@zero3("deepspeed-zero3-experts", 2, "--micro-batches 2", persistence=100, prefetch=20000, model="mixtral")
@zero3("deepspeed-zero3-experts-qgz", 4, "--micro-batches 2", persistence=100, prefetch=0, live=0, reuse=0, node=2, model="mixtral")
@configuration("deepspeed-zero2-experts", 2, "--framework deepspeed --dp 2 --micro-batches 2 --data-style zero2 --bucket-parameters 30000",
               model="mixtral", zero=2, bucket=30000)
def deepspeed_zero(zero, accumulated=2, bucket=None, node=None, model="llama", **more):
    import deepspeed
    import deepspeed.comm.torch

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # shared memory between the processes of a CPU, which no GPU has
    if node:
        os.environ["LOCAL_SIZE"] = str(node)  # what DeepSpeed takes for the devices of a node where they are processors
    replace_quantizer()
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulated,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": zero, **more, **({"reduce_bucket_size": bucket} if bucket else {})},
    }
    model = causal_model(model, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    if zero == 0 and bucket:
        fallback = engine.buffered_allreduce_fallback
        engine.buffered_allreduce_fallback = lambda grads=None, elements_per_buffer=0: fallback(grads, elements_per_buffer=bucket)
    for _ in range(3 if zero == 3 else 2):  # the order of modules is agreed on in the first two micro-batches
        recorder = Recorder()
        with recorder:
            for _ in range(accumulated):
                engine.backward(loss_of(engine))
                engine.step()
    return recorder
