"""Command lines, parsed."""

import unittest

import fakes  # noqa: F401  (finds the package)
from dev import arguments, errors


class Arguments(unittest.TestCase):
    def refused(self, parse, given, message):
        with self.assertRaises(errors.UsageError) as caught:
            parse(given)
        self.assertEqual(str(caught.exception), message)

    def test_an_option_is_found_in_either_form_and_its_last_value_counts(self):
        for given in (["--device", "a"], ["--device=a"], ["--device", "b", "--device=a"]):
            self.assertEqual(arguments.take("--device", [*given, "rest"]), ("a", ["rest"]))
        self.assertEqual(arguments.take("--device", ["x", "y"]), ("", ["x", "y"]))

    def test_an_option_without_a_value_is_refused(self):
        self.refused(arguments.test, ["coro", "--device"], "--device needs a value")
        self.refused(arguments.test, ["--sanitize"], "--sanitize needs a value")
        self.refused(arguments.bench, ["--json"], "--json needs a file")

    def test_test_hands_all_other_arguments_to_meson(self):
        parsed = arguments.test(["coro", "--repeat", "5", "--device", "soft0", "--sanitize=thread"])
        self.assertEqual(parsed,
                         arguments.TestArguments("soft0", "thread", ["coro", "--repeat", "5"]))

    def test_demo_takes_a_device_and_a_way(self):
        self.assertEqual(arguments.demo([]), arguments.DemoArguments("", "tcp"))
        self.assertEqual(arguments.demo(["--device", "rxe0", "--connect=raw"]),
                         arguments.DemoArguments("rxe0", "raw"))
        self.refused(arguments.demo, ["a", "b"],
                     "demo takes only --device, --connect and --group: 'a'")

    def test_demo_takes_a_number_of_ranks(self):
        self.assertEqual(arguments.demo(["--group", "4"]), arguments.DemoArguments("", "tcp", 4))
        for given in ("0", "65", "four", "-1", "1.5", "²"):
            self.refused(arguments.demo, ["--group", given],
                         f"--group needs a number of ranks from 1 to 64: '{given}'")
        self.refused(arguments.demo, ["--group", "4", "--connect", "tcp"],
                     "--connect is for two processes, --group for the ranks of a group")

    def test_bench_takes_a_name_a_file_and_what_to_measure(self):
        self.assertEqual(arguments.bench([]), arguments.BenchArguments("", "", "", False))
        self.assertEqual(arguments.bench(["rpc", "--json", "f", "--callgrind", "--device=soft0"]),
                         arguments.BenchArguments("soft0", "rpc", "f", True))
        self.refused(arguments.bench, ["--json=f"], "bench has no option '--json=f'")

    def test_soak_takes_one_campaign(self):
        self.assertEqual(arguments.soak([]), arguments.SoakArguments("", None))
        self.assertEqual(arguments.soak(["rpc"]), arguments.SoakArguments("", "rpc"))
        self.refused(arguments.soak, ["a", "b"], "soak takes one campaign: 'b'")

    def test_some_commands_take_nothing(self):
        arguments.none("docs", [])
        self.refused(lambda given: arguments.none("docs", given), ["a"], "docs takes no argument 'a'")

    def test_package_builds_or_tries(self):
        self.assertEqual(arguments.package([]), "build")
        self.assertEqual(arguments.package(["try"]), "try")
        self.refused(arguments.package, ["try", "a"], "package takes no argument but `try`: 'a'")

    def test_vm_takes_a_command_behind_two_dashes(self):
        self.assertEqual(arguments.vm(["--", "ls", "--", "-l"]), ["ls", "--", "-l"])
        for given in ([], ["ls"], ["--"]):
            self.refused(arguments.vm, given, "write: ./dev vm -- CMD")


if __name__ == "__main__":
    unittest.main()
