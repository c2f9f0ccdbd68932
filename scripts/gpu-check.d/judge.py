"""What a record must show: everything planned, measured, checked. Pure functions from lines to exit codes with their reasons."""

# What may be skipped: NCCL has no such form, the device is too old for it, or one rank has no other.
MAY_BE_SKIPPED = ("NCCL has no all_to_all in place", "needs NCCL 2.24", "from compute capability 9.0 on", "needs a group of at least 2 ranks, this one has 1",
                  "in a group of one rank, which avg and mulsum need")
# What else may be skipped where ranks share a GPU, which gives them no link to each other.
MAY_BE_SKIPPED_ON_SHARED = ("NCCL makes no symmetric windows",)
SHARED = "ranks share a GPU"
FEWEST_TYPES, FEWEST_OPERATIONS = 12, 5


def data(record, ranks):
    """Every collective with every type and operation is in the plan, and came out right."""
    cases = planned(record)
    types = {case["element_type"] for case in cases}
    operations = {case["reduce_op"] for case in cases if case.get("reduce_op")}
    findings = times(record)
    if len(types) < FEWEST_TYPES or len(operations) < FEWEST_OPERATIONS:
        findings.append((7, f"{len(types)} types and {len(operations)} operations are planned; {FEWEST_TYPES} and {FEWEST_OPERATIONS} are wanted"))
    seen = {(case["collective"], case["element_type"], case.get("reduce_op")) for case in cases}
    for collective in sorted({case["collective"] for case in cases} - {"barrier"}):
        reduces = any(case.get("reduce_op") for case in cases if case["collective"] == collective)
        wanted = {(collective, kind, operation) for kind in types for operation in (operations if reduces else [None])}
        if not wanted <= seen:
            findings.append((7, f"{collective}: {len(wanted - seen)} pairs of type and operation are not planned"))
    sizes = {case["group_size"] for case in cases}
    if sizes != {ranks}:
        findings.append((7, f"the groups have {sorted(sizes)} ranks, not {ranks}"))
    return findings


def variants(record):
    """The same calls from streams and graphs, alone and in groups, on every kind of buffers."""
    seen = {(name, value) for case in planned(record) for name, value in case.get("labels", {}).items()}
    kinds = {"allocated buffers": ("buffers", "allocated"), "registered buffers": ("buffers", "registered"), "symmetric buffers": ("buffers", "symmetric")}
    findings = [(7, f"no case has {words}") for words, label in kinds.items() if label not in seen]
    findings += [(7, f"no case has the label {name}") for name in ("submit", "aggregate") if name not in {label for label, _ in seen}]
    return times(record) + findings


def choices(record):
    """NCCL reported what it takes for every size."""
    cases = planned(record)
    chosen = {cases[line["case"]]["bytes_total"]: line.get("library_choice") for line in record if line["line"] == "case"}
    silent = [size for size, choice in chosen.items() if not choice]
    findings = times(record)
    if silent:
        findings.append((7, f"its log does not show what it takes for {len(silent)} of {len(chosen)} sizes"))
    findings += [(0, f"{size} B: {in_words(choice)}") for size, choice in sorted(chosen.items()) if choice]
    return findings


def in_words(choice):
    channels = f"x{choice['channels']}" if "channels" in choice else None
    return " ".join(word for word in [choice["algorithm"], choice.get("protocol"), choice.get("kernel"), channels] if word)


def times(record):
    """All that was planned was measured, and its data checked."""
    cases, findings, skipped, verified = planned(record), [], {}, 0
    plan = next((line for line in record if line["line"] == "plan"), None)
    end = next((line for line in record if line["line"] == "end"), None)
    if not cases:
        return [(7, "nothing is planned")]
    if end is None or end["status"] != "complete":
        findings.append((7, f"the run is not complete: {end['status'] if end else 'it was cut off'}"))
    lines = [line for line in record if line["line"] == "case"]
    if len(lines) < plan["case_lines"]:
        findings.append((7, f"{plan['case_lines'] - len(lines)} of {plan['case_lines']} measurements are missing"))
    for line in lines:
        outcome, case = line["outcome"], cases[line["case"]]
        status = outcome["status"]
        if status == "measured":
            verified += bool(outcome["verified"])
            if not outcome["verified"] and case["collective"] != "barrier":
                findings.append((7, f"{line['name']}: data was not checked"))
        elif status == "skipped":
            reason = outcome["reason"]
            skipped[reason] = skipped.get(reason, 0) + 1
        elif status == "corrupt":
            findings.append((4, f"{line['name']}: wrong data at rank {outcome['rank']}, element {outcome['element']}: "
                            f"expected {outcome['expected']}, got {outcome['got']}"))
        else:
            findings.append((6, f"{line['name']}: {outcome.get('reason', status)}"))
    header = next((line for line in record if line["line"] == "header"), {})
    shared = any(SHARED in warning for warning in header.get("warnings", []))
    may_be_skipped = MAY_BE_SKIPPED + (MAY_BE_SKIPPED_ON_SHARED if shared else ())
    for reason, count in skipped.items():
        allowed = any(words in reason for words in may_be_skipped)
        findings.append((0 if allowed else 7, f"{count} skipped: {reason}"))
    return [(0, f"{verified} of {plan['case_lines']} measurements verified"), *findings]


def planned(record):
    return next((line["cases"] for line in record if line["line"] == "plan"), [])


def medians(record, placement="out_of_place"):
    """Seconds of each call of a placement, by its size argument, over all samples that count."""
    cases, samples = planned(record), {}
    for line in record:
        if line["line"] != "case" or line["outcome"]["status"] != "measured":
            continue
        if cases[line["case"]]["placement"] != placement:
            continue
        excluded = {index for index, _ in line["samples"].get("excluded", [])}
        each = [nanoseconds * 1e-9 / line["calls_per_sample"]
                for index, nanoseconds in enumerate(line["samples"]["slowest_nanoseconds"]) if index not in excluded]
        samples.setdefault(cases[line["case"]]["bytes_total"], []).extend(each)
    return {size: median(each) for size, each in samples.items() if each}


def median(values):
    ascending = sorted(values)
    middle = len(ascending) // 2
    return ascending[middle] if len(ascending) % 2 else (ascending[middle - 1] + ascending[middle]) / 2
