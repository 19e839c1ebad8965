"""The commands that are no more than a few calls, messages, and exit statuses."""

import unittest

import fakes


class Commands(fakes.ProjectCase):
    def test_an_unknown_command_is_a_usage_error(self):
        self.assertEqual(self.dev("frobnicate"), (2, "", (
            "dev: no command 'frobnicate'\ndev: './dev help' lists the commands.\n")))

    def test_a_missing_device_is_a_failure(self):
        self.assertEqual(self.dev("demo", "--device", "x"),
                         (1, "", "dev: no device 'x' here; there is: soft0\n"))

    def test_setup_that_fails_passes_its_exit_status_on(self):
        self.processes.answers = {"setup.sh": (100, "")}
        for command in (["demo"], ["test"], ["bench"], ["soak"], ["check"], ["reference"],
                        ["docs"], ["sim"]):
            self.assertEqual(self.dev(*command), (100, "", ""))

    def test_the_demo_takes_the_place_of_dev(self):
        self.configured("build")
        self.dev("demo")
        self.assertEqual(self.processes.lines(), [
            "tests/support/setup.sh build", "ninja -C build --quiet demo",
            f"{self.root}/examples/demo {self.root}/build soft0 tcp"])
        self.assertEqual(self.processes.calls[-1].how, f"replace in {self.root}")

    def test_the_demo_on_rxe0_runs_in_the_guest(self):
        self.with_guest()
        self.dev("demo", "--device", "rxe0")
        self.assertEqual(self.processes.lines()[-1], (
            f"{self.root}/tests/vm/guest run -- {self.root}/examples/demo {self.root}/build rxe0 "
            "tcp"))

    def test_the_demo_is_told_how_to_connect(self):
        self.dev("demo", "--connect", "psk")
        self.assertEqual(self.processes.lines()[-1],
                         f"{self.root}/examples/demo {self.root}/build soft0 psk")

    def test_the_demo_of_a_group_is_told_how_many_ranks(self):
        self.dev("demo", "--group", "4")
        self.assertEqual(self.processes.lines()[-1],
                         f"{self.root}/examples/demo_group {self.root}/build soft0 4")

    def test_the_demo_knows_no_other_way_to_connect(self):
        self.assertEqual(self.dev("demo", "--connect", "pigeon"), (2, "", (
            "dev: no way 'pigeon' to connect; there is: tcp, unix, rdma_cm, raw, psk, certificate\n"
            "dev: './dev help' lists the commands.\n")))
        self.assertEqual(self.processes.calls, [])

    def test_the_simulation_plays_the_seeds_that_ever_failed_before_new_ones(self):
        self.configured("build")
        self.dev("sim", "standard", "--minutes", "3")
        program = "tests/sim/scenarios/cordma-sim-scenarios"
        self.assertEqual(self.processes.lines(), [
            "tests/support/setup.sh build", f"ninja -C build --quiet {program}",
            f"{self.root}/build/{program} --known {self.root}/tests/sim/seeds.txt standard "
            "--minutes 3"])
        self.assertEqual(self.processes.calls[-1].how, "replace in /started/in")

    def test_the_simulation_plays_one_seed_alone(self):
        for alone in (["--seed", "7"], ["--seed=7"], ["--help"]):
            self.dev("sim", *alone)
            self.assertEqual(self.processes.lines()[-1].partition("-scenarios ")[2],
                             " ".join(alone))

    def test_vm_runs_a_command_where_dev_was_started(self):
        self.with_guest()
        self.dev("vm", "--", "ls", "-l")
        self.assertEqual(self.processes.lines(), [
            "tests/support/setup.sh build guest", f"{self.root}/tests/vm/guest run -- ls -l"])
        self.assertEqual(self.processes.calls[-1].how, "replace in /started/in")

    def test_vm_needs_a_guest(self):
        self.assertEqual(self.dev("vm", "--", "ls"), (1, "", "dev: no tests/vm/guest here\n"))

    def test_check_hands_its_arguments_on_and_its_exit_status_back(self):
        self.configured("build-check")
        self.processes.answers = {"support/check": (1, "")}
        self.assertEqual(self.dev("check", "--fix")[0], 1)
        self.assertEqual([line.split(" tests/rpc")[0] for line in self.processes.lines()], [
            "tests/support/setup.sh build check", "ninja -C build-check --quiet",
            "tests/support/check --fix"])

    def test_packages_are_built_and_tried_by_one_script(self):
        for given, step in ((["package"], "build"), (["package", "try"], "try")):
            self.assertEqual(self.dev(*given)[0], 0)
            self.assertEqual(self.processes.lines()[-2:], [
                "tests/support/setup.sh build check docs package", f"packaging/packages {step}"])

    def test_the_reference_goes_to_the_build_folder_and_its_exit_status_back(self):
        self.processes.answers = {"reference.py": (1, "")}
        self.assertEqual(self.dev("reference")[0], 1)
        self.assertEqual(self.processes.lines(), [
            "tests/support/setup.sh build", f"tests/docs/reference.py {self.root} build/reference"])

    def test_the_site_is_built_of_the_reference_and_the_man_pages_beside_it(self):
        self.file("cordma/docs/man/x.1.md")
        self.processes.answers = {"tools/dev/site": (1, "")}
        self.assertEqual(self.dev("docs")[0], 1)
        self.assertEqual(self.processes.lines(), [
            "tests/support/setup.sh docs", f"tests/docs/reference.py {self.root} build/reference",
            f"tools/dev/man.py {self.root}/docs/man/x.1.md build/man/x.1",
            f"/usr/bin/python3 tools/dev/site {self.root} build/site build/reference/xml"])

    def test_a_reference_or_a_man_page_that_fails_ends_the_building_of_the_site(self):
        self.file("cordma/docs/man/x.1.md")
        for failing in ("reference.py", "man.py"):
            self.processes.answers, self.processes.calls = {failing: (1, "")}, []
            self.assertEqual(self.dev("docs")[0], 1)
            self.assertIn(failing, self.processes.lines()[-1])

    def test_builds_in_several_folders_share_a_cache(self):
        environment = self.made().environment
        self.assertEqual(environment["CCACHE_BASEDIR"], str(self.root))
        self.assertEqual(environment["CCACHE_NOHASHDIR"], "1")
        self.assertEqual(self.made(CCACHE_BASEDIR="").environment["CCACHE_BASEDIR"], "")


if __name__ == "__main__":
    unittest.main()
