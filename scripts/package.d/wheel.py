"""Packs a tree of bin/, lib/ and share/ into a Python wheel: `pip install FILE` puts bin/ on PATH, and the rest next to it."""

import base64
import hashlib
import os
import sys
import zipfile
from pathlib import Path

METADATA = """Metadata-Version: 2.1
Name: commgauge
Version: {version}
Summary: Measures the communication that training and serving a large model really does on a cluster
License: MIT OR Apache-2.0
Requires-Python: >=3.7
Provides-Extra: cuda12
Requires-Dist: nvidia-nccl-cu12; extra == "cuda12"
Provides-Extra: cuda13
Requires-Dist: nvidia-nccl-cu13; extra == "cuda13"
Description-Content-Type: text/markdown

{readme}"""
WHEEL = """Wheel-Version: 1.0
Generator: scripts/package
Root-Is-Purelib: false
Tag: {tag}
"""


def hashed(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main():
    tree, version, glibc, output = Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
    name = f"commgauge-{version}"
    entries = []
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            inside = path.relative_to(tree)
            # What is in bin/ goes where the scripts of that Python are; the rest keeps its place next to it.
            place = Path("scripts", *inside.parts[1:]) if inside.parts[0] == "bin" else Path("data", inside)
            entries.append((f"{name}.data/{place}", path.read_bytes(), os.access(path, os.X_OK)))
    info = f"{name}.dist-info"
    readme = Path("README.md").read_text(encoding="utf-8")
    entries.append((f"{info}/METADATA", METADATA.format(version=version, readme=readme).encode(), False))
    entries.append((f"{info}/WHEEL", WHEEL.format(tag=tag).encode(), False))
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"]:
        entries.append((f"{info}/{licence}", Path(licence).read_bytes(), False))
    record = [f"{inside},sha256={hashed(content)},{len(content)}" for inside, content, _ in entries]
    entries.append((f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]).encode(), False))
    with zipfile.ZipFile(output / f"{name}-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for inside, content, executable in entries:
            entry = zipfile.ZipInfo(inside)
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)


main()
