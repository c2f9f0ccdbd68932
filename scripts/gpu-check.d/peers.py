"""Other tools, run alternately with commgauge: nccl-tests and torch.distributed, where installed. Median ratio for each size."""

import csv
import importlib.util
import io
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import judge
from launch import Missing
from plan import ROUNDS

MOST_ASTRAY = 0.02
# Calls shorter than this multiple of the shortest are as long as it takes the host to start one, which on an H100 and an H200 differs by a third
# from process to process, of either tool. Longer ones hide it.
STARTS_OF_A_SURE_CALL = 1.5
# All of them are on one side by chance once in 128 times.
MOST_ROUNDS = 8
# A round is begun where the one before took less than this part of the time that is left for it.
ROOM_FOR_A_ROUND = 0.7
# Sizes and calls of suites/gpu-check/peers.toml. The time of both is that of the host's clock over all calls, the start of the first one
# included, and the mean over the ranks; both walk through the buffers of the largest size.
FIRST, LAST, STEP, WARM_UP, CALLS = "64K", "256M", "4", "5", "100"
# Ranks are not bound to single cores, as ours are not: NCCL's threads would share them (Open MPI 4 and 5).
UNBOUND = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none",
           "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
           # Of root alone Open MPI wants this confirmed, as `commgauge run` does for ours.
           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass
class Peer:
    name: str
    # Why it is not compared with; empty where it is.
    absent: str
    # Ours that is compared with it.
    placement: str = "out_of_place"
    # What else differs, so that a difference proves nothing; empty where nothing does.
    unlike: str = ""
    # From check and ranks to seconds by size.
    times: object = None
    # From check and our record to seconds by size, where not the median of the slowest rank is compared.
    ours: object = None
    # The suite of ours.
    suite: str = "peers"


def tests_program(folder):
    """The program of nccl-tests, the one that was built with MPI first."""
    names = ["all_reduce_perf_mpi", "all_reduce_perf"]
    return next(filter(None, (shutil.which(name, path=str(folder) if folder else None) for name in names)), None)


def is_built_with_mpi(program):
    """Whether the name of MPI's library is in the file, as that of every library that it is linked with."""
    return b"libmpi" in Path(program).read_bytes()


def command(program, ranks, launcher):
    """A process for each GPU, as ours are, where the program can; else a thread for each: one thread that starts the calls of all of
    them in turn would be timed at small sizes."""
    by_processes = launcher is not None and is_built_with_mpi(program)
    before = [launcher, "-n", str(ranks)] if by_processes else []
    threads = "1" if by_processes else str(ranks)
    return [*before, program, "-b", FIRST, "-e", LAST, "-f", STEP, "-t", threads, "-g", "1", "-d", "float", "-o", "sum", "-w", WARM_UP, "-n", CALLS,
            "-a", "1"]


def nccl_tests(folder, environment):
    """`environment` is that of the check: the launcher of the bundle comes before one of the host, which may be of another MPI."""
    found = tests_program(folder)
    if found is None:
        return Peer("nccl-tests", f"no all_reduce_perf in {folder or 'PATH'}")
    launcher = shutil.which("mpirun", path=environment.get("PATH"))

    def times(check, ranks):
        code, out, err = check.run(command(found, ranks, launcher), check.seconds_for("nccl-tests"), set=UNBOUND)
        if code != 0:
            raise Missing(f"all_reduce_perf ends with {code}: {err.strip()[-200:]}")
        return imported(check, out)

    def ours(check, path):
        # In the columns of that tool, and read from there as its own are.
        code, out, err = check.run([check.commgauge, "report", path, "--format", "nccl-tests"], min(check.left(), 20))
        if code != 0:
            raise Missing(f"commgauge report ends with {code}: {err.strip()[-200:]}")
        return imported(check, out)
    unlike = "" if launcher and is_built_with_mpi(found) else "nccl-tests was not built with MPI (make MPI=1), so that its threads are compared with our processes"
    return Peer("nccl-tests", "", times=times, ours=ours, unlike=unlike)


def imported(check, out):
    """Seconds by size, out of place, of a log of nccl-tests."""
    # Older versions do not say which collective they measure; commgauge then takes it from the file's name.
    log = check.folder / "all_reduce.nccl-tests.txt"
    log.write_text(out)
    record = check.folder / "nccl-tests.jsonl"
    record.unlink(missing_ok=True)
    code, _, err = check.run([check.commgauge, "import", "--from", "nccl-tests", "-o", record, log], min(check.left(), 20))
    if code != 0:
        raise Missing(f"commgauge import ends with {code}: {err.strip()[-200:]}")
    code, out, _ = check.run([check.commgauge, "report", record, "--format", "csv"], min(check.left(), 20))
    rows = [row for row in csv.DictReader(io.StringIO(out)) if row["placement"].startswith("out")]
    return {int(row["bytes_total"]): float(row["latency_seconds_median"]) for row in rows if row["latency_seconds_median"]}


def torch(devices):
    if devices < 2:
        return Peer("torch.distributed", "its all_reduce is in place, which on one rank moves nothing")
    if importlib.util.find_spec("torch") is None:
        return Peer("torch.distributed", f"{sys.executable} has no module torch")

    def times(check, ranks):
        script = Path(__file__).with_name("torch_times.py")
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, script]
        code, out, err = check.run(words, check.seconds_for("torch"))
        if code != 0:
            raise Missing(f"torch.distributed ends with {code}: {err.strip()[-200:]}")
        for line in out.splitlines():
            if line.startswith("commgauge-nccl "):
                check.note(f"torch.distributed ran on NCCL {line.split(maxsplit=1)[1]}")
        pairs = (line.split() for line in out.splitlines() if line.startswith("commgauge-peer "))
        return {int(size): float(seconds) for _, size, seconds in pairs}
    return Peer("torch.distributed", "", times=times, placement="in_place", suite="torch")


def compare(check, peer):
    """Rounds of both in turn; the ratio of each round, and of those the median. More rounds than are planned where a size is in question and
    there is time: of a call that is as long as its start, three rounds come out on one side by chance once in four times."""
    if peer.unlike:
        check.note(peer.unlike)
    pairs, findings = {}, []
    for number in range(MOST_ROUNDS):
        begun = time.monotonic()
        add_round(check, peer, number, pairs)
        findings = judged_sizes(check, peer, pairs)
        is_answered = not any(code for code, _ in findings)
        took = time.monotonic() - begun
        if number + 1 >= ROUNDS and (is_answered or took > ROOM_FOR_A_ROUND * check.seconds_left_for(peer.name)):
            break
    if not findings:
        raise Missing("no size was measured by both")
    return findings


def add_round(check, peer, number, pairs):
    """The seconds of ours and theirs in one more round, by size."""
    ranks = max(check.devices, 1)
    name = f"all_reduce against {peer.name}, {ranks} ranks, round {number + 1}"
    part, record = check.launch(name, peer.suite, ranks, kind=f"ours against {peer.name}")
    check.judged((part, record), judge.times)
    theirs = peer.times(check, ranks)
    if record is None:
        return
    mine = peer.ours(check, check.folder / part.record) if peer.ours else judge.medians(record, peer.placement)
    for size, seconds in mine.items():
        if theirs.get(size):
            pairs.setdefault(size, []).append((seconds, theirs[size]))


def judged_sizes(check, peer, pairs):
    is_judged, sure = peer.name == "nccl-tests" and not check.synthetic, sizes_beyond_starting(pairs)
    return [judged(peer, size, rounds, is_judged, size in sure) for size, rounds in sorted(pairs.items())]


def sizes_beyond_starting(pairs):
    """Those whose calls take longer than to start them, from the seconds of ours and theirs in each round by size."""
    if not pairs:
        return set()
    medians = {size: judge.median([theirs for _, theirs in rounds]) for size, rounds in pairs.items()}
    return {size for size, seconds in medians.items() if seconds >= STARTS_OF_A_SURE_CALL * min(medians.values())}


def judged(peer, size, rounds, is_judged, is_sure):
    """Slower where every round is, of a call that is as long as its start (not `is_sure`) where every one of MOST_ROUNDS is; where some rounds
    are slower and others are not, the rounds differ by more than what is asked, which decides nothing of such a call."""
    seen = [ours / theirs for ours, theirs in rounds]
    middle, least, most = judge.median(seen), min(seen), max(seen)
    text = f"{size} B: ours / theirs {middle:.3f} (rounds {least:.3f} to {most:.3f})"
    if not is_judged or abs(middle - 1) <= MOST_ASTRAY:
        return 0, text
    if least > 1 + MOST_ASTRAY or most < 1 - MOST_ASTRAY:
        text += ", wanted 0.98 to 1.02"
        if not is_sure and len(rounds) < MOST_ROUNDS:
            return 3, f"{text}; what starts a call is most of its time, and {len(rounds)} of {MOST_ROUNDS} rounds were measured"
        return 1 if middle > 1 and not peer.unlike else 3, text
    if not is_sure:
        return 0, f"{text}: not to be told apart, what starts a call is most of its time"
    return 3, f"{text}, wanted 0.98 to 1.02, and not sure"
