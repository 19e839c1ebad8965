#!/usr/bin/env python3
"""A program that was not linked with cordma opens it late, and registers memory.

    late_test.py PLUGIN
"""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402


def main():
    all_cases = cases.Cases("late")
    with all_cases.case("a plug-in with cordma inside is opened late, and registers memory"):
        plugin = ctypes.CDLL(sys.argv[1])
        plugin.registered_for_100_bytes.restype = ctypes.c_size_t
        registered = plugin.registered_for_100_bytes()
        assert registered == 2 << 20, registered
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
