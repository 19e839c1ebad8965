"""How build folders are configured and built, and with which compiler."""

import unittest

import fakes
from dev import builds, errors


class Builds(fakes.ProjectCase):
    def test_a_folder_is_configured_once(self):
        builds.build_plain(self.project)
        self.configured("build")
        builds.build_plain(self.project, ["demo"])
        self.assertEqual(self.processes.lines(), [
            "meson setup build", "ninja -C build --quiet", "ninja -C build --quiet demo"])

    def test_meson_prints_to_stderr_and_ninja_says_nothing_without_work(self):
        builds.build_plain(self.project)
        self.assertEqual([call.how for call in self.processes.calls], ["stderr", "run_without"])

    def test_with_werror_a_new_folder_is_strict(self):
        builds.configure(self.made(CORDMA_WERROR="1"), "build", ["-Dx=y"])
        self.assertEqual(self.processes.lines(), ["meson setup build -Dx=y --werror"])

    def test_with_werror_an_old_folder_becomes_strict_once(self):
        strict = self.made(CORDMA_WERROR="1")
        self.configured("build")
        builds.configure(strict, "build")
        self.file("cordma/build/meson-private/cmd_line.txt", "[options]\nwerror = True\n")
        builds.configure(strict, "build")
        self.assertEqual(self.processes.lines(), ["meson configure build -Dwerror=true"])

    def test_a_build_that_fails_ends_with_the_exit_status_of_its_program(self):
        for failing, status in (("meson", 3), ("ninja", 130)):
            self.processes.answers = {failing: (status, "")}
            with self.assertRaises(errors.CommandFailed) as caught:
                builds.build_plain(self.project)
            self.assertEqual(caught.exception.status, status)

    def test_the_build_for_clang_tidy_is_never_strict(self):
        builds.build_for_check(self.made(CORDMA_WERROR="1"))
        self.assertEqual(self.processes.lines(), [
            "meson setup build-check --unity on --unity-size 40",
            "ninja -C build-check --quiet tests/rpc/order.pb.h tests/docs/readme.cpp "
            "tests/docs/docs_test.cpp tests/docs/asio_docs_test.cpp "
            "tests/docs/simulation.cpp tests/docs/sim_docs_test.cpp tests/docs/guide_test.cpp "
            "tests/docs/guide_hello.cpp tests/docs/guide_server.cpp "
            "tests/docs/names_test.cpp tests/docs/spdlog_docs_test.cpp"])
        self.assertEqual(self.processes.calls[0].environment["CXX"], "clang++-19")


class Sanitizers(fakes.ProjectCase):
    def compilers_asked(self):
        return [call.command[0] for call in self.processes.calls if "-x" in call.command]

    def test_address_prefers_the_newest_compiler(self):
        folder = builds.build_sanitized(self.project, "address")
        self.assertEqual((folder, self.compilers_asked()), ("build-asan", ["clang++-19"]))
        setup = self.processes.of("meson setup build-asan")
        self.assertEqual(setup.environment["CXX"], "clang++-19")
        self.assertEqual(setup.command[3:], [
            "--unity", "on", "--unity-size", "40", "-Db_sanitize=address,undefined",
            "-Db_lundef=false", "-Dbench=false", "-Dexamples=false", "-Dtools=false",
            "-Doptimization=1", "-Dcpp_args=-gline-tables-only -fno-omit-frame-pointer"])

    def test_thread_prefers_the_oldest_compiler_and_ccache_stands_before_it(self):
        self.file("bin/ccache", executable=True)
        folder = builds.build_sanitized(self.project, "thread")
        self.assertEqual((folder, self.compilers_asked()), ("build-tsan", ["clang++-14"]))
        setup = self.processes.of("meson setup build-tsan")
        self.assertEqual(setup.environment["CXX"], "ccache clang++-14")
        self.assertIn("-Db_sanitize=thread", setup.command)

    def test_a_compiler_that_cannot_link_is_passed_over(self):
        self.processes.answers = {"clang++-14 -x": (127, "")}
        builds.build_sanitized(self.project, "thread")
        self.assertEqual(self.compilers_asked(), ["clang++-14", "clang++-19"])

    def test_a_compiler_whose_program_fails_now_and_then_is_passed_over(self):
        runs = []

        def output(command, *_, **__):
            runs.append(command[0])
            fails = command[0].endswith("/a") and len(runs) == builds.TRIAL_RUNS
            return (66 if fails else 0), ""
        self.processes.output = output
        chosen = builds.sanitizing_compiler(self.project, builds.SANITIZERS["address"])
        self.assertEqual(chosen, "clang++-14")
        self.assertEqual(len(runs), builds.TRIAL_RUNS + 1 + builds.TRIAL_RUNS)

    def test_without_such_a_compiler_the_message_names_the_sanitizer(self):
        self.processes.answers = {"clang++": (1, "")}
        with self.assertRaises(errors.Failure) as caught:
            builds.build_sanitized(self.project, "address")
        self.assertEqual(str(caught.exception),
                         "no clang++ here can build with -fsanitize=address,undefined")

    def test_a_configured_folder_keeps_its_compiler(self):
        self.configured("build-asan")
        builds.build_sanitized(self.project, "address")
        self.assertEqual(self.processes.lines(), ["ninja -C build-asan --quiet"])

    def test_another_sanitizer_is_a_usage_error(self):
        with self.assertRaises(errors.UsageError) as caught:
            builds.build_sanitized(self.project, "memory")
        self.assertEqual(str(caught.exception), "no sanitizer 'memory': address or thread")


if __name__ == "__main__":
    unittest.main()
