#!/usr/bin/env python3
"""Makes the API reference with Doxygen: `reference.py ROOT OUTPUT`.

Prints what Doxygen warns of, and fails, unless a line of doxygen-filter.txt explains the warning.
"""

import pathlib
import re
import shutil
import subprocess
import sys

FILTER = pathlib.Path(__file__).parent / "doxygen-filter.txt"


def explained(text):
    """Gives (pattern, reason) of each line of a filter: `pattern | reason`."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(part.strip() for part in line.rsplit(" | ", 1)) for line in lines]


def make(root, output):
    """Runs Doxygen in `root`, into empty folders `output`/html and `output`/xml. Returns its warnings."""
    for folder in ("html", "xml"):
        shutil.rmtree(output / folder, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    settings = (root / "docs/Doxyfile").read_text() + f'\nOUTPUT_DIRECTORY = "{output.resolve()}"\n'
    done = subprocess.run(["doxygen", "-"], cwd=root, input=settings, text=True, check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode:
        said.append(f"doxygen ended with {done.returncode}")
    return said


def unexplained(warnings, patterns):
    return [line for line in warnings if not any(re.search(pattern, line) for pattern, _ in patterns)]


def main():
    root, output = (pathlib.Path(path) for path in sys.argv[1:])
    found = unexplained(make(root, output), explained(FILTER.read_text()))
    print(*found, sep="\n", end="\n" if found else "")
    if not found:
        print(f"The reference: {output / 'html/index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
