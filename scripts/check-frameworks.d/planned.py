"""The memory of a layout, part by part, as `commgauge plan` counts it."""

import json
import pathlib
import subprocess
import tempfile


def memory(commgauge, config, gpus, sequence, framework, *words, only=""):
    """Bytes of each part of the best layout that computes nothing again, of one sample for each GPU; or none, and why."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "config.json"
        file.write_text(json.dumps(config))
        command = [commgauge, "plan", "--gpus", str(gpus), "--gpu-memory", "80GB", "--global-batch", str(gpus), "--sequence", str(sequence),
                   "--format", "json", "--machine", "h100-nvswitch-ndr", "--model", str(file), "--framework", framework,
                   "--only", f"recompute=none{only}", *words]
        answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        return None, answer.stderr.strip()
    return {part["part"]: part["bytes"] for part in json.loads(answer.stdout)["layouts"][0]["memory"]}, ""
