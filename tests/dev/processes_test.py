"""Real processes: exit statuses, outputs, and signals."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import fakes
from dev import processes

# ./dev with one command, which runs a program and tells its exit status.
DEV = """import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job ignores SIGINT.
sys.path.insert(0, sys.argv[1])
from dev import commands
def run(project, given):
    status = project.run(given)
    print("status", status)
    return status
commands.run = run
sys.exit(commands.main("/", sys.argv[2:], dict(os.environ)))
"""
# A program that waits for a signal; HANDLER may take it.
WAITING = """import os, signal, sys
def end(*_):
    os.write(1, b"down\\n")  # The signal may come in the middle of a print, which a second one must not enter.
    sys.exit(5)
signal.signal(signal.SIGINT, signal.SIG_DFL)
HANDLER
print("up", flush=True)
signal.pause()
"""


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = processes.Processes(self.folder)

    def bash(self, script, function="run", **options):
        given = ["bash", "-c", script]
        return getattr(self.processes, function)(given, dict(os.environ), **options)

    def test_exit_statuses_are_those_of_a_shell(self):
        self.assertEqual(self.bash("exit 3"), 3)
        self.assertEqual(self.bash("kill -TERM $$"), 128 + signal.SIGTERM)
        self.assertEqual(self.bash("kill -SEGV $$", "output")[0], 128 + signal.SIGSEGV)

    def test_a_command_runs_in_the_folder_with_its_environment(self):
        status, said = self.processes.output(["bash", "-c", "echo $PWD $A"],
                                             {**os.environ, "A": "b"})
        self.assertEqual((status, said), (0, f"{self.folder} b\n"))

    def test_a_command_may_read_text_and_be_quiet(self):
        said = self.bash("cat; echo bad >&2", "output", stdin="good", is_quiet=True)
        self.assertEqual(said, (0, "good"))

    def test_a_command_that_is_not_there_has_the_exit_status_of_a_shell(self):
        self.assertEqual(self.processes.output(["./none"], {}, is_quiet=True), (127, ""))
        (self.folder / "text").write_text("")
        self.assertEqual(self.processes.output(["./text"], {}, is_quiet=True), (126, ""))

    def test_a_child_beside_ends_with_its_block_by_itself_or_by_a_signal(self):
        self.addCleanup(setattr, processes, "END_SECONDS", processes.END_SECONDS)
        with self.processes.beside(["bash", "-c", "exit 3"], dict(os.environ)) as ends:
            pass
        processes.END_SECONDS = 0.01
        with self.processes.beside(["sleep", "1000"], dict(os.environ)) as waits:
            self.assertIsNone(waits.poll())
        with self.processes.beside(["bash", "-c", "trap '' TERM; echo; while :; do :; done"],
                                   dict(os.environ), subprocess.PIPE) as stays:
            stays.stdout.readline()
            stays.stdout.close()
        self.assertEqual([child.returncode for child in (ends, waits, stays)],
                         [3, -signal.SIGTERM, -signal.SIGKILL])

    def other_process(self, function, *arguments):
        """What a call prints, which here would go past unittest: (status, stdout, stderr)."""
        program = ("import os, sys\nsys.path.insert(0, sys.argv[1])\nfrom dev import processes\n"
                   f"sys.exit(processes.Processes('/').{function}"
                   f"({', '.join(map(repr, arguments))}, dict(os.environ)))")
        done = subprocess.run([sys.executable, "-c", program, fakes.ROOT / "tools"], text=True,
                              capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_lines_that_say_nothing_are_dropped_and_the_rest_goes_to_stderr(self):
        script = "echo none; echo some; echo none more; exit 4"
        self.assertEqual(self.other_process("run_without", {"none"}, ["bash", "-c", script]),
                         (4, "", "some\nnone more\n"))

    def test_a_missing_command_is_named(self):
        self.assertEqual(self.other_process("run", ["./none"]),
                         (127, "", "dev: ./none: No such file or directory\n"))

    def dev(self, handled, number, to_all):
        """Signals ./dev, `to_all` with its child, once the child waits: (status, output)."""
        handler = f"signal.signal({int(handled)}, end)" if handled else ""
        with subprocess.Popen([sys.executable, "-c", DEV, fakes.ROOT / "tools",
                               sys.executable, "-c", WAITING.replace("HANDLER", handler)],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              start_new_session=True) as child:
            up = child.stdout.readline()
            (os.killpg if to_all else os.kill)(child.pid, number)
            out, err = child.communicate()
        self.assertEqual((up, err), ("up\n", ""))
        return child.returncode, out

    def test_ctrl_c_ends_all_quietly_by_that_signal(self):
        self.assertEqual(self.dev(None, signal.SIGINT, True), (-signal.SIGINT, ""))

    def test_a_child_that_handles_ctrl_c_is_waited_for(self):
        self.assertEqual(self.dev(signal.SIGINT, signal.SIGINT, True), (5, "down\nstatus 5\n"))

    def test_sigterm_ends_the_child_too(self):
        self.assertEqual(self.dev(signal.SIGTERM, signal.SIGTERM, False),
                         (128 + signal.SIGTERM, "down\n"))


if __name__ == "__main__":
    unittest.main()
