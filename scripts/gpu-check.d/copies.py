"""The physical limit: a device-to-device copy by the driver, timed by events, beside an all_reduce of one rank, which is such a copy."""

import ctypes

import judge
from launch import Missing

# A collective of one rank must come so near to the copy at the largest size.
MOST_ABOVE_COPY = 0.05
# Below, what starts a call is in the time of both.
JUDGED_FROM_BYTES = 256 << 20
COPIES, ROUNDS = 10, 5


def compare(check):
    part, record = check.launch("all_reduce, 1 rank, up to 1 GiB", "copy", 1)
    check.judged((part, record), judge.times)
    if record is None:
        raise Missing("there is no all_reduce to compare")
    ours, told = judge.medians(record), []
    if not ours:
        raise Missing("no all_reduce was measured")
    for size in sorted(ours):
        seconds = copy_seconds(size)
        # Bytes read and bytes written.
        rate, share = 2 * size / seconds, seconds / ours[size]
        told.append((0, f"{size} B: copy {rate / 1e9:.0f} GB/s read and written, all_reduce at {100 * share:.1f} % of it"))
    if size < JUDGED_FROM_BYTES and not check.synthetic:
        told.append((7, f"the largest size, {size} B, is too small to be judged"))
    elif ours[size] > seconds * (1 + MOST_ABOVE_COPY) and not check.synthetic:
        told.append((1, f"{size} B: the all_reduce takes {100 * (ours[size] / seconds - 1):.1f} % more than the copy; 5 % are allowed"))
    return told


def copy_seconds(size):
    """The median over rounds of a copy's time, in one process that ends its context afterwards."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            raise Missing(f"{name} answers {code} for {size} B")

    device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    source, target = ctypes.c_uint64(), ctypes.c_uint64()
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxSetCurrent", context)
        call("cuStreamCreate", ctypes.byref(stream), 1)
        for address in (source, target):
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            call("cuMemsetD8Async", address, ctypes.c_ubyte(0x5A), ctypes.c_size_t(size), stream)
        for event in events:
            call("cuEventCreate", ctypes.byref(event), 0)
        rounds, milliseconds = [], ctypes.c_float()
        for _ in range(ROUNDS + 1):
            call("cuEventRecord", events[0], stream)
            for _ in range(COPIES):
                call("cuMemcpyDtoDAsync_v2", target, source, ctypes.c_size_t(size), stream)
            call("cuEventRecord", events[1], stream)
            call("cuStreamSynchronize", stream)
            call("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
            rounds.append(milliseconds.value * 1e-3 / COPIES)
        for address in (source, target):
            call("cuMemFree_v2", address)
        # The first round warms up.
        return max(judge.median(rounds[1:]), 1e-9)
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)
