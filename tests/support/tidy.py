#!/usr/bin/env python3
"""Runs clang-tidy over a build's sources: `tidy.py BUILD SOURCES`, behind `tests/support/check`.

SOURCES is a regular expression for the paths of the compilation database BUILD/together. A file in which
nothing was found is read again only when it, a header of its, its rules or clang-tidy have changed.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

CLANG_TIDY = "clang-tidy-19"
# Sources are included on purpose, where files are compiled together.
CHECKS = "-checks=-bugprone-suspicious-include"
KEPT_SECONDS = 30 * 24 * 3600  # For which a result is kept that nobody asks for.
# Options for what a compiler writes besides its output, and whether they take a word.
WRITES = {"-o": 1, "-MQ": 1, "-MF": 1, "-MD": 0, "-c": 0}


def listing(command):
    """Returns the command that lists the file and its headers as a rule of make."""
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word in WRITES:
            for _ in range(WRITES[word]):
                next(words)
        else:
            kept.append(word)
    return [*kept, "-M"]


def output(command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, check=False)


class Tidy:
    def __init__(self, build, kept):
        self.build, self.kept = build.resolve(), kept
        self.version = output([CLANG_TIDY, "--version"], build).stdout
        self.read = functools.cache(pathlib.Path.read_bytes)

    def key(self, path, entries):
        """Returns the name under which the file's result is kept, or None if it does not compile."""
        rules = output([CLANG_TIDY, "--dump-config", CHECKS, str(path)], self.build).stdout
        digest = hashlib.sha256(self.version + rules)
        for entry in entries:
            done = output(listing(entry["command"]), entry["directory"])
            if done.returncode:
                return None
            headers = shlex.split(done.stdout.decode().partition(":")[2].replace("\\\n", ""))
            for text in (entry["command"], *headers):
                # A path within the tree counts from its root: another clone has the same results.
                digest.update(text.replace(str(self.build.parent), "").encode())
            for header in headers:
                digest.update(self.read(pathlib.Path(entry["directory"], header)))
        return digest.hexdigest()

    def complaints(self, path, entries):
        """Returns what clang-tidy finds in a file, and whether it had to be asked."""
        key = self.key(path, entries)
        stamp = self.kept / key if key else None
        if stamp and stamp.exists():
            os.utime(stamp)
            return "", False
        done = subprocess.run([CLANG_TIDY, "-quiet", f"-p={self.build}/together", CHECKS, str(path)],
                              text=True, capture_output=True, check=False)
        if done.returncode == 0:
            if stamp:
                stamp.touch()
            return "", True
        return f"{done.stdout}{done.stderr}" or f"{path}: {CLANG_TIDY} ended with {done.returncode}", True


def files(build, chosen):
    """Returns the chosen files of the database, each with the ways in which it is compiled."""
    found = {}
    for entry in json.loads((build / "together/compile_commands.json").read_text()):
        path = pathlib.Path(os.path.normpath(pathlib.Path(entry["directory"], entry["file"])))
        if re.search(chosen, str(path)):
            found.setdefault(path, []).append(entry)
    return found


def forget_old(kept, now):
    for stamp in kept.iterdir():
        if now - stamp.stat().st_mtime > KEPT_SECONDS:
            stamp.unlink(missing_ok=True)


def kept_in(environment):
    return pathlib.Path(environment.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "cordma-tidy")


def main():
    build, chosen = pathlib.Path(sys.argv[1]), files(pathlib.Path(sys.argv[1]), sys.argv[2])
    kept = kept_in(os.environ)
    kept.mkdir(parents=True, exist_ok=True)
    forget_old(kept, time.time())
    tidy = Tidy(build, kept)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(tidy.complaints, chosen, chosen.values()))
    for text, _ in found:
        print(text, end="")
    print(f"clang-tidy read {sum(asked for _, asked in found)} of {len(found)} files")
    return any(text for text, _ in found)


if __name__ == "__main__":
    sys.exit(main())
