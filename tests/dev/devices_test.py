"""Devices: which there are, which is chosen, and where a command runs."""

import unittest

import fakes
from dev import devices, errors


class Devices(fakes.ProjectCase):
    def test_without_devices_and_guest_soft0_is_all_there_is(self):
        self.assertEqual(devices.available(self.project), ["soft0"])
        self.project.infiniband = self.folder / "none"
        self.assertEqual(devices.best(self.project), "soft0")

    def test_real_devices_come_first_and_the_best_is_one(self):
        self.file("infiniband/mlx5_1/")
        self.file("infiniband/mlx5_0/")
        self.assertEqual(devices.available(self.project), ["mlx5_0", "mlx5_1", "soft0"])
        self.assertEqual(devices.best(self.project), "mlx5_0")

    def test_the_guest_has_rxe0_where_debian_makes_it(self):
        self.with_guest()
        self.assertEqual(devices.available(self.project), ["soft0", "rxe0"])
        self.assertFalse(devices.is_here(self.project, "rxe0"))
        (self.folder / "bin/apt-get").unlink()
        self.assertEqual(devices.available(self.project), ["soft0"])

    def test_this_machines_rxe0_needs_no_guest(self):
        self.with_guest()
        self.file("infiniband/rxe0/")
        self.assertEqual(devices.available(self.project), ["rxe0", "soft0"])
        self.assertTrue(devices.is_here(self.project, "rxe0"))

    def test_another_device_is_refused_with_a_list(self):
        self.with_guest()
        with self.assertRaises(errors.Failure) as caught:
            devices.setup_for(self.project, "mlx9_9")
        self.assertEqual(str(caught.exception), "no device 'mlx9_9' here; there is: soft0 rxe0")
        self.assertEqual(self.processes.calls, [])

    def test_only_a_device_of_the_guest_needs_its_packages(self):
        self.with_guest()
        for device in ("", "soft0", "rxe0"):
            devices.setup_for(self.project, device)
        self.assertEqual(self.processes.lines(), [
            "tests/support/setup.sh build", "tests/support/setup.sh build",
            "tests/support/setup.sh build guest"])

    def test_a_command_runs_here_where_its_device_is_here(self):
        self.processes.answers = {"program": (7, "")}
        status = devices.run_on(self.project, "soft0", "/logs", ["program", "x"])
        call = self.processes.of("program")
        self.assertEqual((status, call.command), (7, ["program", "x"]))
        self.assertEqual(call.environment["CORDMA_TEST_DEVICE"], "soft0")

    def test_a_command_for_rxe0_runs_in_the_guest_which_shares_a_folder(self):
        self.with_guest()
        devices.run_on(self.project, "rxe0", "/logs", ["program", "x"])
        call = self.processes.of("program")
        self.assertEqual(call.command, [str(self.root / "tests/vm/guest"), "run", "--timeout",
                                        "1800", "--share", "/logs", "--", "program", "x"])
        self.assertEqual(call.environment["CORDMA_TEST_DEVICE"], "rxe0")

    def test_the_guests_time_is_of_the_environment(self):
        self.with_guest()
        self.project = self.made(CORDMA_VM_TIMEOUT="60")
        devices.run_on(self.project, "rxe0", "/logs", ["program"])
        self.assertIn("--timeout 60 ", self.processes.lines()[0])


if __name__ == "__main__":
    unittest.main()
