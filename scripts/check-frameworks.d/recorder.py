"""Records every call of collective communication of a step: a dispatch mode of PyTorch sees them before gloo carries them out."""

import json
import os
import pathlib
import socket
import tempfile
import traceback
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from traces import Traces

# Every configuration, in the order in which it was defined.
CONFIGURATIONS = []
# Where the steps run, and what carries their calls there.
DEVICE = os.environ.get("RECORDED_DEVICE", "cpu")
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


@dataclass
class Configuration:
    """A step to record: ranks, flags of `commgauge ops`, and the function that runs it with its choices."""

    name: str
    ranks: int
    flags: str
    run: object
    # Of the model, below tests/data/frameworks.
    model: str = "llama"
    # The stage of a pipeline whose first rank is recorded, and that of `commgauge ops`.
    stage: int = 0
    rank: int = 0
    choices: dict = field(default_factory=dict)


def configuration(name, ranks, flags, model="llama", stage=0, rank=0, **choices):
    if model != "llama":
        choices["model"] = model

    def keep(run):
        CONFIGURATIONS.append(Configuration(name, ranks, flags, run, model, stage, rank, choices))
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
        "reduce_scatter_": ("reduce_scatter", 0),
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
        self.traces = Traces() if DEVICE == "cuda" else None

    def __enter__(self):
        if self.traces:
            self.traces.begin()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        if self.traces:
            self.traces.end()

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
        if len(ranks) == 1:
            return  # nothing is sent
        for tensor in tensors:
            element = str(tensor.dtype).removeprefix("torch.").replace("bool", "uint8")  # a byte, as NCCL sends it
            self.calls.append([collective, element, tensor.numel() * tensor.element_size() * times, ranks])

    def direct(self, function, name, args, kwargs):
        if name not in self.NAMES:
            if not name.startswith(("recv", "barrier", "monitored")):
                self.others.append(name)
            return
        collective, which = self.NAMES[name]
        group = next(dist.ProcessGroup.unbox(value) for value in [*args, *kwargs.values()] if isinstance(value, torch.ScriptObject)
                     and "ProcessGroup" in str(value._type()))
        if name == "alltoall_base_" and (args[3] or args[4]):
            collective = "all_to_all_v"
        tensors = args[which]
        while isinstance(tensors, (list, tuple)) and tensors and isinstance(tensors[0], (list, tuple)):
            tensors = [each for part in tensors for each in part]
        tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        # The forms on lists have what each rank gives or gets; the others the whole buffer.
        times = dist.get_world_size(group) if name in ("allgather_", "reduce_scatter_") else 1
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
        if collective == "all_to_all" and sum(size > 0 for size in args[2]) == 1:
            collective = "send"  # permute_tensor: everything to one other rank
        self.keep(collective, [args[0]], times, dist.get_process_group_ranks(group))


def work(rank, configuration, port, file):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(configuration.ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(configuration.ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RECORDED_MODEL=file + ".model")
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        # Ranks that have no GPU of their own share one (NCCL 2.30).
        device = rank % torch.cuda.device_count()
        os.environ["LOCAL_RANK"] = str(device)
        torch.cuda.set_device(device)
    dist.init_process_group(BACKENDS[DEVICE], rank=rank, world_size=configuration.ranks)
    try:
        recorder = configuration.run(**configuration.choices)
        if recorder.traces:
            recorder.traces.keep(configuration.name, rank)
        if rank == configuration.rank:
            pathlib.Path(file).write_text(json.dumps({"calls": recorder.calls, "others": recorder.others}))
    except Exception:
        pathlib.Path(f"{file}.problem-{rank}").write_text(traceback.format_exc())
        raise
    finally:
        dist.destroy_process_group()


def record(configuration):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "recorded.json"
        try:
            # Forked, so that the frameworks are imported once.
            mp.start_processes(work, (configuration, port, str(file)), nprocs=configuration.ranks, start_method="fork")
        except Exception as cause:
            # The others end because one did.
            known = [each.read_text() for each in sorted(pathlib.Path(folder).glob("*.problem-*"))]
            said = [text for text in known if "Connection closed by peer" not in text] or known
            return {"problem": said[0] if said else str(cause)}
        return json.loads(file.read_text())
