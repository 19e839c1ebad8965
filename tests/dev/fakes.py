"""A project in a temporary folder, and processes that only note what they would run."""

import contextlib
import dataclasses
import io
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).absolute().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from dev import commands, project  # noqa: E402


@dataclasses.dataclass
class Call:
    how: str  # The function of processes.Processes.
    command: list
    environment: dict


class FakeProcesses:
    """Answers by the last of `answers` whose key is in the command line: (exit status, output)."""

    def __init__(self):
        self.calls, self.answers = [], {}

    def _answer(self, how, command, environment):
        self.calls.append(Call(how, command, environment))
        line = " ".join(command)
        return next((answer for key, answer in reversed(self.answers.items()) if key in line),
                    (0, ""))

    def run(self, command, environment, to_stderr=False):
        status, output = self._answer("stderr" if to_stderr else "run", command, environment)
        print(output, end="")
        return status

    def run_without(self, _, command, environment):
        return self._answer("run_without", command, environment)[0]

    def output(self, command, environment, **_):
        return self._answer("output", command, environment)

    @contextlib.contextmanager
    def beside(self, command, environment):
        self._answer("beside", command, environment)
        yield None

    def replace(self, command, environment, folder):
        return self._answer(f"replace in {folder}", command, environment)[0]

    def lines(self):
        return [" ".join(call.command) for call in self.calls]

    def of(self, key):
        """The one call whose command line has `key`."""
        found = [call for call in self.calls if key in " ".join(call.command)]
        assert len(found) == 1, f"{len(found)} calls have '{key}': {self.lines()}"
        return found[0]


class ProjectCase(unittest.TestCase):
    """A test with a project of its own: one device, no guest, and a PATH without commands."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "cordma"
        self.file("bin/")
        self.file("infiniband/")
        self.root.mkdir()
        self.processes = FakeProcesses()
        self.project = self.made()

    def made(self, **environment):
        """A project whose environment has these variables."""
        environment = {"PATH": str(self.folder / "bin"), "PWD": "/started/in", **environment}
        return project.Project(self.root, environment, self.processes, self.folder / "infiniband")

    def file(self, name, text="", executable=False):
        """Makes a file, or a folder when the name ends with `/`."""
        path = self.folder / name
        folder = path if name.endswith("/") else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(text)
            path.chmod(0o755 if executable else 0o644)
        return path

    def with_guest(self):
        self.file("bin/apt-get", executable=True)
        self.file("cordma/tests/vm/guest", executable=True)

    def configured(self, folder):
        self.file(f"cordma/{folder}/build.ninja")

    def dev(self, *arguments):
        """Runs a command of ./dev. Returns (exit status, stdout, stderr)."""
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = commands.run(self.project, list(arguments))
        out.flush()
        return status, out.buffer.getvalue().decode(), err.getvalue()
