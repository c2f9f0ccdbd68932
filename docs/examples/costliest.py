#!/usr/bin/env python3
"""The calls that take most of a step, from the CSV of a record; the standard library alone.

    commgauge report run.jsonl --format csv | python3 costliest.py
"""
import csv
import sys


def main():
    rows = []
    for row in csv.DictReader(sys.stdin):
        # Empty where there is no number: a row that failed, was skipped, or whose data were wrong.
        if not row["latency_seconds_median"] or row["status"] == "WRONG":
            continue
        # Copies and matrix products, which are no calls.
        if row["axis"] == "rank":
            continue
        calls = float(row["count_per_step"] or 1)
        rows.append((calls * float(row["latency_seconds_median"]), row))
    rows.sort(key=lambda pair: pair[0], reverse=True)
    for seconds, row in rows[:10]:
        print(f"{seconds * 1e3:10.3f} ms  {row['axis']:<6} {row['group_size']:>4} ranks  {row['case']}")


if __name__ == "__main__":
    main()
