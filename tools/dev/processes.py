"""Starts processes and waits for them. Exit statuses are those of a shell: 128 + N for signal N."""

import contextlib
import os
import signal
import subprocess
import sys

CANNOT_RUN, NOT_FOUND = 126, 127
END_SECONDS = 5


def shell_status(status):
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def child_decides():
    """Ctrl-C reaches the child, too. The child's exit status says whether Ctrl-C ended it."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # A background job ignores Ctrl-C, and so do its children.
        # A child inherits SIG_IGN, but no handler.
        signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def running(command, **options):
    """A child process, which does not outlive the block."""
    sys.stdout.flush()
    with child_decides():
        child = subprocess.Popen(command, **options)
        try:
            yield child
        except BaseException:  # SIGTERM raises SystemExit (commands.py).
            child.terminate()
            raise
        finally:
            if child.stdout:
                child.stdout.close()
            child.wait()
    if child.returncode == -signal.SIGINT:
        raise KeyboardInterrupt


class Processes:
    """Runs commands in one folder."""

    def __init__(self, folder):
        self._folder = str(folder)

    def _options(self, environment):
        return {"cwd": self._folder, "env": {**environment, "PWD": self._folder}}

    @staticmethod
    def _not_run(command, error, is_quiet=False):
        if not is_quiet:
            print(f"dev: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN

    def run(self, command, environment, to_stderr=False):
        """Returns the exit status. `to_stderr` sends the command's output to stderr."""
        options = self._options(environment)
        if to_stderr:
            options["stdout"] = sys.stderr
        try:
            with running(command, **options) as child:
                child.wait()
        except OSError as error:
            return self._not_run(command, error)
        return shell_status(child.returncode)

    def run_without(self, dropped, command, environment):
        """Returns the exit status. The output goes to stderr, without lines in `dropped`."""
        try:
            with running(command, stdout=subprocess.PIPE, **self._options(environment)) as child:
                for line in child.stdout:
                    if line.rstrip(b"\n").decode(errors="replace") not in dropped:
                        sys.stderr.buffer.write(line)
                        sys.stderr.buffer.flush()
                child.wait()
        except OSError as error:
            return self._not_run(command, error)
        return shell_status(child.returncode)

    @contextlib.contextmanager
    def beside(self, command, environment, stdout=None):
        """A child process that goes on beside this one. It is to end when the block ends, and gets
        a signal if it does not."""
        sys.stdout.flush()
        child = subprocess.Popen(  # pylint: disable=consider-using-with
            command, stdin=subprocess.DEVNULL, stdout=stdout, **self._options(environment))
        try:
            yield child
        finally:
            for end in (child.terminate, child.kill):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(END_SECONDS)
                    break
                end()
            child.wait()

    def output(self, command, environment, stdin=None, is_quiet=False):
        """Returns (exit status, stdout). `is_quiet` drops the command's stderr."""
        options = self._options(environment)
        if is_quiet:
            options["stderr"] = subprocess.DEVNULL
        if stdin is not None:
            options["stdin"] = subprocess.PIPE
        try:
            with running(command, stdout=subprocess.PIPE, **options) as child:
                said, _ = child.communicate(None if stdin is None else stdin.encode())
        except OSError as error:
            return self._not_run(command, error, is_quiet), ""
        return shell_status(child.returncode), said.decode(errors="replace")

    def replace(self, command, environment, folder):
        """Replaces this process by `command`, in `folder`. Returns only on failure."""
        sys.stdout.flush()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores both.
            signal.signal(number, signal.SIG_DFL)
        try:
            os.chdir(folder)
            os.execvpe(command[0], command, {**environment, "PWD": str(folder)})
        except OSError as error:
            return self._not_run(command, error)
