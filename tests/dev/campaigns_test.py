"""`./dev soak`: the campaigns there are, what runs, and what is recorded."""

import datetime
import pathlib
import unittest

import fakes
from dev import campaigns

TAGS = "All available tags:\n   1  [.]\n   1  [soak-rpc][.]\n   1  [soak-leftovers]\n"
TODAY = datetime.datetime.now(datetime.timezone.utc).date()


class CampaignCase(fakes.ProjectCase):
    def setUp(self):
        super().setUp()
        self.configured("build")
        self.configured("build-asan")
        self.file("cordma/docs/testing.md", "Campaigns\n")
        self.file("cordma/build/tests/test_rpc", executable=True)
        self.file("cordma/build/tests/test_rpc.p/")
        self.file("cordma/build/subprojects/softverbs/tests/campaign/test_hosts", executable=True)
        self.rpc = f"{self.root}/build/tests/test_rpc"
        self.processes.answers = {
            "test_rpc --list-tags *": (0, TAGS),
            "test_hosts --list-tags *": (0, " 1 [soak-hosts]\n"),
            "test_rpc --list-test-names-only [soak-rpc]": (1, "calls\n"),
            "test_hosts --list-test-names-only [soak-hosts]": (1, "hosts\n"),
            "[soak-hosts][device]": (0, ""),
            "tally.py": (0, "skipped: x\n1 passed, 0 failed, 1 skipped\n"),
        }
        self.logs_of_run()

    def logs_of_run(self):
        """A campaign leaves its output, and counts."""
        def run(command, environment, **_):
            status = fakes.FakeProcesses.run(self.processes, command, environment)
            if "run_device" in " ".join(command):
                logs = pathlib.Path(environment["CORDMA_TEST_LOG"])
                (logs / "native.test.1.tsv").write_text("started\ta\ncount\t10\ncount\t5\n")
                (logs / "native.test.out").write_text("")
            return status
        self.processes.run = run

    def recorded(self):
        return (self.root / "docs/testing.md").read_text().removeprefix("Campaigns\n")


class Campaigns(CampaignCase):
    def test_without_a_name_all_campaigns_are_listed(self):
        self.assertEqual(self.dev("soak"), (0, (
            "hosts\nleftovers\nrpc\nfuzz\nfuzz-agent\nfuzz-cm\nfuzz-group\nfuzz-handshake\n"
            "fuzz-multicast\nfuzz-rdmacm\nfuzz-rpc\nfuzz-rpc-frames\nfuzz-stream\n"),
            ""))

    def test_an_unknown_name_is_refused_with_a_list(self):
        status, _, err = self.dev("soak", "speed")
        self.assertEqual((status, err),
                         (1, "dev: no campaign 'speed'; there is: hosts leftovers rpc\n"))

    def test_a_campaign_with_device_cases_runs_on_the_best_device(self):
        self.project = self.made(CORDMA_SEED="5")
        self.file("infiniband/mlx5_0/")
        self.processes.answers["[soak-rpc][device]"] = (1, "calls\n")
        status, out, _ = self.dev("soak", "rpc")
        self.assertEqual((status, out), (0, (
            "Campaign rpc on mlx5_0, CORDMA_SEED=5\nskipped: x\n1 passed, 0 failed, 1 skipped\n")))
        call = self.processes.of("run_device")
        self.assertEqual(call.command,
                         [f"{self.root}/tests/support/run_device", "[soak-rpc]", self.rpc])
        wanted = {"CORDMA_TEST_DEVICE": "mlx5_0", "CORDMA_TEST_TIMEOUT": "0", "CORDMA_SEED": "5",
                  "SOFTVERBS_SEED": "5", "CORDMA_VM_TIMEOUT": "86400",
                  "SOFTVERBS_SOAK_DIVISOR": "", "SOFTVERBS_SOAK_COUNT": ""}
        self.assertLessEqual(wanted.items(), call.environment.items())
        self.assertNotIn("CORDMA_SOAK_DIVISOR", call.environment)

    def test_a_whole_campaign_is_recorded(self):
        self.project = self.made(CORDMA_SEED="5")
        self.dev("soak", "hosts")
        self.assertEqual(self.recorded(), f"| {TODAY} | hosts | native | 5 | 10 5 | "
                                          "1 passed, 0 failed, 1 skipped |\n")

    def test_a_campaign_that_is_cut_short_is_not_recorded(self):
        for variable in ("CORDMA_SOAK_COUNT", "CORDMA_SOAK_DIVISOR"):
            self.project = self.made(**{variable: "7"})
            self.assertEqual(self.dev("soak", "hosts")[0], 0)
            self.dev("soak", "fuzz")
        self.assertEqual(self.recorded(), "")

    def test_without_device_cases_a_campaign_runs_here_whatever_device_is_named(self):
        self.with_guest()
        self.dev("soak", "hosts", "--device", "rxe0")
        call = self.processes.of("run_device")
        self.assertEqual(call.environment["CORDMA_TEST_DEVICE"], "native")
        self.assertNotIn("guest run", self.processes.lines()[-1])

    def test_on_rxe0_a_campaign_counts_a_hundredth_and_is_recorded(self):
        self.with_guest()
        self.processes.answers["[soak-rpc][device]"] = (1, "calls\n")
        self.dev("soak", "rpc", "--device", "rxe0")
        call = self.processes.of("run_device")
        self.assertIn("guest run --timeout 86400 --share ", " ".join(call.command))
        self.assertEqual(call.environment["CORDMA_SOAK_DIVISOR"], "100")
        self.assertEqual(call.environment["SOFTVERBS_SOAK_DIVISOR"], "100")
        self.assertIn("| rpc | rxe0 |", self.recorded())

    def test_a_failure_is_the_exit_status(self):
        self.processes.answers["run_device"] = (1, "")
        self.assertEqual(self.dev("soak", "hosts")[0], 1)

    def test_a_campaign_that_leaves_nothing_fails_and_is_not_recorded(self):
        del self.processes.run
        status, _, err = self.dev("soak", "hosts")
        self.assertEqual((status, err), (1, "dev: the campaign's programs left no output\n"))
        self.assertEqual(self.recorded(), "")

    def test_a_seed_is_a_number_of_32_bits(self):
        self.assertLess(int(campaigns.seed(self.project)), 2**32)


class Fuzzers(CampaignCase):
    def setUp(self):
        super().setUp()
        self.project = self.made(CORDMA_SEED="5")

    def test_a_fuzzer_runs_with_the_address_sanitizer_and_is_recorded(self):
        status, out, _ = self.dev("soak", "fuzz-rpc")
        self.assertEqual((status, out),
                         (0, "Campaign fuzz-rpc, CORDMA_SEED=5, 10000000 executions\n"))
        call = self.processes.of("rpc_fuzz")
        self.assertEqual(call.command, ["build-asan/tests/fuzz/rpc_fuzz", "-runs=10000000",
                                        "-seed=5", "-max_len=256", "-entropic=0"])
        self.assertEqual(call.environment["CORDMA_TEST_DEVICE"], "soft0")
        self.assertEqual(self.recorded(),
                         f"| {TODAY} | fuzz-rpc | native | 5 | 10000000 | passed |\n")

    def test_a_fuzzer_that_finds_something_is_the_exit_status_and_not_recorded(self):
        self.processes.answers["softverbs_fuzz"] = (77, "")
        self.assertEqual(self.dev("soak", "fuzz")[0], 77)
        self.assertEqual(self.recorded(), "")

    def test_the_environment_says_how_many_executions(self):
        for variables, wanted in (({"CORDMA_SOAK_DIVISOR": "3"}, "3333333"),
                                  ({"CORDMA_SOAK_COUNT": "9", "CORDMA_SOAK_DIVISOR": "3"}, "9")):
            self.assertEqual(str(campaigns.fuzz_executions(self.made(**variables))), wanted)

    def test_a_divisor_that_is_no_number_is_refused(self):
        for text, wanted in (("x", "CORDMA_SOAK_DIVISOR is no number: 'x'"),
                             ("0", "CORDMA_SOAK_DIVISOR is 0")):
            self.project = self.made(CORDMA_SOAK_DIVISOR=text)
            self.assertEqual(self.dev("soak", "fuzz"), (1, "", f"dev: {wanted}\n"))


if __name__ == "__main__":
    unittest.main()
