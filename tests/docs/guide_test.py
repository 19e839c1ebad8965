#!/usr/bin/env python3
"""The programs of docs/guide run as a reader runs them: `guide_test.py ROOT HELLO`."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import blocks  # noqa: E402
import cases  # noqa: E402

LISTENING = "listening on "
DEADLINE_S = 60


class Process:
    """A program that runs beside the test, and is killed with it."""

    def __init__(self, *command):
        self.process = subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.said = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def line_with(self, text):
        """What follows `text` in the next line that has it."""
        for line in self.process.stdout:
            self.said += line
            if text in line:
                return line.partition(text)[2].rstrip("\n")
        raise AssertionError(f"it ended without '{text}':\n{self.said}")

    def ended(self):
        """What it said in all, once it has ended with 0."""
        rest, _ = self.process.communicate(timeout=DEADLINE_S)
        self.said += rest
        assert self.process.returncode == 0, f"it ended with {self.process.returncode}:\n{self.said}"
        return self.said


def check_start(run, root, hello):
    with run.case("start.md's two processes print what it says"):
        (_, said), *_ = blocks.blocks_of(root / "docs/guide/start.md", "text")
        with Process(hello) as server, Process(hello, server.line_with(LISTENING)) as client:
            printed = client.ended() + server.ended().partition("\n")[2]
        assert sorted(printed.splitlines()) == sorted(said.splitlines()), printed
    with run.case("start.md's client says that no server is there"):
        done = subprocess.run([hello, "unix:/nonexistent/socket"], text=True, capture_output=True, check=False)
        assert done.returncode == 1 and "/nonexistent/socket" in done.stderr, done


def main():
    root, hello = (pathlib.Path(path) for path in sys.argv[1:])
    run = cases.Cases("guide programs")
    check_start(run, root, hello)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
