#!/usr/bin/env python3
"""The programs of docs/guide run as a reader runs them: `guide_test.py ROOT HELLO SERVER`."""

import contextlib
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import blocks  # noqa: E402
import cases  # noqa: E402

LISTENING = "listening on "
DEADLINE_S = 60
ENTRY_BYTES = 24  # The journal's.


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

    def kill(self):
        self.process.kill()
        self.process.wait()

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


class Ledger:
    """The server of server.md and its clients, with a socket and a folder of their own."""

    COUNT = 3000
    HALFWAY = f" at {COUNT // 2}"

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.endpoint = f"unix:{folder}/socket"

    def starting_server(self):
        return Process(self.program, "server", self.endpoint, self.folder)

    def server(self):
        server = self.starting_server()
        server.line_with(LISTENING)
        return server

    def client(self, number):
        return Process(self.program, "client", self.endpoint, number, self.COUNT)

    def check_sum(self, client, repeated=r"\d+"):
        said = client.ended()
        assert re.search(f": repeated {repeated}, the sum is {self.COUNT}\n$", said), said

    def entries(self):
        return (self.folder / "journal").stat().st_size / ENTRY_BYTES

    def metric(self, name):
        return int(re.search(rf"^{name} (\d+)$", (self.folder / "ledger.prom").read_text(), re.MULTILINE)[1])


@contextlib.contextmanager
def ledger_of(program):
    with tempfile.TemporaryDirectory() as folder:
        yield Ledger(program, folder)


def drained(server):
    server.process.send_signal(signal.SIGTERM)
    assert "drained after " in server.ended(), server.said


def check_server(run, program):
    with run.case("server.md: a client that is killed harms no other, and its account goes on"), \
            ledger_of(program) as ledger, ledger.server() as server:
        with ledger.client(1) as first, ledger.client(2) as second, ledger.client(3) as third:
            third.line_with(ledger.HALFWAY)
            third.kill()
            for client in (first, second):
                ledger.check_sum(client)
        with ledger.client(3) as again:
            ledger.check_sum(again)
        drained(server)
        assert "lost " in server.said, server.said
        assert ledger.metric("ledger_clients_lost_total") == 1
        assert ledger.metric("ledger_calls_total") >= 3 * ledger.COUNT
        assert ledger.metric("ledger_failed_total") == 0
        assert "cordma_requests_completed_total" in (ledger.folder / "ledger.prom").read_text()
    # A client has one call at a time: when a server drains, no other one can be under way.
    for how, end, repeated in (("drains", drained, "[01]"), ("is killed", Process.kill, r"\d+")):
        with run.case(f"server.md: while a server {how} and another one starts, no call is lost or done twice"), \
                ledger_of(program) as ledger, ledger.server() as old:
            with ledger.client(1) as first, ledger.client(2) as second:
                first.line_with(ledger.HALFWAY)
                with ledger.starting_server() as new:
                    new.line_with("waiting for the server before")
                    end(old)
                    new.line_with(LISTENING)
                    for client in (first, second):
                        ledger.check_sum(client, repeated)
                    drained(new)
            assert ledger.entries() == 2 * ledger.COUNT, ledger.entries()
    with run.case("server.md: half an entry at the journal's end is cut off"), ledger_of(program) as ledger:
        (ledger.folder / "journal").write_bytes(b"\x01" * 23)
        for _ in range(2):
            with ledger.server() as server, ledger.client(1) as client:
                ledger.check_sum(client)
                drained(server)
        assert ledger.entries() == ledger.COUNT, ledger.entries()
    with run.case("server.md: clients that say nothing keep nobody out"), ledger_of(program) as ledger, \
            ledger.server() as server, contextlib.ExitStack() as silent:
        for _ in range(70):
            connected = silent.enter_context(socket.socket(socket.AF_UNIX))
            connected.connect(str(ledger.folder / "socket"))
        with ledger.client(1) as client:
            ledger.check_sum(client)
        drained(server)


def main():
    root, hello, server = (pathlib.Path(path) for path in sys.argv[1:])
    run = cases.Cases("guide programs")
    check_start(run, root, hello)
    check_server(run, server)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
