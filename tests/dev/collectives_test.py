"""`./dev bench collectives`: rounds, and what becomes of the figures. The ranks are fakes."""

import json
import unittest
from unittest import mock

import fakes
from dev import collectives, libraries

ALL = ("group", "gloo", "mpi", "raw")


class FakeRanks:
    """Ranks that need one millisecond for everything, or what `seconds` says of an operation."""

    seconds, orders, lost = {}, [], set()

    def __init__(self, _, library, size):
        self.library, self.size, self.lost_at = library, size, ""

    def start(self, _):
        self.lost_at = "start" if self.library.key in self.lost else ""

    def order(self, name, size_bytes, count):
        self.orders.append((self.library.key, name, size_bytes, count))
        return None if self.lost_at else self.seconds.get((self.library.key, name), 1e-3)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Collectives(fakes.ProjectCase):
    def setUp(self):
        super().setUp()
        self.configured("build")
        for name in ALL:
            self.file(f"cordma/build/bench/collectives/{name}_collectives", executable=True)
        self.file("bin/mpirun", executable=True)
        FakeRanks.seconds, FakeRanks.orders, FakeRanks.lost = {}, [], set()
        patch = mock.patch.object(collectives.ranks, "Ranks", FakeRanks)
        patch.start()
        self.addCleanup(patch.stop)

    def figures(self):
        return json.loads((self.root / "build/bench-collectives.json").read_text())

    def ranks_of(self, *keys, size=4):
        known = libraries.all_of(self.project, "soft0")
        return [FakeRanks(None, one, size) for one in known if one.key in keys]

    def test_a_rank_has_at_least_a_block_of_eight_bytes(self):
        cases = list(collectives.cases(8))
        self.assertEqual(cases[0], ("barrier", 0))
        self.assertIn(("all_reduce", 8), cases)
        self.assertNotIn(("all_gather", 8), cases)
        self.assertIn(("all_gather", 64), cases)
        self.assertIn(("all_to_all", 64 << 20), cases)

    def test_a_round_takes_its_time_whatever_the_operation_takes(self):
        one, = self.ranks_of("cordma")
        for seconds, count in ((1e-6, 20000), (1e-3, 20), (1.0, 1)):
            FakeRanks.seconds = {("cordma", "barrier"): seconds}
            self.assertEqual(collectives.count_of_round(one, "barrier", 0), count)

    def test_rounds_of_all_libraries_alternate(self):
        collectives.measure_case(self.ranks_of("cordma", "raw"), "barrier", 0)
        rounds = [key for key, _, _, count in FakeRanks.orders if count == 20]
        self.assertEqual(rounds[-2 * collectives.ROUNDS:], ["cordma", "raw"] * collectives.ROUNDS)

    def test_the_fastest_algorithm_counts(self):
        FakeRanks.seconds = {("gloo", "all_reduce:bcube"): 1e-4}
        figure, = collectives.measure_case(self.ranks_of("gloo"), "all_reduce", 64)
        self.assertEqual((figure["algorithm"], figure["operation"], figure["seconds"]),
                         ("all_reduce:bcube", "all_reduce", 1e-4))

    def test_a_figure_is_the_median_of_its_rounds(self):
        one, = self.ranks_of("cordma")
        taken = iter([1.0, 9.0, 2.0, 1.0, 3.0, 4.0])
        one.order = lambda *_: next(taken)
        figure, = collectives.measure_case([one], "broadcast", 64)
        self.assertEqual((figure["seconds"], figure["rounds"]), (3.0, [9.0, 2.0, 1.0, 3.0, 4.0]))

    def test_all_figures_go_into_a_table_a_file_and_a_plot(self):
        status, said, _ = self.dev("bench", "collectives", "--json", str(self.folder / "f.json"))
        self.assertEqual(status, 0)
        self.assertIn("bound / cordma, barrier of 4: at least 0.5 in 1 of 1 rows", said)
        self.assertEqual({figure["ranks"] for figure in self.figures()}, {2, 4, 8})
        self.assertEqual(json.loads((self.folder / "f.json").read_text()), self.figures())
        self.assertIn("all_reduce, 8 ranks",
                      (self.root / "build/bench-collectives.svg").read_text())

    def test_a_library_that_is_not_installed_is_absent_and_fails_nothing(self):
        (self.root / "build/bench/collectives/gloo_collectives").unlink()
        status, said, _ = self.dev("bench", "collectives")
        self.assertEqual(status, 0)
        self.assertIn("absent", said)
        self.assertNotIn("gloo", {figure["library"] for figure in self.figures()})

    def test_ranks_that_are_lost_are_named_and_stop_no_other(self):
        FakeRanks.lost = {"mpi"}
        status, _, errors = self.dev("bench", "collectives")
        self.assertEqual(status, 1)
        self.assertIn("dev: Open MPI, 8 ranks: lost at 'start'\n", errors)
        self.assertIn("gloo", {figure["library"] for figure in self.figures()})


if __name__ == "__main__":
    unittest.main()
