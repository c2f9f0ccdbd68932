"""Takes files out of Python packages, for scripts/build-kernels, scripts/check-nccl and scripts/gpu-bundle. Nothing is installed: a
package is fetched with pip, the files that are wanted are kept under target/, and the rest is thrown away."""

import contextlib
import os
import shutil
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
    with fetched(script, package) as packed:
        if packed is None:
            return False
        folder.mkdir(exist_ok=True)
        for name in names:
            [inside] = [one for one in packed.namelist() if one.endswith(f"/{name}")]
            # Under its own name only when it is whole.
            staged = folder / f"{name}.new"
            staged.write_bytes(packed.read(inside))
            staged.chmod(0o755)
            staged.rename(folder / name)
    return True


def take_all(script, package, folder):
    """Puts all files of a package into a folder, once, those executable that are so in the package. False as in `take`."""
    if folder.exists():
        return True
    with fetched(script, package) as packed:
        if packed is None:
            return False
        staged = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(staged, ignore_errors=True)
        for one in packed.infolist():
            path = Path(packed.extract(one, staged))
            if path.is_file():
                path.chmod((one.external_attr >> 16) & 0o777 or 0o644)
        staged.rename(folder)
    return True


@contextlib.contextmanager
def fetched(script, package):
    """The package, open, as long as it is there; None, said aloud, where there is no way to it."""
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
            yield None
            return
        wheel = next(Path(place).glob("*.whl"))
        print(f"{script}: fetched {package}, {wheel.stat().st_size // 10**6} MB", file=sys.stderr)
        with zipfile.ZipFile(wheel) as packed:
            yield packed
