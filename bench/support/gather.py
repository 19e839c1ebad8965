#!/usr/bin/env python3
"""What several benchmarks wrote with --json: `gather.py [--table] [--to FILE]... IN...`.

Puts all figures into one array, and prints those that stand beside something.
"""

import argparse
import json
import pathlib


def table(figures):
    """The figures with a ratio, a line each."""
    rows = [(f"{f['bench']}: {f['case']}", f["metric"], f"{f['value']:.4g}", f"{f['baseline']:.4g}",
             f["unit"], f"{f['ratio']:.3f}") for f in figures if f["ratio"] is not None]
    rows.insert(0, ("figure", "metric", "cordma", "beside", "unit", "ratio"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        text = [cell.ljust(width) for cell, width in zip(row[:2], widths)]
        text += [cell.rjust(width) for cell, width in zip(row[2:4], widths[2:])]
        print("  ".join([*text, row[4].ljust(widths[4]), row[5].rjust(widths[5])]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--to", action="append", default=[], type=pathlib.Path)
    parser.add_argument("inputs", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    figures = [f for path in arguments.inputs for f in json.loads(path.read_text())]
    for to in arguments.to:
        to.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.table:
        table(figures)


if __name__ == "__main__":
    main()
