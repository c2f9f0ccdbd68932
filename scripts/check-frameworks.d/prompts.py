"""What the frameworks that serve have in common: the prompts, the model as a file, and which calls are those of devices."""

import json

import torch
import transformers
from recorder import configuration
from small_model import FOLDER, SEQUENCE

REQUESTS = 2


def prefill(framework, name, ranks, flags, **choices):
    flags = f"--framework {framework} {flags} --serve prefill --batch {REQUESTS} --prompt-tokens {SEQUENCE}"
    return configuration(f"{framework}-{name}", ranks, flags, **choices)


def decode(framework, name, ranks, flags, **choices):
    """A step over one further token of every request."""
    flags = f"--framework {framework} {flags} --serve decode --batch {REQUESTS} --prompt-tokens {SEQUENCE}"
    return configuration(f"{framework}-decode-{name}", ranks, flags, tokens=1, **choices)


def keep_config(model, folder):
    """The model as both read it, from a folder of each rank."""
    fields = json.loads((FOLDER / model / "config.json").read_text())
    config = transformers.AutoConfig.for_model(**fields)
    config.save_pretrained(folder)
    return config


def tokens_and_positions(of_request):
    """The last tokens of every request."""
    return torch.arange(REQUESTS * of_request).remainder(320), torch.arange(SEQUENCE - of_request, SEQUENCE).repeat(REQUESTS)


def of_last_tokens(hidden):
    of_request = len(hidden) // REQUESTS
    return hidden[of_request - 1 :: of_request]


def keep_calls_of_devices(recorder):
    """What a stage is about to get is said by the hosts, in a number and bytes."""
    recorder.calls = [call for call in recorder.calls if call[:2] not in (["send", "int64"], ["send", "uint8"])]
    return recorder
