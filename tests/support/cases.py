"""Test cases of Python tests, counted like those of Catch2 (tests/support/log.hpp)."""

import contextlib
import os
import pathlib
import traceback
import unittest


class Cases:
    def __init__(self, program):
        folder = os.environ.get("CORDMA_TEST_LOG")
        self._log = pathlib.Path(folder, f"native.{program}.{os.getpid()}.tsv") if folder else None
        self._failed = 0

    def record(self, kind, name):
        if self._log:
            with self._log.open("a") as log:
                log.write(f"{kind}\t{name}\n")

    @contextlib.contextmanager
    def case(self, name):
        """Runs its block as one test case; an exception fails it and goes no further. unittest.SkipTest skips it."""
        self.record("started", name)
        try:
            yield
        except unittest.SkipTest as skip:
            print(f"skipped: {name}: {skip}")
            self.record("skipped", f"{name}\t{skip}")
        except Exception:  # The next case runs after any failure.
            traceback.print_exc()
            print(f"FAILED: {name}")
            self._failed += 1
            self.record("failed", name)
        else:
            self.record("passed", name)

    def status(self):
        return 1 if self._failed else 0


class _CountedResult(unittest.TextTestResult):
    """Logs each test of unittest as one test case."""

    def __init__(self, run, *arguments, **options):
        super().__init__(*arguments, **options)
        self._run = run

    @staticmethod
    def _name(test):
        module, *_, name = test.id().split(".")
        return f"{module.removesuffix('_test')}: {name.removeprefix('test_').replace('_', ' ')}"

    def startTest(self, test):
        super().startTest(test)
        self._run.record("started", self._name(test))

    def addSuccess(self, test):
        super().addSuccess(test)
        self._run.record("passed", self._name(test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._run.record("failed", self._name(test))

    def addError(self, test, err):
        super().addError(test, err)
        self._run.record("failed", self._name(test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._run.record("skipped", f"{self._name(test)}\t{reason}")


def run_unittests(program, folder):
    """Runs unittest's tests in FOLDER/*_test.py as test cases. Returns the exit status."""
    tests = unittest.defaultTestLoader.discover(str(folder), "*_test.py")
    run = Cases(program)
    runner = unittest.TextTestRunner(
        resultclass=lambda *arguments, **options: _CountedResult(run, *arguments, **options))
    return 0 if runner.run(tests).wasSuccessful() else 1
