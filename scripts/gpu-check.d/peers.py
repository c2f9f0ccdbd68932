"""Other tools beside commgauge, in turn with it: nccl-tests and torch.distributed, where they are there. Median ratio for each size."""

import csv
import importlib.util
import io
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import judge
from launch import Missing

ROUNDS = 3
MOST_ASTRAY = 0.02
SIZES = "64K", "256M", "4"


@dataclass
class Peer:
    name: str
    # Why it is not compared with; empty where it is.
    absent: str
    # From check and ranks to seconds by size.
    times: object = None


def nccl_tests(folder):
    found = shutil.which("all_reduce_perf", path=str(folder) if folder else None)
    if found is None:
        return Peer("nccl-tests", f"no all_reduce_perf in {folder or 'PATH'}")

    def times(check, ranks):
        # Older versions do not say which collective they measure; commgauge then takes it from the file's name.
        log = check.folder / "all_reduce.nccl-tests.txt"
        # A thread for each GPU: one thread that starts the calls of all of them in turn would be timed at small sizes.
        words = [found, "-b", SIZES[0], "-e", SIZES[1], "-f", SIZES[2], "-t", ranks, "-g", "1", "-d", "float", "-o", "sum", "-w", "5", "-n", "20"]
        code, out, err = check.run(words, min(check.left(), 60))
        if code != 0:
            raise Missing(f"all_reduce_perf ends with {code}: {err.strip()[-200:]}")
        log.write_text(out)
        record = check.folder / "nccl-tests.jsonl"
        record.unlink(missing_ok=True)
        code, _, err = check.run([check.commgauge, "import", "--from", "nccl-tests", "-o", record, log], min(check.left(), 20))
        if code != 0:
            raise Missing(f"commgauge import ends with {code}: {err.strip()[-200:]}")
        code, out, _ = check.run([check.commgauge, "report", record, "--format", "csv"], min(check.left(), 20))
        rows = [row for row in csv.DictReader(io.StringIO(out)) if row["placement"].startswith("out")]
        return {int(row["bytes_total"]): float(row["latency_seconds_median"]) for row in rows if row["latency_seconds_median"]}
    return Peer("nccl-tests", "", times)


def torch(devices):
    if devices < 2:
        return Peer("torch.distributed", "its all_reduce is in place, which on one rank moves nothing")
    if importlib.util.find_spec("torch") is None:
        return Peer("torch.distributed", f"{sys.executable} has no module torch")

    def times(check, ranks):
        script = Path(__file__).with_name("torch_times.py")
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, script]
        code, out, err = check.run(words, min(check.left(), 90))
        if code != 0:
            raise Missing(f"torch.distributed ends with {code}: {err.strip()[-200:]}")
        for line in out.splitlines():
            if line.startswith("commgauge-nccl "):
                check.note(f"torch.distributed ran on NCCL {line.split(maxsplit=1)[1]}")
        pairs = (line.split() for line in out.splitlines() if line.startswith("commgauge-peer "))
        return {int(size): float(seconds) for _, size, seconds in pairs}
    return Peer("torch.distributed", "", times)


def compare(check, peer):
    """Rounds of both in turn; the ratio of each round, and of those the median."""
    ranks = max(check.devices, 1)
    ratios = {}
    for number in range(ROUNDS):
        part, record = check.launch(f"all_reduce beside {peer.name}, {ranks} ranks, round {number + 1}", "peers", ranks)
        check.judged((part, record), judge.times)
        theirs = peer.times(check, ranks)
        for size, seconds in judge.medians(record or []).items():
            if theirs.get(size):
                ratios.setdefault(size, []).append(seconds / theirs[size])
    if not ratios:
        raise Missing("no size was measured by both")
    findings = []
    for size, seen in sorted(ratios.items()):
        middle = judge.median(seen)
        astray = peer.name == "nccl-tests" and not check.synthetic and abs(middle - 1) > MOST_ASTRAY
        text = f"{size} B: ours / theirs {middle:.3f} (rounds {min(seen):.3f} to {max(seen):.3f})"
        findings.append((1 if astray and middle > 1 else 3 if astray else 0, text + (", wanted 0.98 to 1.02" if astray else "")))
    return findings
