#!/usr/bin/env python3
"""The median of every replicate of every case, straight from a record; the standard library alone.

    python3 replicates.py run.jsonl
"""
import json
import statistics
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as record:
        for text in record:
            line = json.loads(text)
            if line["line"] != "case" or line["outcome"]["status"] != "measured":
                continue
            samples = line["samples"]
            left_out = {index for index, _ in samples.get("excluded", [])}
            nanoseconds = [time for index, time in enumerate(samples["slowest_nanoseconds"]) if index not in left_out]
            # A sample may hold several calls, where one is short against the clock.
            seconds = [time / line.get("calls_per_sample", 1) / 1e9 for time in nanoseconds]
            if seconds:
                print(f"{line['name']},{line['replicate']},{statistics.median(seconds):.9f}")


if __name__ == "__main__":
    main()
