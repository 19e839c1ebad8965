"""The project that a command works on: its folder, and the environment of its processes."""

import os
import pathlib
import shutil

from . import errors

SETUP = "tests/support/setup.sh"


class Project:
    """Every process gets `environment`. A command may add variables for all later processes."""

    def __init__(self, root, environment, processes, infiniband="/sys/class/infiniband"):
        self.root = pathlib.Path(root)
        self.started_in = environment.get("PWD") or os.getcwd()
        # Builds in several folders, and in clones, share what they have in common.
        self.environment = {"CCACHE_BASEDIR": str(root), **environment, "CCACHE_NOHASHDIR": "1"}
        self.processes = processes
        self.infiniband = pathlib.Path(infiniband)
        self.guest = self.root / "tests/vm/guest"

    def variable(self, name, default=""):
        """Returns a variable's value, or the default when the value is empty or not set."""
        return self.environment.get(name) or default

    def number(self, name, default):
        text = self.variable(name, str(default))
        if not text.isdecimal():
            raise errors.Failure(f"{name} is no number: '{text}'")
        return int(text)

    def has_command(self, name):
        return shutil.which(name, path=self.environment.get("PATH")) is not None

    def has_guest(self):
        return os.access(self.guest, os.X_OK)

    def run(self, command, **variables):
        """Runs a command with `variables` in its environment. Returns the exit status."""
        return self.processes.run(command, {**self.environment, **variables})

    def require(self, command, to_stderr=False, **variables):
        """Runs a command whose failure ends ./dev."""
        status = self.processes.run(command, {**self.environment, **variables}, to_stderr=to_stderr)
        if status:
            raise errors.CommandFailed(status)

    def output(self, command, is_quiet=False, stdin=None):
        """Returns (exit status, stdout)."""
        return self.processes.output(command, self.environment, stdin=stdin, is_quiet=is_quiet)

    def beside(self, command, **variables):
        """A context: a command that runs as long as the block, with `variables`."""
        return self.processes.beside(command, {**self.environment, **variables})

    def replace(self, command, folder=None):
        """Replaces this process by `command`, in `folder` or the project's."""
        return self.processes.replace(command, self.environment, folder or self.root)

    def setup(self, *groups):
        """Installs the Debian packages of these groups that are missing."""
        self.require([SETUP, *groups])
