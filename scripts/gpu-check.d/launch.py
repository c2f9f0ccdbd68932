"""Runs the parts of the check within the available time, and keeps each result. Judges nothing."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import device
import plan

LONGEST_LOOK_SECONDS = 40
DOUBLE = "commgauge double"
# MPI carries no data here. Its copies from process to process are not permitted in many containers (Open MPI 4 and 5).
WITHOUT_PRIVILEGES = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_smsc": "^cma,knem,xpmem"}


class Missing(Exception):
    """What a part needs is not there."""


@dataclass
class Part:
    """One part of the check."""
    name: str
    seconds: float = 0.0
    # The exit code that it gives the whole check, and why.
    code: int = 0
    # Answers, each with its own code.
    findings: list = field(default_factory=list)
    record: str = ""

    def add(self, code, text):
        """An answer with its exit code, 0 where nothing is wrong."""
        self.code = worse(self.code, code)
        self.findings.append((code, text))

    def add_all(self, findings):
        for code, text in findings:
            self.add(code, text)


# Wrong data first, then hangs and failures, then what is missing, slow, or not proven.
GRAVITY = [4, 5, 6, 7, 1, 3, 0]


def worse(one, other):
    return next((code for code in GRAVITY if code in (one, other)), 6)


def last_word(err):
    """The line that says why, without the advice behind it: a rank knows what failed, the launcher only that something did."""
    lines = [line for line in err.strip().splitlines() if line and "resume with: " not in line]
    of_ranks = [line for line in lines if line.startswith("commgauge: rank ") and "ended with exit code" not in line]
    ours = [line for line in lines if line.startswith("commgauge: ")]
    return of_ranks[0] if of_ranks else (ours or lines or ["nothing was said"])[-1]


def end_all(child):
    """Ends what a child started, if anything still runs: also where this check itself is ended."""
    for end, wait in [(signal.SIGTERM, 4), (signal.SIGKILL, 4)]:
        if child.poll() is not None:
            return
        try:
            os.killpg(child.pid, end)
            child.communicate(timeout=wait)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            continue


class Check:
    def __init__(self, commgauge, suites, folder, budget, environment):
        self.commgauge, self.suites, self.folder = commgauge, suites, folder
        self.end = time.monotonic() + budget
        self.budget, self.begun = budget, time.monotonic()
        self.clock, self.passed = None, {}
        self.parts, self.notes, self.environment = [], [], {**WITHOUT_PRIVILEGES, **environment}
        # Without one Open MPI 5 does not start.
        self.environment["HOME"] = environment.get("HOME") or tempfile.gettempdir()
        self.doctor_text, self.devices, self.synthetic = "", 0, False
        self.gpus = {"cuda": 0, "devices": []}

    def left(self):
        return self.end - plan.RESERVE_SECONDS - time.monotonic()

    def begin(self, planned):
        """From now on each part has the time that the plan gives it."""
        self.clock = plan.Clock(planned, self.left() + plan.RESERVE_SECONDS, time.monotonic)

    def seconds_for(self, kind):
        """How long the next part of a kind may take, which thereby begins."""
        seconds = self.seconds_left_for(kind)
        self.passed[kind] = self.passed.get(kind, 0) + 1
        return seconds

    def seconds_left_for(self, kind):
        """How long the next part of a kind could take."""
        return min(self.clock.left_for(kind, self.passed.get(kind, 0)), self.left()) if self.clock else self.left()

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def run(self, words, seconds, **more):
        """A command and all that it starts, ended after its time."""
        if seconds <= 0:
            raise Missing("no time was left for it")
        child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, env={**self.environment, **more.get("set", {})}, cwd=self.folder, start_new_session=True)
        try:
            out, err = child.communicate(timeout=seconds)
            return child.returncode, out, err
        except subprocess.TimeoutExpired:
            raise Missing(f"not done within {seconds:.0f} s") from None
        finally:
            end_all(child)

    def look(self):
        """What GPUs there are, by a process that may hang on a broken driver."""
        try:
            said, why = device.query(self, min(LONGEST_LOOK_SECONDS, self.left()), "look")
            self.gpus = json.loads(said) if said else self.gpus
        except Missing as missing:
            why = str(missing)
        if why:
            self.note(f"warning: the driver does not list its devices: {why}")
        self.devices = len(self.gpus["devices"])

    def part(self, name, work):
        """Does a part, whatever becomes of it, and returns it with what `work`, which is given the part, gave."""
        part, begun = Part(name), time.monotonic()
        self.parts.append(part)
        print(f"gpu-check: {name}, {max(self.left(), 0):.0f} s left", file=sys.stderr)
        given = None
        try:
            given = work(part)
        except Missing as missing:
            part.add(7, str(missing))
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            part.add(6, f"{type(error).__name__}: {error}")
        part.seconds = time.monotonic() - begun
        return part, given

    def launch(self, name, suite, ranks, flags=(), kind=None):
        """Runs a suite on `ranks` ranks. Its record, as lines, or None without one."""
        def work(part):
            path = self.folder / f"{len(self.parts):02}-{suite}-{ranks}.jsonl"
            seconds = self.seconds_for(kind or suite)
            if seconds < plan.LEAST_SECONDS:
                raise Missing("no time was left for it")
            share = ["--share-gpu"] if ranks > self.devices else []
            words = [self.commgauge, "run", self.suites / f"{suite}.toml", "-n", ranks, "--backend", "nccl", "--record", path,
                     "--time-limit", f"{max(int(seconds) - 2, 1)}s", "--", *share, *flags]
            code, _, err = self.run(words, seconds)
            part.record = path.name
            if code != 0:
                # Out of time is missing; codes of launchers are failures.
                log = path.with_suffix(".stderr.txt")
                log.write_text(err)
                part.add(7 if code == 75 else code if code in GRAVITY else 6, f"exit code {code}: {last_word(err)} (all of it: {log.name})")
            return self.read(path)
        part, record = self.part(name, work)
        if record is None and part.code == 0:
            part.add(7, "no record was written")
        return part, record

    def read(self, path):
        if not path.exists():
            return None
        # The last line of a run that was ended may be torn.
        lines = [line for line in path.read_text().split("\n")[:-1] if line]
        record = [json.loads(line) for line in lines]
        header = next((line for line in record if line["line"] == "header"), None)
        if header is None:
            return None
        if header["backend"]["synthetic"] or DOUBLE in json.dumps(header["ranks"]):
            self.synthetic = True
        for warning in header.get("warnings", []):
            self.note(f"warning: {warning}")
        return record

    def judged(self, launched, judge, *more):
        """Holds a record against what it must show."""
        part, record = launched
        if record is not None:
            part.add_all(judge(record, *more))

    def doctor(self):
        def work(part):
            code, out, err = self.run([self.commgauge, "doctor", "--backend", "nccl", "--width", "120"], self.seconds_for("doctor"))
            self.doctor_text = (out + err).strip()
            if code == 0:
                part.add(0, "the backend can run here")
            else:
                part.add(6, f"doctor ends with {code}: see below")
        self.part("doctor", work)
