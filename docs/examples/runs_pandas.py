#!/usr/bin/env python3
"""Bus bandwidth of several runs side by side, in a pandas table: one row for each case, one column for each run.

    commgauge report monday.jsonl --format csv -o monday.csv
    commgauge report tuesday.jsonl --format csv -o tuesday.csv
    python3 runs_pandas.py monday.csv tuesday.csv
"""
import sys
from pathlib import Path

import pandas


def main():
    runs = pandas.concat([pandas.read_csv(name).assign(run=Path(name).stem) for name in sys.argv[1:]])
    verified = runs[runs["status"] == "verified"]
    table = verified.pivot_table(index="case", columns="run", values="busbw_bytes_per_second") / 1e9
    table["spread %"] = 100 * (table.max(axis=1) / table.min(axis=1) - 1)
    print(table.round(2).to_string())


if __name__ == "__main__":
    main()
