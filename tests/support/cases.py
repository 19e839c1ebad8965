"""Test cases of Python tests, counted like those of Catch2 (tests/support/log.hpp)."""

import contextlib
import os
import pathlib
import traceback


class Cases:
    def __init__(self, program):
        folder = os.environ.get("CORDMA_TEST_LOG")
        self._log = pathlib.Path(folder, f"native.{program}.{os.getpid()}.tsv") if folder else None
        self._failed = 0

    def _record(self, kind, name):
        if self._log:
            with self._log.open("a") as log:
                log.write(f"{kind}\t{name}\n")

    @contextlib.contextmanager
    def case(self, name):
        """Runs its block as one test case; an exception fails it and goes no further."""
        self._record("started", name)
        try:
            yield
        except Exception:  # Whatever it is, the next case still runs.
            traceback.print_exc()
            print(f"FAILED: {name}")
            self._failed += 1
            self._record("failed", name)
        else:
            self._record("passed", name)

    def status(self):
        return 1 if self._failed else 0
