"""Records every call of collective communication that frameworks make in one step of a small model, on gloo and the CPU, and compares the
calls with what `commgauge ops` lists: collective, element type, bytes, ranks of the group, and how often.

    calls.py COMMGAUGE [NAME...]          runs every configuration, or those of the names, and compares
    calls.py COMMGAUGE [NAME...] --write  also keeps what was recorded in tests/data/frameworks

With RECORDED_DEVICE=cuda the steps run on GPUs over NCCL, and leave traces in the folder RECORDED_TRACES, one for each configuration: `commgauge
trace` compares them with the same list. Ranks that have no GPU of their own share one, where NCCL's variables allow it.
"""

import collections
import importlib
import importlib.metadata
import itertools
import json
import os
import pathlib
import subprocess
import sys
import warnings

import torch
import transformers
from recorder import CONFIGURATIONS, DEVICE, record
from small_model import FOLDER, SEQUENCE

# Each has the steps of one framework; Megatron-core needs Python 3.12.
FRAMEWORKS = ["of_data", "of_transformers", "of_dtensor", "of_deepspeed", "of_megatron", "of_vllm", "of_sglang"]


def list_of(commgauge, configuration, *more):
    """What `commgauge ops` prints as JSON."""
    flags = configuration.flags.split()
    sequence = [] if "--serve" in flags else ["--sequence", str(SEQUENCE)]
    command = [commgauge, "ops", "--model", str(FOLDER / configuration.model / "config.json"), *sequence, *flags, *more, "--format", "json"]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        print(f"    {answer.stderr.strip()}")
    return answer.stdout


def traced(commgauge, configuration):
    """Whether the traces of all ranks have the calls of the list, as `commgauge trace` says."""
    folder = pathlib.Path(os.environ["RECORDED_TRACES"]) / configuration.name
    flags, same = configuration.flags.split(), True
    stages = int(flags[flags.index("--pp") + 1]) if "--pp" in flags else 1
    for stage, kind in itertools.product(range(stages), ("kineto", "execution")):
        files, step = sorted(folder.glob(f"{kind}-rank*")), folder / f"ops-stage{stage}.json"
        step.write_text(list_of(commgauge, configuration, "--stage", str(stage)))
        answer = subprocess.run([commgauge, "trace", *files, "--ops", step], capture_output=True, text=True)
        (folder / f"{kind}-stage{stage}.txt").write_text(answer.stdout + answer.stderr)
        if answer.returncode != 0:
            print(f"{configuration.name}: {kind}, stage {stage}: commgauge trace ends with {answer.returncode}\n{answer.stdout}{answer.stderr}")
            same = False
    return same


def listed(commgauge, configuration):
    """What `commgauge ops` lists, counted as the recorded calls are."""
    answer, counts = list_of(commgauge, configuration, "--stage", str(configuration.stage)), collections.Counter()
    if not answer:
        return counts
    for op in json.loads(answer)["ops"]:
        collective = "send" if op["collective"].startswith("send_recv") else op["collective"]
        counts[(collective, op["element_type"], op["bytes_total"], op["group_size"])] += op["count_per_step"]
    return counts


def counted(calls):
    return collections.Counter((collective, element, size, len(ranks)) for collective, element, size, ranks in calls)


def versions():
    known = {"torch": torch.__version__, "transformers": transformers.__version__}
    for package in ("deepspeed", "megatron-core", "vllm", "sglang"):
        try:
            known[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return known


def differs(name):
    """What is known to differ in a configuration, and why; empty where nothing does."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text()).get("differs", "") if file.exists() else ""


def keep_recorded(configuration, calls):
    document = {"name": configuration.name, "versions": versions(), "ranks": configuration.ranks, "model": configuration.model,
                "flags": configuration.flags, "stage": configuration.stage, "sequence": SEQUENCE, "differs": differs(configuration.name)}
    head = json.dumps(document, indent=1).removesuffix("\n}")
    rows = ",\n".join("  " + json.dumps(call) for call in calls)
    (FOLDER / f"{configuration.name}.json").write_text(f'{head},\n "calls": [\n{rows}\n ]\n}}\n')


def main():
    commgauge, write = sys.argv[1], "--write" in sys.argv[2:]
    wanted = [name for name in sys.argv[2:] if not name.startswith("--")]
    if DEVICE == "cuda" and not os.environ.get("RECORDED_TRACES"):
        print("check-frameworks: RECORDED_DEVICE=cuda needs RECORDED_TRACES, a folder for the traces", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore")  # frameworks about each other
    agree, differ, unexpected, skipped = 0, 0, 0, 0
    for module in FRAMEWORKS:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as missing:
            print(f"{module}: cannot run: {missing}")
            skipped += 1
    for configuration in CONFIGURATIONS:
        name = configuration.name
        if wanted and name not in wanted:
            continue
        recorded = record(configuration)
        if "problem" in recorded:
            print(f"{name}: cannot run: {recorded['problem'].strip().splitlines()[-1]}")
            skipped += 1
            continue
        theirs, ours = counted(recorded["calls"]), listed(commgauge, configuration)
        if recorded["others"]:
            print(f"{name}: calls that are not compared: {sorted(set(recorded['others']))}")
        if write:
            keep_recorded(configuration, recorded["calls"])
        is_same = DEVICE == "cpu" or traced(commgauge, configuration)
        if theirs == ours and is_same:
            agree += 1
            continue
        differ += 1
        known = differs(name)
        unexpected += not known
        print(f"{name}: commgauge ops {configuration.flags}{': ' + known if known else ''}")
        for call in sorted({*theirs, *ours}, key=str):
            if theirs[call] != ours[call]:
                print(f"    {call}: ran {theirs[call]}, listed {ours[call]}")
    print(f"check-frameworks: {agree} of {agree + differ} configurations call what commgauge lists, {skipped} could not be run")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
