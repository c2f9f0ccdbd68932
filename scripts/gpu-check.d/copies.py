"""The physical limit: a device-to-device copy by the driver, timed by events, compared with an all_reduce of one rank, which is such a copy."""

import device
import judge
from launch import Missing

# A collective of one rank must come so near to the copy at the largest size.
MOST_ABOVE_COPY = 0.05
# Below, what starts a call is in the time of both.
JUDGED_FROM_BYTES = 256 << 20
LONGEST_SECONDS = 30


def compare(check):
    part, record = check.launch("all_reduce, 1 rank, up to 1 GiB", "copy", 1)
    check.judged((part, record), judge.times)
    if record is None:
        raise Missing("there is no all_reduce to compare")
    ours, findings = judge.medians(record), []
    if not ours:
        raise Missing("no all_reduce was measured")
    for size in sorted(ours):
        seconds = copy_seconds(check, size)
        # Bytes read and bytes written.
        rate, share = 2 * size / seconds, seconds / ours[size]
        findings.append((0, f"{size} B: copy {rate / 1e9:.0f} GB/s read and written, all_reduce at {100 * share:.1f} % of it"))
    if size < JUDGED_FROM_BYTES and not check.synthetic:
        findings.append((7, f"the largest size, {size} B, is too small to be judged"))
    elif ours[size] > seconds * (1 + MOST_ABOVE_COPY) and not check.synthetic:
        findings.append((1, f"{size} B: the all_reduce takes {100 * (ours[size] / seconds - 1):.1f} % more than the copy; 5 % are allowed"))
    return findings


def copy_seconds(check, size):
    seconds, why = device.query(check, min(LONGEST_SECONDS, check.left()), "copy", size)
    if seconds is None:
        raise Missing(f"there is no copy of {size} B: {why}")
    return float(seconds)
