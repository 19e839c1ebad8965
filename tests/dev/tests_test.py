"""`./dev test`: what runs, here and on a device."""

import pathlib
import unittest

import fakes
from dev import tests

LISTING = ("cordma:coro / coro\ncordma:docs / documents\ncordma:rpc / rpc\ncordma:io / io\n"
           "softverbs:queue / queue\n")


class Tests(fakes.ProjectCase):
    def setUp(self):
        super().setUp()
        for room in ("coro", "rpc", "queue"):
            self.file(f"cordma/build/tests/test_{room}", executable=True)
        self.file("cordma/build/tests/test_io")  # The file is not executable.
        self.configured("build")
        self.processes.answers = {
            "--list": (0, LISTING),
            "--list-test-names-only": (0, ""),
            "test_rpc --list-test-names-only": (1, "a call\n"),
            "tally.py": (0, "3 passed, 0 failed, 0 skipped\n"),
        }
        self.rpc = str(self.root / "build/tests/test_rpc")
        self.run_device = str(self.root / "tests/support/run_device")

    def test_without_a_device_meson_runs_what_is_asked_for(self):
        status, out, _ = self.dev("test", "coro", "--repeat", "5")
        self.assertEqual((status, out), (0, "\n3 passed, 0 failed, 0 skipped\n"))
        call = self.processes.of("meson test")
        self.assertEqual(call.command,
                         ["meson", "test", "-C", "build", "--no-rebuild", "coro", "--repeat", "5"])
        logs = call.environment["CORDMA_TEST_LOG"]
        self.assertEqual(call.environment["SOFTVERBS_TEST_LOG"], logs)
        self.assertEqual(self.processes.of("tally.py").command, [
            "python3", "tests/support/tally.py", "--skips", "tests/skips.txt", "--meson",
            "build/meson-logs/testlog.json", logs])
        self.assertFalse(pathlib.Path(logs).exists())

    def test_a_plain_run_has_what_the_site_needs(self):
        self.dev("test")
        self.assertIn("tests/support/setup.sh docs", self.processes.lines())

    def test_the_log_of_an_earlier_run_is_not_counted(self):
        log = self.file("cordma/build/meson-logs/testlog.json", "{}")
        self.dev("test")
        self.assertFalse(log.exists())

    def test_a_failure_is_the_exit_status_and_the_tally_comes_before_that_of_meson(self):
        self.processes.answers["meson test"] = (9, "")
        self.assertEqual(self.dev("test")[0], 9)
        self.processes.answers["tally.py"] = (1, "")
        self.assertEqual(self.dev("test")[0], 1)

    def test_on_a_device_run_those_of_the_chosen_programs_that_have_device_cases(self):
        self.assertEqual(self.dev("test", "--device", "soft0", "rpc", "coro")[0], 0)
        self.assertEqual(self.processes.of("--list rpc coro").command[:5],
                         ["meson", "test", "-C", "build", "--no-rebuild"])
        call = self.processes.of("run_device")
        self.assertEqual(call.command, [self.run_device, "[device]~[.]", self.rpc])
        self.assertEqual(call.environment["CORDMA_TEST_DEVICE"], "soft0")
        self.assertNotIn("test_queue", " ".join(self.processes.lines()))

    def test_a_whole_run_on_a_real_device_takes_programs_with_softverbs_preloaded(self):
        self.file("infiniband/mlx5_0/")
        self.dev("test", "--device", "mlx5_0")
        self.assertEqual(self.processes.of("run_device").command,
                         [self.run_device, "[device]~[.]", self.rpc,
                          str(self.root / "tests/support/preloaded")])

    def test_a_run_of_one_room_or_on_soft0_or_with_a_sanitizer_takes_none_of_them(self):
        self.file("infiniband/mlx5_0/")
        self.configured("build-asan")
        self.dev("test", "--device", "mlx5_0", "--sanitize", "address")
        self.dev("test", "--device", "mlx5_0", "rpc")
        self.dev("test", "--device", "soft0")
        self.assertNotIn("preloaded", " ".join(self.processes.lines()))

    def test_a_guest_that_fails_leaves_a_log_which_counts(self):
        self.with_guest()
        left = {}

        def run(command, environment, **_):
            if "tally.py" in command[1]:
                folder = pathlib.Path(environment["CORDMA_TEST_LOG"])
                left.update({path.name: path.read_text() for path in folder.iterdir()})
                return 1
            return 125 if "run_device" in " ".join(command) else 0
        self.processes.run = run
        self.assertEqual(self.dev("test", "--device", "rxe0", "rpc")[0], 1)
        self.assertEqual(left, {"rxe0.guest.exit": "125\n"})

    def test_a_sanitizer_takes_its_own_build_and_a_larger_guest(self):
        self.configured("build-asan")
        self.assertEqual(self.dev("test", "--sanitize", "address")[0], 0)
        self.assertEqual(self.processes.lines()[:3], [
            "tests/support/setup.sh build", "tests/support/setup.sh build check",
            "ninja -C build-asan --quiet"])
        environment = self.processes.of("meson test -C build-asan").environment
        self.assertEqual(environment["TSAN_OPTIONS"], "halt_on_error=1:die_after_fork=0")
        self.assertEqual(environment["CORDMA_VM_MEMORY"], "4096")
        self.assertIn("--sanitized --meson build-asan/", self.processes.lines()[-1])

    def test_what_the_environment_says_of_sanitizers_stays(self):
        self.project = self.made(TSAN_OPTIONS="", CORDMA_VM_MEMORY="100")
        self.configured("build-tsan")
        self.dev("test", "--sanitize", "thread")
        environment = self.processes.of("meson test").environment
        self.assertEqual(environment["TSAN_OPTIONS"], "")
        self.assertEqual(environment["CORDMA_VM_MEMORY"], "100")

    def test_meson_lists_a_room_by_its_last_word(self):
        programs = list(tests.room_programs(self.root, "build-asan", " cordma:a / b c\n\n"))
        self.assertEqual(programs, [self.root / "build-asan/tests/test_c"])


if __name__ == "__main__":
    unittest.main()
