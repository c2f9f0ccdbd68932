"""What is read from the CUDA driver directly, each time in a process of its own: a driver that hangs is ended with it.

  device.py look          devices and the driver's CUDA, as JSON
  device.py use           takes a device, as every program on a GPU does first
  device.py copy BYTES    seconds of a device-to-device copy
"""

import ctypes
import json
import sys
from pathlib import Path

import judge

# Numbers of CUdevice_attribute.
CAPABILITY_MAJOR, CAPABILITY_MINOR, COMPUTE_MODE = 75, 76, 20
COPIES, ROUNDS = 10, 5


def query(check, seconds, *words):
    """What a process of its own says; None, with the reason, where it fails."""
    code, out, err = check.run([sys.executable, "-B", Path(__file__), *words], seconds)
    return (out.strip(), "") if code == 0 else (None, err.strip()[-200:] or f"it ends with {code}")


def call(cuda, name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        sys.exit(f"{name} answers {code}")


def look():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"cuda": 0, "devices": []}
    version, count, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return {"cuda": version.value, "devices": []}
    devices = []
    for number in range(count.value):
        values = []
        for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR, COMPUTE_MODE):
            call(cuda, "cuDeviceGetAttribute", ctypes.byref(value), attribute, number)
            values.append(value.value)
        devices.append({"capability": 10 * values[0] + values[1], "compute_mode": values[2]})
    return {"cuda": version.value, "devices": devices}


def use():
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    call(cuda, "cuInit", 0)
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    return cuda, context


def copy(size):
    """The median over rounds, by events."""
    cuda, context = use()
    stream = ctypes.c_void_p()
    source, target = ctypes.c_uint64(), ctypes.c_uint64()
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    call(cuda, "cuCtxSetCurrent", context)
    call(cuda, "cuStreamCreate", ctypes.byref(stream), 1)
    for address in (source, target):
        call(cuda, "cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        call(cuda, "cuMemsetD8Async", address, ctypes.c_ubyte(0x5A), ctypes.c_size_t(size), stream)
    for event in events:
        call(cuda, "cuEventCreate", ctypes.byref(event), 0)
    rounds, milliseconds = [], ctypes.c_float()
    for _ in range(ROUNDS + 1):
        call(cuda, "cuEventRecord", events[0], stream)
        for _ in range(COPIES):
            call(cuda, "cuMemcpyDtoDAsync_v2", target, source, ctypes.c_size_t(size), stream)
        call(cuda, "cuEventRecord", events[1], stream)
        call(cuda, "cuStreamSynchronize", stream)
        call(cuda, "cuEventElapsedTime", ctypes.byref(milliseconds), *events)
        rounds.append(milliseconds.value * 1e-3 / COPIES)
    for address in (source, target):
        call(cuda, "cuMemFree_v2", address)
    cuda.cuDevicePrimaryCtxRelease_v2(0)
    # The first round warms up.
    return max(judge.median(rounds[1:]), 1e-9)


if __name__ == "__main__":
    if sys.argv[1] == "look":
        print(json.dumps(look()))
    elif sys.argv[1] == "use":
        use()
    else:
        print(copy(int(sys.argv[2])))
