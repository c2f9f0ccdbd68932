"""The small models whose steps are recorded, and a step of them."""

import json
import pathlib

import torch
import transformers
from recorder import DEVICE, Recorder

FOLDER = pathlib.Path("tests/data/frameworks")
SEQUENCE = 64


def causal_model(name, dtype=torch.float32):
    torch.manual_seed(1)
    fields = json.loads((FOLDER / name / "config.json").read_text())
    config = transformers.AutoConfig.for_model(**fields, attn_implementation="eager")
    return transformers.AutoModelForCausalLM.from_config(config).to(dtype).to(DEVICE)


def llama(dtype=torch.float32):
    return causal_model("llama", dtype)


def batch():
    return torch.arange(SEQUENCE, device=DEVICE).remainder(320).reshape(1, SEQUENCE)


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
