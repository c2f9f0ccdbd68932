"""What each part of the check may take, computed before anything runs, so that all of them fit into the time there is: no part can take the
time of a later one, and what one leaves over, the next ones have. Nothing runs here."""

from dataclasses import dataclass

# Kept for writing the report.
RESERVE_SECONDS = 5
# Below this no launch gets anything done.
LEAST_SECONDS = 2
# With less than this a part that wants more shows little.
USEFUL_SECONDS = 8
# The most time of each part, in seconds: a launch, by suite, and everything else.
WANTED_SECONDS = {"host": 5, "doctor": 15, "data": 60, "times": 60, "copy": 45, "variants": 45, "choices": 25,
                  "ours against nccl-tests": 20, "ours against torch.distributed": 20, "nccl-tests": 30, "torch": 45, "transfers": 25}
ROUNDS = 3


@dataclass
class Planned:
    """A part, and how long it may take."""
    kind: str
    name: str
    seconds: float


def parts(ranks, devices, peers):
    """All parts in their order, each with what it wants."""
    several = max(ranks)
    listed = [("host", "bundle and host"), ("doctor", "doctor")]
    listed += [("data", f"data, {count} ranks") for count in ranks]
    listed += [("times", f"times, {count} ranks") for count in ranks]
    listed.append(("transfers", "copies between hosts and GPUs"))
    listed += [("copy", "share of the copy bandwidth, 1 rank"), ("variants", f"graphs, groups and kinds of buffers, {several} ranks")]
    if several > 1:
        listed.append(("choices", f"what NCCL chooses, {several} ranks"))
    for peer in peers:
        for number in range(1, ROUNDS + 1):
            listed.append((f"ours against {peer}", f"all_reduce against {peer}, {max(devices, 1)} ranks, round {number}"))
            listed.append(("nccl-tests" if peer == "nccl-tests" else "torch", f"{peer}, round {number}"))
    return [Planned(kind, name, WANTED_SECONDS[kind]) for kind, name in listed]


def fitted(planned, budget):
    """The same within a budget: as many of the first as can have a useful time, and of what they want beyond that all give up the same share."""
    room, kept, least = max(budget - RESERVE_SECONDS, 0), [], 0
    for part in planned:
        least += min(part.seconds, USEFUL_SECONDS)
        if least > room:
            break
        kept.append(part)
    useful = [min(part.seconds, USEFUL_SECONDS) for part in kept]
    beyond = sum(part.seconds for part in kept) - sum(useful)
    share = min(1.0, (room - sum(useful)) / beyond) if beyond > 0 else 0.0
    return [Planned(part.kind, part.name, seconds + share * (part.seconds - seconds)) for part, seconds in zip(kept, useful)]


class Clock:
    """How long the part that comes next may take: its own time, and what those before it left over."""

    def __init__(self, planned, budget, now):
        self.planned, self.begun, self.now = fitted(planned, budget), now(), now
        self.end = self.begun + budget - RESERVE_SECONDS

    def left_for(self, kind, passed):
        """Seconds for a part of a kind, after `passed` others of it. One more than are planned has what the last of them left, one of a
        kind that is not planned what is left of all."""
        upto, ends = 0.0, []
        for part in self.planned:
            upto += part.seconds
            if part.kind == kind:
                ends.append(self.begun + upto)
        own = ends[min(passed, len(ends) - 1)] if ends else self.end
        return min(own, self.end) - self.now()


def in_words(wanted, budget):
    """The plan as a table, and whether it is within the budget."""
    planned = fitted(wanted, budget)
    lines = [f"{part.seconds:6.0f} s  {part.name}" for part in planned]
    lines += [f"       -  {part.name}: what the others leave" for part in wanted[len(planned):]]
    total = sum(part.seconds for part in planned) + RESERVE_SECONDS
    return "\n".join([*lines, f"{total:6.0f} s  together, the report with it; {budget:.0f} s are the budget"])
