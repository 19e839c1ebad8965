"""Ranks: real processes that take orders, answer, or end."""

import os
import pathlib
import sys
import tempfile
import unittest

import fakes  # noqa: F401
from dev import libraries, processes, project, ranks

# A rank that needs as many seconds for one operation as its rank says, and knows only `work`.
RANK = """import os, socket, sys
if "BROKEN" in os.environ: sys.exit(3)
orders = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
orders.connect(os.environ["COLLECTIVES_ORDERS"])
orders.send(os.environ["RANK"].encode())
while order := orders.recv(100).decode():
    operation, size_bytes, count = order.split()
    if operation == "die" and os.environ["RANK"] == "1": sys.exit(3)
    if operation == "die": continue
    known = operation == "work"
    orders.send(str(int(os.environ["RANK"]) * int(count)).encode() if known else b"-")
"""


class Ranks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.project = project.Project(self.folder, dict(os.environ),
                                       processes.Processes(self.folder))

    def started(self, size=3, **variables):
        program = pathlib.Path(sys.executable)
        library = libraries.Library("key", "name", program,
                                    libraries.one_a_rank(program, "-c", RANK.replace("{", "{{")
                                                         .replace("}", "}}")), variables)
        ours = ranks.Ranks(self.project, library, size)
        self.addCleanup(ours.__exit__, None)
        ours.start(self.folder)
        return ours

    def test_the_time_of_one_operation_on_the_slowest_rank_counts(self):
        self.assertEqual(self.started().order("work", 8, 5), 2.0)

    def test_an_operation_that_ranks_do_not_know_has_no_time_and_loses_nobody(self):
        ours = self.started()
        self.assertIsNone(ours.order("play", 8, 1))
        self.assertEqual(ours.order("work", 8, 1), 2.0)
        self.assertEqual(ours.lost_at, "")

    def test_ranks_of_which_one_dies_are_lost_with_the_order(self):
        ours = self.started()
        self.assertIsNone(ours.order("die", 64, 9))
        self.assertEqual(ours.lost_at, "die 64 9")
        self.assertIsNone(ours.order("work", 8, 1))

    def test_ranks_that_do_not_start_are_lost(self):
        self.assertEqual(self.started(BROKEN="1").lost_at, "start")

    def test_ranks_end_with_their_context(self):
        ours = self.started()
        ours.__exit__(None)
        self.assertEqual([child.returncode for child in ours._children], [0, 0, 0])


if __name__ == "__main__":
    unittest.main()
