"""The one report: the answer, what it was made on, each part with its result, tables, warnings. Nothing is measured here."""

import platform
import time

from launch import Missing, worse

IN_WORDS = {0: "passed", 1: "slower than it must be", 3: "not proven", 4: "wrong data", 5: "a hang", 6: "a launch failed",
            7: "something is missing"}
MOST_SHOWN = 8
SYNTHETIC = ("executed by test doubles for CUDA and NCCL, not by a GPU: this report shows that the check itself works, and says nothing "
             "of any GPU")


def write(check, ranks):
    """Writes report.md and gives the exit code of the whole."""
    code = 0
    for part in check.parts:
        code = worse(code, part.code)
    if check.synthetic:
        code = worse(code, 3)
    expected = {f"data, {count} ranks" for count in ranks} | {f"times, {count} ranks" for count in ranks}
    if not expected <= {part.name for part in check.parts}:
        code = worse(code, 7)
    head = "PASSED" if code == 0 else f"NOT PASSED: {IN_WORDS.get(code, 'failed')}"
    seconds = time.monotonic() - check.begun
    lines = [f"# gpu-check: {head} (exit code {code})", ""]
    if check.synthetic:
        lines += [f"**Synthetic**: {SYNTHETIC}.", ""]
    for part in check.parts:
        lines += [f"* {part.name}: {text}" for code, text in part.findings if code == part.code != 0][:MOST_SHOWN]
    lines += ["", f"Host {platform.node()}, {platform.platform()}; {time.strftime('%Y-%m-%d %H:%M:%S %z')}; {seconds:.0f} of {check.budget:.0f} s; "
              f"{check.devices} GPUs; ranks {', '.join(map(str, ranks))}.", ""]
    lines += ["## Parts", "", "| part | answer | seconds | result | record |", "|---|---|--:|---|---|"]
    for part in check.parts:
        answer = "ok" if part.code == 0 else f"**{IN_WORDS.get(part.code, 'failed')}**"
        lines.append(f"| {part.name} | {answer} | {part.seconds:.1f} | {shortened(part.findings)} | {part.record} |")
    lines += ["", "## Warnings and notes", "", *(f"* {note}" for note in check.notes or ["none"]), ""]
    lines += ["## What the host has", "", "```text", check.doctor_text, "```", ""]
    for part in check.parts:
        if part.record and part.name.startswith(("times", "graphs", "all_reduce, 1")):
            lines += [f"## {part.name[0].upper()}{part.name[1:]}", "", *table(check, part), ""]
    (check.folder / "report.md").write_text("\n".join(lines) + "\n")
    return code


def shortened(findings):
    """In one cell: the first few, problems first, and how many more there are."""
    texts = [text for _, text in sorted(findings, key=lambda answer: answer[0] == 0)]
    shown = [text.replace("|", "\\|").replace("\n", " ") for text in texts[:MOST_SHOWN]]
    more = [f"and {len(texts) - MOST_SHOWN} more"] if len(texts) > MOST_SHOWN else []
    return "; ".join([*shown, *more])


def table(check, part):
    try:
        # The reserve is for this.
        _, out, err = check.run([check.commgauge, "report", check.folder / part.record, "--format", "markdown"], 10)
    except Missing as missing:
        return [f"no table: {missing}"]
    return [line for line in (out or err).strip().splitlines() if not line.startswith("# ")]
