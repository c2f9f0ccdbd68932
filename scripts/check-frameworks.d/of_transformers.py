"""Steps of Hugging Face: the Trainer with shards, and tensor parallelism of transformers."""

import os
import pathlib

import transformers
import torch
import torch.distributed as dist
from recorder import DEVICE, Recorder, configuration
from small_model import batch, llama, micro_batches


@configuration("hf-trainer-fsdp", 2, "--framework hf --dp 2 --data-style fsdp --micro-batches 3 --param-type fp32", sharded=2)
@configuration("hf-trainer-hsdp", 4, "--framework hf --dp 4 --data-style hsdp --replicas-of-shards 2 --micro-batches 3 --param-type fp32", sharded=2)
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
        output_dir=folder, use_cpu=DEVICE == "cpu", max_steps=2, per_device_train_batch_size=1, gradient_accumulation_steps=3, report_to=[],
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
