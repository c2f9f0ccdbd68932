"""Copies by the driver, as nvbandwidth measures them with its copy engines: host to device, device to host, both at once, and from each GPU to
each other one that it reaches. Not collectives: they show a slow slot, link or GPU before any call of NCCL is in between.

  transfers.py BYTES     measures in a process of its own, and prints JSON: bytes per second by GPU, or by pair
"""

import ctypes
import json
import sys
from pathlib import Path

import judge
from device import call
from launch import DOUBLE, Missing

BYTES = 128 << 20
# Of stand-ins, whose devices are memory of the host.
BYTES_OF_DOUBLES = 1 << 20
COPIES, ROUNDS = 4, 3
# One that is below this share of the median of its kind is broken or shares its way.
LEAST_SHARE = 0.5
KINDS = {"host_to_device": "host to device", "device_to_host": "device to host", "both": "both at once, each way"}
SHARED_BY_CONTEXTS, NON_BLOCKING = 1, 1
PATTERN = 0x5A


def compare(check):
    """What the part has to say."""
    devices = check.devices
    if devices == 0:
        raise Missing("there is no GPU")
    code, out, err = check.run([sys.executable, "-B", Path(__file__), BYTES], check.seconds_for("transfers"))
    if code != 0:
        raise Missing(f"copies of {BYTES} B: {err.strip()[-200:] or f'ends with {code}'}")
    measured, findings = json.loads(out), []
    for kind, words in KINDS.items():
        findings += spread(words, {f"GPU {number}": rate for number, rate in enumerate(measured[kind])}, check.synthetic)
    peers = {pair: rate for pair, rate in measured["peers"].items() if rate is not None}
    apart = sorted(pair for pair, rate in measured["peers"].items() if rate is None)
    findings += spread("GPU to GPU", peers, check.synthetic) if peers else []
    if apart:
        findings.append((0, f"{len(apart)} pairs do not reach each other directly: {', '.join(apart[:4])}{' ...' if len(apart) > 4 else ''}"))
    return findings


def spread(words, rates, is_synthetic):
    """One line for a kind, and one for each that is far behind the others."""
    middle = judge.median(list(rates.values()))
    slowest, fastest = min(rates, key=rates.get), max(rates, key=rates.get)
    range_of_all = f" (median of {len(rates)}; {slowest} {rates[slowest] / 1e9:.1f}, {fastest} {rates[fastest] / 1e9:.1f})" if len(rates) > 1 else ""
    findings = [(0, f"{words}: {middle / 1e9:.1f} GB/s{range_of_all}")]
    behind = [] if is_synthetic else sorted(name for name, rate in rates.items() if rate < LEAST_SHARE * middle)
    return findings + [(1, f"{words}: {name} has {rates[name] / 1e9:.1f} GB/s, less than half of the others") for name in behind]


class Gpu:
    """A device with its context, two streams, a buffer on each side and one for each way."""

    def __init__(self, cuda, number, size):
        self.cuda, self.number, self.size = cuda, number, ctypes.c_size_t(size)
        self.context, self.streams = ctypes.c_void_p(), [ctypes.c_void_p(), ctypes.c_void_p()]
        self.device, self.host = [ctypes.c_uint64(), ctypes.c_uint64()], [ctypes.c_void_p(), ctypes.c_void_p()]
        self.events = [ctypes.c_void_p() for _ in range(4)]
        call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(self.context), number)
        self.use()
        for stream in self.streams:
            call(cuda, "cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        for event in self.events:
            call(cuda, "cuEventCreate", ctypes.byref(event), 0)
        for address in self.device:
            call(cuda, "cuMemAlloc_v2", ctypes.byref(address), self.size)
        for address in self.host:
            call(cuda, "cuMemHostAlloc", ctypes.byref(address), self.size, SHARED_BY_CONTEXTS)
            ctypes.memset(address, PATTERN + number, size)

    def use(self):
        call(self.cuda, "cuCtxSetCurrent", self.context)

    def seconds(self, *copies):
        """The longest of concurrent copies, one on each stream; the median of some rounds, of which the first warms up."""
        self.use()
        rounds, milliseconds = [], ctypes.c_float()
        for _ in range(ROUNDS + 1):
            for index, copy in enumerate(copies):
                call(self.cuda, "cuEventRecord", self.events[2 * index], self.streams[index])
                for _ in range(COPIES):
                    copy(self.streams[index])
                call(self.cuda, "cuEventRecord", self.events[2 * index + 1], self.streams[index])
            longest = 0.0
            for index, _ in enumerate(copies):
                call(self.cuda, "cuStreamSynchronize", self.streams[index])
                call(self.cuda, "cuEventElapsedTime", ctypes.byref(milliseconds), *self.events[2 * index:2 * index + 2])
                longest = max(longest, milliseconds.value * 1e-3 / COPIES)
            rounds.append(longest)
        return max(judge.median(rounds[1:]), 1e-9)

    def up(self, stream):
        call(self.cuda, "cuMemcpyHtoDAsync_v2", self.device[0], self.host[0], self.size, stream)

    def down(self, stream):
        call(self.cuda, "cuMemcpyDtoHAsync_v2", self.host[1], self.device[0], self.size, stream)

    def to(self, other):
        def copy(stream):
            call(self.cuda, "cuMemcpyPeerAsync", other.device[1], other.context, self.device[0], self.context, self.size, stream)
        return copy

    def check(self, address, pattern, what):
        """Both ends of a buffer of the device hold what was copied."""
        self.use()
        word = (ctypes.c_ubyte * 8)()
        for offset in (0, self.size.value - 8):
            call(self.cuda, "cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_uint64(address.value + offset), ctypes.c_size_t(8))
            if bytes(word) != bytes([pattern]) * 8:
                sys.exit(f"wrong data: {what}, byte {offset}")


def measure(size):
    cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    call(cuda, "cuInit", 0)
    call(cuda, "cuDeviceGetCount", ctypes.byref(count))
    if any(is_double(cuda, number) for number in range(count.value)):
        size = min(size, BYTES_OF_DOUBLES)
    gpus = [Gpu(cuda, number, size) for number in range(count.value)]
    rates = {kind: [] for kind in KINDS}
    for gpu in gpus:
        rates["host_to_device"].append(size / gpu.seconds(gpu.up))
        gpu.check(gpu.device[0], PATTERN + gpu.number, f"host to GPU {gpu.number}")
        rates["device_to_host"].append(size / gpu.seconds(gpu.down))
        rates["both"].append(size / gpu.seconds(gpu.up, gpu.down))
    rates["peers"] = {f"{one.number} to {other.number}": peer_rate(one, other) for one in gpus for other in gpus if one is not other}
    return rates


def is_double(cuda, number):
    name = ctypes.create_string_buffer(256)
    call(cuda, "cuDeviceGetName", name, 255, number)
    return DOUBLE.encode() in name.value


def peer_rate(one, other):
    can = ctypes.c_int()
    call(one.cuda, "cuDeviceCanAccessPeer", ctypes.byref(can), one.number, other.number)
    if not can.value:
        return None
    one.use()
    # Enabled already is no error.
    if one.cuda.cuCtxEnablePeerAccess(other.context, 0) not in (0, 704):
        return None
    rate = one.size.value / one.seconds(one.to(other))
    other.check(other.device[1], PATTERN + one.number, f"GPU {one.number} to GPU {other.number}")
    return rate


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
