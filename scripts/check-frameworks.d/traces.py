"""What a step on GPUs leaves for `commgauge trace`: PyTorch's profile and execution trace of it, and its flight recorder's dump since the start."""

import os
import pathlib
import tempfile

import torch
import torch._C._distributed_c10d as c10d
from torch.profiler import ExecutionTraceObserver, ProfilerActivity

# Before the first group is made.
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "20000")
os.environ.setdefault("TORCH_NCCL_ENABLE_TIMING", "1")


class Traces:
    """Those of one step, from `begin` to `end`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.execution = pathlib.Path(self.folder.name) / "execution.json"
        self.observer = ExecutionTraceObserver()
        self.profile = torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])

    def begin(self):
        torch.cuda.synchronize()
        self.observer.register_callback(str(self.execution))
        self.profile.start()
        self.observer.start()

    def end(self):
        torch.cuda.synchronize()
        self.observer.stop()
        self.profile.stop()
        self.observer.unregister_callback()

    def keep(self, name, rank):
        folder = pathlib.Path(os.environ["RECORDED_TRACES"]) / name
        folder.mkdir(parents=True, exist_ok=True)
        self.profile.export_chrome_trace(f"{folder}/kineto-rank{rank}.json.gz")
        (folder / f"execution-rank{rank}.json").write_bytes(self.execution.read_bytes())
        (folder / f"recorder-rank{rank}").write_bytes(c10d._dump_nccl_trace())
