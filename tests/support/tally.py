#!/usr/bin/env python3
"""Counts test cases from the logs that test programs leave, and checks skips against a list.

    tally.py --skips tests/skips.txt [--sanitized] [--meson build/meson-logs/testlog.json] LOG_FOLDER

Prints what failed or was skipped, then `N passed, N failed, N skipped` as the last line. Exits with
1 when a case failed or a skip is not listed.
"""

import argparse
import json
import pathlib
import re
import sys

# The last line of a Catch2 program that keeps no log, as softverbs' do not.
CATCH2_SUMMARY = re.compile(r"^(?:All tests passed \(.* in (?P<all>\d+) test cases?\)"
                            r"|test cases: *(?P<total>\d+) \|(?: *(?P<passed>\d+) passed \|)?"
                            r" *(?P<failed>\d+) failed.*)$", re.MULTILINE)


def read_skips(path):
    """tests/skips.txt: `device | test name | reason` a line; device `*` is any, `sanitizer` any
    when the programs were built with one."""
    allowed = set()
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            device, name, reason = (part.strip() for part in line.split("|"))
            if not reason:
                raise SystemExit(f"{path}: no reason given for skipping '{name}'")
            allowed.add((device, name))
    return allowed


class Tally:
    def __init__(self, allowed_skips, sanitized=False):
        self.allowed_skips = allowed_skips
        self.any_device = {"*", "sanitizer"} if sanitized else {"*"}
        self.passed, self.failed, self.skipped = 0, [], []
        self.unlisted = []
        self.failed_programs = set()

    def fail(self, device, program, what):
        self.failed.append(f"{device}: {program}: {what}")
        self.failed_programs.add((device, program))

    def skip(self, device, name, reason):
        self.skipped.append(f"{device}: {name}: {reason}")
        if not any((where, name) in self.allowed_skips for where in {device} | self.any_device):
            self.unlisted.append(f"{device} | {name} | {reason}")

    def add_log(self, path):
        device, program, _ = path.stem.rsplit(".", 2)
        running = None
        for line in path.read_text(errors="replace").splitlines():
            kind, name, *rest = line.split("\t")
            if kind == "started":
                running = name
                continue
            if kind == "passed":
                self.passed += 1
            elif kind == "failed":
                self.fail(device, program, name)
            elif kind == "skipped":
                self.skip(device, name, rest[0])
            else:
                continue
            running = None
        if running is not None:
            self.fail(device, program, f"{running} (the program ended in its middle)")
        return device, program

    def add_exit(self, device, program, status, logged):
        """A program that failed though each of its cases passed (a leak, say) counts as one more;
        a program that keeps no log counts as one case."""
        if status == "0":
            self.passed += (device, program) not in logged
        elif (device, program) not in self.failed_programs:
            self.fail(device, program, f"exit status {status}")


def meson_results(path):
    for line in path.read_text().splitlines():
        yield json.loads(line)


def show_output(test):
    print(f"---- {test['name']}: {test['result']}")
    for stream in ("stdout", "stderr"):
        if test.get(stream):
            print(test[stream].rstrip())


def add_summary(tally, program, test):
    """Counts what a Catch2 program says of itself; False when it says nothing."""
    summary = CATCH2_SUMMARY.search(test.get("stdout") or "")
    if summary is None:
        return False
    tally.passed += int(summary["all"] or summary["passed"] or 0)
    for number in range(int(summary["failed"] or 0)):
        tally.fail("native", program, f"failure {number + 1}, shown above")
    return True


def add_meson(tally, tests, logged):
    for test in tests:
        where, _, name = test["name"].rpartition(" / ")
        project = where.partition(":")[0]
        program = name if project in ("", "cordma") else f"{project}/{name}"
        device = "native"
        for local in ("native", "soft0"):
            if (local, "test_" + program) in logged:
                device, program = local, "test_" + program
        passed = test["result"] in ("OK", "EXPECTEDFAIL")
        if not passed and test["result"] != "SKIP":
            show_output(test)
        if test["result"] == "SKIP":
            tally.skip(device, program, "its program says so")
        elif (device, program) in logged or not add_summary(tally, program, test):
            tally.add_exit(device, program, "0" if passed else test["result"].lower(), logged)
        elif not passed:
            tally.add_exit(device, program, test["result"].lower(), {(device, program)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--skips", type=pathlib.Path, required=True)
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--meson", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()

    tally = Tally(read_skips(options.skips), options.sanitized)
    logged = {tally.add_log(path) for path in sorted(options.folder.glob("*.tsv"))}
    if options.meson and options.meson.exists():  # Not when Meson ran nothing.
        add_meson(tally, meson_results(options.meson), logged)
    for path in sorted(options.folder.glob("*.exit")):
        device, program = path.stem.rsplit(".", 1)
        tally.add_exit(device, program, path.read_text().strip(), logged)

    for title, lines in (("skipped", tally.skipped), ("FAILED", tally.failed),
                         ("FAILED: skipped, and not listed in tests/skips.txt", tally.unlisted)):
        for line in lines:
            print(f"{title}: {line}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 1 if tally.failed or tally.unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
