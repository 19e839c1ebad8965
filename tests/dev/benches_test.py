"""`./dev bench`: which programs run, where, and where their figures go."""

import pathlib
import unittest

import fakes
from dev import benches


class Benches(fakes.ProjectCase):
    def setUp(self):
        super().setUp()
        self.configured("build")
        self.bench = self.root / "build/bench"
        for name in ("bench_transfer", "bench_rpc", "bench_memory"):
            self.file(f"cordma/build/bench/{name}", executable=True)
        self.file("cordma/build/bench/bench_rpc.p/")
        self.file("cordma/build/subprojects/softverbs/bench/bench_wire", executable=True)
        self.processes.answers = {"--needs-device": (0, ""),
                                  "bench_memory --needs-device": (1, "")}
        self.processes.run = self.run_and_write
        self.figures = []

    def run_and_write(self, command, environment, **_):
        """Leaves the file that --json names, as a benchmark does."""
        answered = fakes.FakeProcesses.run(self.processes, command, environment)
        if "gather.py" in command[0]:
            self.figures = [pathlib.Path(path).name for path in command if "/bench_" in path]
        elif "--json" in command:
            if "--callgrind" in command:
                out = pathlib.Path(command[command.index("--callgrind") + 1])
                self.assertFalse(out.exists(), "left by the program before")
                out.write_text("")
            pathlib.Path(command[command.index("--json") + 1]).write_text("[]")
        return answered

    def lines(self, key):
        return [line for line in self.processes.lines() if key in line]

    def test_a_name_may_be_a_pattern_and_softverbs_has_its_own(self):
        self.assertEqual([benches.program_name(path) for path in benches.programs(self.root, "")],
                         ["memory", "rpc", "transfer"])
        self.assertEqual(benches.programs(self.root, "r*"), [str(self.bench / "bench_rpc")])
        self.assertEqual([benches.program_name(path)
                          for path in benches.programs(self.root, "softverbs")], ["wire"])

    def test_an_unknown_name_is_refused_with_a_list(self):
        self.assertEqual(self.dev("bench", "speed"), (1, "", (
            "dev: no benchmark 'speed'; there is: softverbs collectives memory rpc transfer\n")))

    def test_a_program_that_needs_a_device_is_told_which(self):
        self.file("infiniband/mlx5_0/")
        self.assertEqual(self.dev("bench"), (0, "\n", ""))
        for name, device in (("rpc", "mlx5_0"), ("memory", None)):
            call = self.processes.of(f"bench_{name} --json")
            self.assertEqual(call.environment.get("CORDMA_TEST_DEVICE"), device)

    def test_the_figures_of_all_go_into_a_table_and_a_file(self):
        self.dev("bench")
        self.assertTrue(self.lines("gather.py")[0].startswith(
            f"{self.root}/bench/support/gather.py --table --to {self.root}/build/bench.json "))
        self.assertEqual(self.figures,
                         ["bench_memory.json", "bench_rpc.json", "bench_transfer.json"])

    def test_the_figures_of_one_go_to_a_file_beside_the_caller(self):
        self.assertEqual(self.dev("bench", "rpc", "--json", "f.json"), (0, "", ""))
        self.assertTrue(self.lines("gather.py")[0].startswith(
            f"{self.root}/bench/support/gather.py --to /started/in/f.json "))
        self.dev("bench", "rpc", "--json", "/elsewhere/f.json")
        self.assertIn(" --to /elsewhere/f.json ", self.lines("gather.py")[1])

    def test_softverbs_brings_its_device_and_its_figures_are_kept_when_asked_for(self):
        self.assertEqual(self.dev("bench", "softverbs")[0], 0)
        program = f"{self.root}/build/subprojects/softverbs/bench/bench_wire"
        self.assertEqual(self.lines("bench_wire"), [program])
        self.dev("bench", "softverbs", "--json", "f")
        self.assertEqual(self.figures, ["bench_wire.json"])

    def test_a_program_that_fails_stops_no_other_and_is_the_exit_status(self):
        self.processes.answers["bench_memory --json"] = (139, "")
        self.assertEqual(self.dev("bench")[0], 139)
        self.assertEqual(len(self.lines(" --json ")), 3)

    def test_callgrind_counts_what_one_thread_does_on_soft0(self):
        self.file("infiniband/mlx5_0/")
        self.assertEqual(self.dev("bench", "--callgrind")[0], 0)
        rpc, transfer = (self.processes.calls[self.processes.lines().index(line)]
                         for line in self.lines("valgrind"))
        self.assertEqual(rpc.command[:4], ["valgrind", "--tool=callgrind", "--collect-atstart=no",
                                           rpc.command[3]])
        self.assertIn("bench_rpc rpc/echo/thread --callgrind ", " ".join(rpc.command))
        self.assertIn("bench_transfer --callgrind ", " ".join(transfer.command))
        self.assertEqual(rpc.environment["CORDMA_TEST_DEVICE"], "soft0")
        self.assertIn(f"--to {self.root}/build/bench-instructions.json ",
                      self.lines("gather.py")[0])

    def test_callgrind_counts_on_no_other_device(self):
        self.assertEqual(self.dev("bench", "--callgrind", "--device", "mlx5_0"), (1, "", (
            "dev: --callgrind counts on soft0 only: valgrind knows no driver's calls\n")))
        self.assertEqual(self.processes.calls, [])

    def test_a_benchmark_that_is_not_counted_is_refused_with_a_list(self):
        self.assertEqual(self.dev("bench", "--callgrind", "memory"), (1, "", (
            "dev: nothing of 'memory' is counted: asio, coro, rpc, stream, transfer are\n")))


if __name__ == "__main__":
    unittest.main()
