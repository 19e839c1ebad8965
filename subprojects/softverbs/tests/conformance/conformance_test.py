#!/usr/bin/env python3
"""What the suite must notice, shown to it by programs that misbehave."""

import argparse
import contextlib
import gzip
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import conformance
import programs
import pyverbs_suite

# A server that serves one connection, and its client: called like the real ones.
PEER = """
import socket, sys
port = int(sys.argv[sys.argv.index('-p') + 1])
server = sys.argv[-1] != '127.0.0.1'
if server:
    listener = socket.create_server(('127.0.0.1', port))
    listener.accept()[0].recv(1)
else:
    socket.create_connection(('127.0.0.1', port)).sendall(b'x')
"""
# A suite like pyverbs', with as much as the runner needs to know of it.
RUNNERS_TESTS = {
    "args_parser.py": """
import sys
class Parser:
    def parse_args(self):
        self.device = sys.argv.pop(sys.argv.index("--dev") + 1)
        sys.argv.remove("--dev")
parser = Parser()
""",
    "base.py": """
import unittest
class RDMATestCase(unittest.TestCase):
    @staticmethod
    def get_ip_mac_address(interface):
        return [f"address of {interface}", f"MAC of {interface}"]
    def _get_ip_mac(self, device, port, gid_index):
        self.skipTest("no interface")
""",
    "test_x.py": """
from args_parser import parser
from tests.base import RDMATestCase
class X(RDMATestCase):
    def test_combination(self):
        self.args = []
        self._get_ip_mac(parser.device, 1, 2)
        self.assertEqual(self.args, [["none", 1, 2, "address of eth7", "MAC of eth7"]])
""",
    "__init__.py": "from .test_x import X\n",
}
# Waits for what never comes.
SLEEPS = "import os, sys; os.read(os.pipe()[0], 1)"


def peer(more="print('8 bytes')"):
    return [sys.executable, "-c", PEER + more]


class Pairs(unittest.TestCase):
    def setUp(self):
        self.device = conformance.Device("none")

    def run_pair(self, arguments, expected=("^8 bytes$",), forbidden=(), seconds=60,
                 is_refused=False, own_fault=None):
        program = programs.Program(arguments + ["-p", "{port}"], expected, forbidden,
                                   both_report=not is_refused, is_refused=is_refused,
                                   own_fault=own_fault)
        here = self.device.host
        conformance.run_pair(self.device, program, time.monotonic() + seconds, here, here)

    def assert_fails(self, what, *arguments, **options):
        with self.assertRaisesRegex(conformance.Failure, what):
            self.run_pair(*arguments, **options)

    def test_a_pair_that_says_what_is_expected_passes(self):
        self.run_pair(peer())

    def test_a_missing_line_fails(self):
        self.assert_fails("lacks", peer(), expected=["^9 bytes"])

    def test_a_forbidden_line_fails(self):
        self.assert_fails("has /bytes/", peer(), forbidden=["bytes"])

    def test_a_server_that_reports_nothing_fails(self):
        self.assert_fails("lacks", peer("server or print('8 bytes')"))

    def test_a_client_that_fails_fails_without_waiting_for_its_server(self):
        self.assert_fails("client exits with 3",
                          peer("server and listener.accept() or sys.exit(3)"))

    def test_a_server_that_fails_fails(self):
        self.assert_fails("server exits with 3", peer("print('8 bytes'); sys.exit(server * 3)"))

    def test_a_program_may_fail_if_it_says_its_own_fault_alone(self):
        fails = peer("print('8 bytes'); sys.exit(server * 3)")
        self.assert_fails("server exits with 3", fails, own_fault="^9 bytes$")
        self.run_pair(fails, own_fault="^8 bytes$")
        self.assert_fails("lacks", fails, own_fault="^8 bytes$", expected=["^9 bytes"])

    def test_a_server_that_ends_early_fails(self):
        self.assert_fails("before it listened", [sys.executable, "-c", "pass"])

    def test_a_server_that_never_listens_fails_at_the_deadline(self):
        self.assert_fails("never listened", [sys.executable, "-c", SLEEPS], seconds=0)

    def test_a_client_that_is_refused_has_to_fail_by_itself(self):
        for end, what in (("True", "not refused, but exits with 0"),
                          ("os.kill(os.getpid(), 11)", "not refused, but exits with -11")):
            with self.subTest(end):
                self.assert_fails(what, peer(f"import os; print('8 bytes'); server or {end}"),
                                  is_refused=True)
        self.run_pair(peer("print('8 bytes'); sys.exit(1)"), is_refused=True)

    def test_the_outputs_of_both_are_shown(self):
        self.assert_fails(r"(?s)--- server: .*8 bytes.*--- client: .*8 bytes", peer(),
                          expected=["^9"])

    def test_what_a_program_started_ends_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            os.set_blocking(reader, True)
            start = (f"import subprocess, sys; held = open('{fifo}', 'w'); held.write('x'); "
                     f"subprocess.Popen([sys.executable, '-c', '{SLEEPS}'], stdout=held)")
            with conformance.Running([sys.executable, "-c", start], dict(os.environ)) as program:
                self.assertEqual(program.wait(time.monotonic() + 60), 0)
            self.assertEqual(os.read(reader, 1), b"x")
            self.assertEqual(os.read(reader, 1), b"")  # The end of the file: nobody holds it.
            os.close(reader)


class Outcomes(unittest.TestCase):
    def outcome(self, failures=(), absent="", **options):
        """What is said of one program, and the exit status. A failure of None is a run that
        passes."""
        given = {"repeat": max(len(failures), 1), "no_skips": False, **options}
        said = io.StringIO()
        with unittest.mock.patch.object(conformance, "run", side_effect=failures or [None]), \
                unittest.mock.patch.object(conformance, "absent", return_value=absent), \
                contextlib.redirect_stdout(said):
            found = conformance.outcome("name", None, argparse.Namespace(**given))
        return said.getvalue(), conformance.exit_status([found])

    def test_a_program_runs_as_often_as_asked(self):
        said, status = self.outcome([None] * 3)
        self.assertRegex(said, r"^name: passed 3 of 3, \d+\.\d s\n$")
        self.assertEqual(status, 0)

    def test_one_failure_of_many_is_shown_and_fails(self):
        said, status = self.outcome([None, conformance.Failure("why"), None])
        self.assertRegex(said, r"^name: why\nname: FAILED 2 of 3, ")
        self.assertEqual(status, 1)

    def test_what_cannot_run_is_skipped_or_a_failure(self):
        said, status = self.outcome(absent="no network")
        self.assertEqual((said, status), ("name: skipped: no network\n", conformance.EXIT_SKIPPED))
        said, status = self.outcome(absent="no network", no_skips=True)
        self.assertEqual((said, status), ("name: FAILED: no network\n", 1))

    def test_no_skips_is_what_ci_wants(self):
        for environment, expected in (({"CI": "true"}, True), ({}, False)):
            with unittest.mock.patch.dict(os.environ, environment, clear=True), \
                    unittest.mock.patch.object(sys, "argv", ["conformance.py"]):
                self.assertEqual(conformance.parse_arguments().no_skips, expected)

    def test_a_count_below_one_is_refused(self):
        with unittest.mock.patch.object(sys, "argv", ["conformance.py", "--repeat", "0"]), \
                contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            conformance.parse_arguments()
        self.assertIn("--repeat 0: must be 1 or more", said.getvalue())


class Acceptor(unittest.TestCase):
    """A server that sets options of its listener after rlisten() loses those, and its client,
    if the client comes before."""

    @contextlib.contextmanager
    def process(self, call):
        """A process that has come to this call."""
        there, here = os.pipe()
        program = f"import os, time; there = {there}; print(0, flush=True)\n{call}"
        with subprocess.Popen([sys.executable, "-c", program], pass_fds=[there],
                              stdout=subprocess.PIPE) as process:
            process.stdout.read(1)
            yield process.pid
            process.kill()
        os.close(there)
        os.close(here)

    def assert_becomes_ready(self, call):
        with self.process(call) as pid:
            is_ready = conformance.accepts(lambda port, pid: True)
            deadline = time.monotonic() + 60
            while not is_ready(0, pid):
                self.assertLess(time.monotonic(), deadline)

    def test_a_server_is_ready_when_it_reads_a_pointer_or_spins(self):
        self.assert_becomes_ready("os.read(there, 8)")
        self.assert_becomes_ready("while True: pass")

    def test_a_server_that_waits_for_its_own_thread_or_for_time_is_not_ready(self):
        for call in ("os.read(there, 24)", "time.sleep(9)"):
            with self.subTest(call), self.process(call) as pid:
                is_ready = conformance.accepts(lambda port, pid: True)
                self.assertFalse(is_ready(0, pid))
                while pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "S":
                    time.sleep(0)
                self.assertFalse(is_ready(0, pid))

    def test_a_server_that_does_not_listen_or_has_ended_is_not_ready(self):
        with self.process("while True: pass") as pid:
            self.assertFalse(conformance.accepts(lambda port, pid: False)(0, pid))
        self.assertFalse(conformance.accepts(lambda port, pid: True)(0, pid))


class KernelsCm(unittest.TestCase):
    def test_a_port_is_ready_when_somebody_listens_on_it(self):
        ids = [{"state": "CONNECT", "src-addr": "10.0.7.1:7471"},
               {"state": "LISTEN", "src-addr": "0.0.0.0:7472"},
               {"state": "LISTEN", "src-addr": "[::]:7473"},
               {"state": "ADDR_BOUND"}]
        with tempfile.TemporaryDirectory() as folder:
            rdma = pathlib.Path(folder, "rdma")
            rdma.write_text(f"#!/bin/sh\necho '{json.dumps(ids)}'\n")
            rdma.chmod(0o755)
            with unittest.mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
                ready = [port for port in (471, 472, 7471, 7472, 7473)
                         if conformance.listens_by_kernels_cm(port, None)]
        self.assertEqual(ready, [7472, 7473])


class Pyverbs(unittest.TestCase):
    def test_results_are_found_among_what_tests_print(self):
        self.assertEqual(pyverbs_suite.parse("\n".join([
            "test_a (tests.test_x.X.test_a)",
            "What it is about. ... ok",
            "test_b (tests.test_x.X.test_b) ... noise",
            "more noise",
            "ok",
            "test_c (tests.test_x.X.test_c) ... skipped 'No such device'",
            "test_d (tests.test_x.X.test_d) ... FAIL",
            "test_e (tests.test_x.X.test_e) ... Segmentation fault"])), {
                "tests.test_x.X.test_a": "ok",
                "tests.test_x.X.test_b": "ok",
                "tests.test_x.X.test_c": "skipped 'No such device'",
                "tests.test_x.X.test_d": "FAIL",
                "tests.test_x.X.test_e": "did not end"})

    def test_a_required_test_that_was_skipped_or_not_run_is_wrong(self):
        required = pyverbs_suite.names(pyverbs_suite.REQUIRED)
        results = dict.fromkeys(required, "ok")
        self.assertEqual(pyverbs_suite.wrong(results), [])
        results[required[0]] = "skipped 'why'"
        del results[required[1]]
        self.assertEqual(len(pyverbs_suite.wrong(results)), 2)

    def test_on_a_soft_device_a_failure_or_an_unlisted_skip_is_wrong(self):
        required = [*pyverbs_suite.names(pyverbs_suite.REQUIRED),
                    *pyverbs_suite.names(pyverbs_suite.REQUIRED_OF_SOFT)]
        skips = pyverbs_suite.names(pyverbs_suite.SKIPS_OF_SOFT)
        results = dict.fromkeys(required, "ok") | dict.fromkeys(skips, "skipped 'why'")
        self.assertEqual(pyverbs_suite.wrong(results, is_soft=True), [])
        unlisted = {"tests.test_x.X.test_a": "skipped 'why'", skips[0]: "ERROR"}
        more = {"tests.test_x.X.test_b": "ok", skips[1]: "ok"}
        said = "\n".join(pyverbs_suite.wrong(results | unlisted | more, is_soft=True))
        for test, result in unlisted.items():
            self.assertIn(f"{test}: {result}", said)
        self.assertEqual(len(said.splitlines()), 2)

    def test_each_test_is_in_one_list(self):
        listed = [test for path in (pyverbs_suite.REQUIRED, pyverbs_suite.REQUIRED_OF_SOFT,
                                    pyverbs_suite.SKIPS_OF_SOFT)
                  for test in pyverbs_suite.names(path)]
        self.assertEqual(len(listed), len(set(listed)))

    def test_the_runner_gives_tests_the_address_of_the_interface(self):
        with tempfile.TemporaryDirectory() as folder:
            tests = pathlib.Path(folder, "tests")
            tests.mkdir()
            for name, text in RUNNERS_TESTS.items():
                (tests / name).write_text(text)
            with conformance.Running(
                    [sys.executable, str(pyverbs_suite.RUNNER), "eth7", "--dev", "none", "-v"],
                    dict(os.environ), folder) as suite:
                self.assertEqual(suite.wait(time.monotonic() + 60), 0, suite.text())
                self.assertEqual(pyverbs_suite.parse(suite.text()),
                                 {"tests.test_x.X.test_combination": "ok"})

    def test_compressed_tests_are_unpacked(self):
        with tempfile.TemporaryDirectory() as source, tempfile.TemporaryDirectory() as copy:
            source, copy = pathlib.Path(source), pathlib.Path(copy, "tests")
            (source / "run_tests.py").write_text("plain")
            with gzip.open(source / "base.py.gz", "wt") as packed:
                packed.write("packed")
            self.assertEqual(pyverbs_suite.find_tests(source, None), source)
            pyverbs_suite.copy_tests(copy, source)
            self.assertEqual((copy / "run_tests.py").read_text(), "plain")
            self.assertEqual((copy / "base.py").read_text(), "packed")


if __name__ == "__main__":
    unittest.main()
