#!/usr/bin/env python3
"""What `./dev test` counts: passes, failures, crashes, leaks at exit, and unlisted skips."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import cases

TALLY = pathlib.Path(__file__).with_name("tally.py")


def tally(logs, skips="", meson=None, sanitized=False):
    """Runs tally.py on `logs` (file name: text); returns (exit status, its lines)."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "skips.txt").write_text(skips)
        (folder / "logs").mkdir()
        for file, text in logs.items():
            (folder / "logs" / file).write_text(text)
        command = [sys.executable, TALLY, "--skips", folder / "skips.txt", folder / "logs"]
        if sanitized:
            command.append("--sanitized")
        if meson is not None:
            log = folder / "testlog.json"
            log.write_text("".join(json.dumps(test) + "\n" for test in meson))
            command += ["--meson", log]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        return done.returncode, (done.stdout + done.stderr).splitlines()


def log_of_python(code):
    """What a Python test that succeeds logs. CODE has cases of `run`."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"import cases, sys, unittest\nrun = cases.Cases('x')\n{code}sys.exit(run.status())\n"
        subprocess.run([sys.executable, "-c", program], cwd=TALLY.parent, check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "CORDMA_TEST_LOG": folder})
        (log,) = pathlib.Path(folder).iterdir()
        return log.read_text()


def main():
    run = cases.Cases("tally")
    passed = "started\ta\npassed\ta\n"
    with run.case("passes of all programs are added"):
        status, said = tally({"native.test_coro.1.tsv": passed, "rxe0.test_coro.1.tsv": passed})
        assert (status, said[-1]) == (0, "2 passed, 0 failed, 0 skipped"), said
    with run.case("a failure is named and fails the whole"):
        status, said = tally({"rxe0.test_io.7.tsv": passed + "started\tb c\nfailed\tb c\n"})
        assert (status, said[-1]) == (1, "1 passed, 1 failed, 0 skipped"), said
        assert "FAILED: rxe0: test_io: b c" in said, said
    with run.case("a case that never ended is a failure"):
        status, said = tally({"native.test_io.7.tsv": passed + "started\tb\n",
                              "native.test_io.exit": "134\n"})
        assert (status, said[-1]) == (1, "1 passed, 1 failed, 0 skipped"), said
    with run.case("a program that fails at its exit is one failure more"):
        status, said = tally({"rxe0.test_io.7.tsv": passed, "rxe0.test_io.exit": "1\n"})
        assert (status, said[-1]) == (1, "1 passed, 1 failed, 0 skipped"), said
    with run.case("a listed skip is no failure"):
        skipped = "started\ta\nskipped\ta\tno atomics\n"
        status, said = tally({"rxe0.test_io.7.tsv": skipped}, "# x\nrxe0 | a | no atomics\n")
        assert (status, said[-1]) == (0, "0 passed, 0 failed, 1 skipped"), said
    with run.case("what only a sanitizer may skip fails without one"):
        listed = "sanitizer | a | it counts\n"
        for sanitized, wanted in ((True, 0), (False, 1)):
            status, said = tally({"rxe0.test_io.7.tsv": skipped}, listed, sanitized=sanitized)
            assert (status, said[-1]) == (wanted, "0 passed, 0 failed, 1 skipped"), said
    with run.case("a case of Python's that skips is logged, fails nothing, and the next one runs"):
        log = log_of_python("with run.case('a'): raise unittest.SkipTest('no atomics')\n"
                            "with run.case('b'): pass\n")
        assert log == skipped + "started\tb\npassed\tb\n", log
    with run.case("a skip that is not listed for its device fails"):
        status, said = tally({"rxe0.test_io.7.tsv": skipped}, "mlx5_0 | a | no atomics\n")
        assert (status, said[-1]) == (1, "0 passed, 0 failed, 1 skipped"), said
    with run.case("Meson's tests count as one case when they keep no log"):
        tests = [{"name": "cordma:io / io", "result": "OK", "returncode": 0},
                 {"name": "cordma:examples / 01_task", "result": "OK", "returncode": 0},
                 {"name": "bad", "result": "FAIL", "returncode": 1, "stdout": "why it failed"}]
        status, said = tally({"native.test_io.7.tsv": passed + passed}, meson=tests)
        assert (status, said[-1]) == (1, "3 passed, 1 failed, 0 skipped"), said
        assert "why it failed" in said, said
    with run.case("a room's cases that ran on soft0 are counted once, and not for another project's"):
        tests = [{"name": "cordma:io / io", "result": "OK"},
                 {"name": "softverbs:io / io", "result": "OK"}]
        status, said = tally({"soft0.test_io.7.tsv": passed + passed}, meson=tests)
        assert (status, said[-1]) == (0, "3 passed, 0 failed, 0 skipped"), said
    with run.case("a Catch2 program that keeps no log is believed its last line"):
        tests = [{"name": "softverbs:wire / wire", "result": "OK",
                  "stdout": "====\nAll tests passed (70 assertions in 12 test cases)\n\n"},
                 {"name": "softverbs:qp / qp", "result": "FAIL",
                  "stdout": "test cases:  9 |  7 passed | 2 failed\nassertions: 6 | 4 passed\n"}]
        status, said = tally({}, meson=tests)
        assert (status, said[-1]) == (1, "19 passed, 2 failed, 0 skipped"), said
    with run.case("but not when it fails after that"):
        tests = [{"name": "softverbs:wire / wire", "result": "TIMEOUT",
                  "stdout": "All tests passed (1 assertion in 1 test case)\n"}]
        status, said = tally({}, meson=tests)
        assert (status, said[-1]) == (1, "1 passed, 1 failed, 0 skipped"), said
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
