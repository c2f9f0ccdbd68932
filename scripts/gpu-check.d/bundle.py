"""The bundle that this check came in, where it did: what its programs need in the environment, and whether its NCCL fits this host."""

import ctypes
import json

# The first CUDA of drivers that run what a toolkit of that number built.
FIRST_CUDA = {12: 12000, 13: 13000}
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76


def environment(folder, outer):
    """The outer environment with what the bundle's file `environment` sets, unless that was sourced already."""
    if not (folder / "bundle.json").exists() or outer.get("COMMGAUGE_BUNDLE"):
        return dict(outer)
    beside = {name: f"{path}:{outer[name]}" if outer.get(name) else str(path) for name, path in
              [("PATH", folder / "bin"), ("LD_LIBRARY_PATH", folder / "lib")]}
    prefixes = dict.fromkeys(["COMMGAUGE_BUNDLE", "OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"], str(folder))
    nccl = outer.get("COMMGAUGE_NCCL_LIBRARY") or str(folder / "lib/libnccl.so.2")
    return {**outer, **beside, **prefixes, "COMMGAUGE_NCCL_LIBRARY": nccl}


def misfits(folder, environment):
    """Why the bundle's NCCL cannot run on this host; nothing where another is used, or the check came in no bundle."""
    try:
        facts = json.loads((folder / "bundle.json").read_text())
    except FileNotFoundError:
        return []
    if environment.get("COMMGAUGE_NCCL_LIBRARY") != str(folder / "lib/libnccl.so.2"):
        return []
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ["there is no NVIDIA driver"]
    version, devices = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    told = []
    if version.value < FIRST_CUDA.get(facts["cuda"], 0):
        told.append(f"NCCL of the bundle was built with CUDA {facts['cuda']}, and the driver serves CUDA {version.value // 1000}."
                    f"{version.value % 1000 // 10}: pack one with --cuda 12, or name the host's NCCL by COMMGAUGE_NCCL_LIBRARY")
    if cuda.cuInit(0) == 0:
        cuda.cuDeviceGetCount(ctypes.byref(devices))
    for number in range(devices.value):
        parts = []
        for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR):
            value = ctypes.c_int()
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, number)
            parts.append(value.value)
        if 10 * parts[0] + parts[1] != facts["arch"]:
            told.append(f"device {number} has compute capability {parts[0]}.{parts[1]}, and NCCL of the bundle has code for {facts['arch']} "
                        f"alone: pack one with --arch {parts[0]}{parts[1]}, or name the host's NCCL by COMMGAUGE_NCCL_LIBRARY")
            break
    return told
