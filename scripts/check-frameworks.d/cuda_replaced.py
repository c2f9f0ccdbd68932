"""Lets a framework that asks for CUDA run on the CPU: tensors for "cuda" are made on the CPU, streams and events do nothing."""

import contextlib

import torch
import torch._dynamo  # reads the functions of torch.cuda, so that it comes before their replacements
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class OnCpu(TorchFunctionMode):
    """Wherever a device is named it is the CPU, and tensors say that they are of CUDA where their type is asked for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return function(*args).replace("torch.", "torch.cuda.")
        numbered = type(kwargs.get("device")) is int
        if function is not torch.device and (numbered or is_cuda(kwargs.get("device"))):
            kwargs["device"] = CPU
        args = [CPU if is_cuda(value) else value for value in args]
        return function(*args, **kwargs)


def is_cuda(device):
    return str(device).startswith("cuda") if isinstance(device, (str, torch.device)) else False


class Nothing:
    """A stream or an event: whatever is asked of it is done already."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: Nothing()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def replace_cuda():
    """For the rest of the process."""
    cuda = torch.cuda
    cuda.current_device = lambda: CPU
    cuda.current_stream = cuda.default_stream = lambda *_: Nothing()
    cuda.Stream = cuda.Event = Nothing
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.synchronize = cuda.empty_cache = cuda.manual_seed = cuda.set_device = lambda *_: None
    cuda.get_rng_state = lambda *_, **__: torch.zeros(1, dtype=torch.uint8)
    cuda.set_rng_state = lambda *_, **__: None
    cuda.is_current_stream_capturing = lambda: False
    cuda.FloatTensor, cuda.IntTensor = torch.FloatTensor, torch.IntTensor
    OnCpu().__enter__()
