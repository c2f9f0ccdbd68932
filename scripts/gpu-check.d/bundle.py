"""The bundle that this check came in, where it did: what its programs need in the environment, and whether its NCCL fits this host."""

import importlib.util
import json
import os

# The first CUDA of drivers that run what a toolkit of that number built.
FIRST_CUDA = {12: 12000, 13: 13000}


def environment(folder, outer):
    """The outer environment with what the bundle's file `environment` sets, unless that was sourced already."""
    if not (folder / "bundle.json").exists() or outer.get("COMMGAUGE_BUNDLE"):
        return dict(outer)
    bundled = {name: f"{path}:{outer[name]}" if outer.get(name) else str(path) for name, path in
              [("PATH", folder / "bin"), ("LD_LIBRARY_PATH", folder / "lib")]}
    prefixes = dict.fromkeys(["COMMGAUGE_BUNDLE", "OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"], str(folder))
    nccl = outer.get("COMMGAUGE_NCCL_LIBRARY") or str(folder / "lib/libnccl.so.2")
    return {**outer, **bundled, **prefixes, "COMMGAUGE_NCCL_LIBRARY": nccl}


def other_nccls():
    """NCCLs of this host: from its packages, and those installed with torch."""
    folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64"]
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ImportError:
        spec = None
    folders += [f"{place}/lib" for place in (spec.submodule_search_locations or [] if spec else [])]
    return [f"{folder}/libnccl.so.2" for folder in folders if os.path.exists(f"{folder}/libnccl.so.2")]


def runs_on(arch, capability):
    """Whether code for an architecture runs on a device: of the same major version, and not newer (CUDA, "Binary Compatibility")."""
    return arch // 10 == capability // 10 and arch <= capability


def misfits(folder, environment, gpus):
    """Why the bundle's NCCL cannot run on this host; nothing where another is used, or the check came in no bundle."""
    try:
        facts = json.loads((folder / "bundle.json").read_text())
    except FileNotFoundError:
        return []
    if environment.get("COMMGAUGE_NCCL_LIBRARY") != str(folder / "lib/libnccl.so.2"):
        return []
    other = "or name the host's NCCL by COMMGAUGE_NCCL_LIBRARY"
    findings = []
    if gpus["cuda"] < FIRST_CUDA.get(facts["cuda"], 0):
        findings.append(f"NCCL of the bundle was built with CUDA {facts['cuda']}, but the driver supports CUDA {gpus['cuda'] // 1000}."
                    f"{gpus['cuda'] % 1000 // 10}: pack one with --cuda 12, {other}")
    for number, gpu in enumerate(gpus["devices"]):
        if not runs_on(facts["arch"], gpu["capability"]):
            findings.append(f"device {number} has compute capability {gpu['capability'] / 10}, and NCCL of the bundle has code for "
                        f"{facts['arch'] / 10} alone: pack one with --arch {gpu['capability']}, {other}")
            break
    return findings
