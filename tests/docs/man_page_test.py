#!/usr/bin/env python3
"""A man page is well-formed, and names the options of its program: `man_page_test.py PAGE PROGRAM`."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

DESCRIBED = re.compile(r"^\.TP\n(.*)$", re.MULTILINE)
LONG_OPTION = re.compile(r"--[a-z][a-z-]*")
NO_SUCH_REQUEST = ".TH X 1\n.frobnicate\n"


def shown(page):
    """How man shows a page, and what it warns of."""
    done = subprocess.run(["man", "--warnings", "-l", page], text=True, check=False, capture_output=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "200"})
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def warnings_of(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "x.1")
        path.write_text(text)
        return shown(path)[1]


def main():
    page, program = sys.argv[1:]
    run = cases.Cases("man_page")
    text, warnings = shown(page)
    described = " ".join(DESCRIBED.findall(pathlib.Path(page).read_text().replace("\\-", "-")))
    said = subprocess.run([program, "--help"], text=True, check=True, capture_output=True).stdout
    with run.case(f"man warns of nothing in {pathlib.Path(page).name}"):
        assert not warnings, warnings
        assert "frobnicate" in warnings_of(NO_SUCH_REQUEST)
    with run.case(f"{pathlib.Path(page).name} describes the options that --help lists, and names no others"):
        listed = set(LONG_OPTION.findall(said))
        for options in set(LONG_OPTION.findall(described)), set(LONG_OPTION.findall(text)):
            assert options == listed, f"not in both: {sorted(options ^ listed)}"
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
