#!/usr/bin/env python3
"""All tests of ./dev as one program, whose tests are counted one by one."""

import pathlib
import sys

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE.parent / "support"))
import cases  # noqa: E402

if __name__ == "__main__":
    sys.exit(cases.run_unittests("dev", HERE))
