"""The table of collectives: times, ratios, and which bars are missed."""

import unittest

import fakes  # noqa: F401
from dev import collective_table, libraries


def figures(operation, size_bytes, ranks, **seconds):
    return [{"library": key, "operation": operation, "bytes": size_bytes, "ranks": ranks,
             "seconds": time, "rounds": [time]} for key, time in seconds.items()]


class CollectiveTable(unittest.TestCase):
    def table(self, *rows, absent=()):
        known = [libraries.Library(key, key, None, None)
                 for key in ("cordma", "gloo", "mpi", "raw")]
        return list(collective_table.lines(known, set(absent), [one for row in rows for one in row]))

    def row(self, *arguments, **seconds):
        return self.table(figures(*arguments, **seconds))[1].split()

    def test_times_are_microseconds_with_three_digits(self):
        self.assertEqual([collective_table.text_of_time(seconds)
                          for seconds in (1.234e-6, 12.34e-6, 1.2345e-3)], ["1.23", "12.3", "1234"])

    def test_small_operations_are_to_be_three_times_as_fast_as_gloo(self):
        self.assertEqual(self.row("broadcast", 64 << 10, 2, cordma=1e-6, gloo=2.5e-6)[-3:],
                         ["2.50", "<", "3"])
        self.assertEqual(self.row("broadcast", 64 << 10, 2, cordma=1e-6, gloo=3e-6)[-1], "3.00")

    def test_long_operations_are_to_be_half_as_fast_again_as_gloo(self):
        self.assertEqual(self.row("broadcast", 1 << 20, 2, cordma=1e-6, gloo=1.4e-6)[-3:],
                         ["1.40", "<", "1.5"])

    def test_long_reductions_and_gathers_are_to_have_most_of_raw_bandwidth(self):
        for operation, expected in (("all_reduce", "0.60 < 0.7"), ("all_gather", "0.60 < 0.7"),
                                    ("broadcast", "0.60")):
            row = " ".join(self.row(operation, 1 << 20, 8, cordma=1e-5, raw=6e-6))
            self.assertTrue(row.endswith(expected), row)

    def test_a_barrier_of_four_is_to_take_at_most_twice_its_messages(self):
        for ranks, expected in ((4, "0.40 < 0.5"), (8, "0.40")):
            row = " ".join(self.row("barrier", 0, ranks, cordma=1e-5, raw=4e-6))
            self.assertTrue(row.endswith(expected), row)

    def test_a_ratio_is_the_median_of_those_of_the_rounds(self):
        rows = figures("barrier", 0, 2, cordma=1e-6, gloo=3e-6)
        rows[0]["rounds"], rows[1]["rounds"] = [1e-6, 1e-5, 1e-5], [4e-6, 5e-5, 3e-5]
        self.assertEqual(self.table(rows)[1].split()[-1], "4.00")

    def test_a_faster_open_mpi_is_told_with_how_much(self):
        self.assertEqual(self.row("broadcast", 8, 2, cordma=3e-6, mpi=2e-6)[-1], "1.50")
        self.assertEqual(self.row("broadcast", 8, 2, cordma=2e-6, mpi=3e-6)[-1], "3.00")

    def test_what_is_not_installed_is_absent_and_what_it_does_not_have_is_empty(self):
        self.assertEqual(self.table(figures("barrier", 0, 2, cordma=1e-6), absent={"gloo"})[1].split(),
                         ["barrier", "-", "2", "1.00", "absent"])

    def test_the_rows_that_reach_a_bar_are_counted(self):
        said = self.table(figures("broadcast", 8, 2, cordma=1e-6, gloo=4e-6),
                          figures("broadcast", 64, 2, cordma=1e-6, gloo=2e-6),
                          figures("broadcast", 512, 2, cordma=1e-6))
        self.assertIn("Gloo / cordma, up to 64 KiB: at least 3 in 1 of 2 rows", said)


if __name__ == "__main__":
    unittest.main()
