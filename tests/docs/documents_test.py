#!/usr/bin/env python3
"""What the documents show is compiled and run: `documents_test.py ROOT README_PROGRAM TEMPLATE...`."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import blocks  # noqa: E402
import cases  # noqa: E402


def main():
    root, program, *templates = (pathlib.Path(path) for path in sys.argv[1:])
    all_cases = cases.Cases("documents")
    with all_cases.case("every block of C++ in the documents stands in a test"):
        assert not blocks.missing(root, templates), blocks.missing(root, templates)
    with all_cases.case("README's first program prints what README says"):
        (sentence,) = re.findall(r"^It prints ([^.]*)\.", (root / "README.md").read_text(), re.MULTILINE)
        done = subprocess.run([program], text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stderr}"
        assert sorted(done.stdout.splitlines()) == sorted(re.findall("`([^`]*)`", sentence)), done.stdout
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
