#!/usr/bin/env python3
"""The front door, as far as it goes without building: `dev_test.py ROOT`.

Debian's tools are stood in for by scripts that come first in PATH, so nothing is installed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import cases

ROOT = pathlib.Path(sys.argv[1])
INSTALLED = "#!/bin/bash\nshift 3\nprintf 'installed %s\\n' \"$@\""


def dev(*arguments, path=os.environ["PATH"]):
    """(exit status, all that it said)"""
    done = subprocess.run([ROOT / "dev", *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, "PATH": str(path)})
    return done.returncode, done.stdout


class Debian:
    """A PATH whose dpkg-query runs `dpkg_query`, and whose apt-get only notes how it was called."""

    def __init__(self, dpkg_query):
        # pylint: disable=consider-using-with
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        self.path = f"{folder}:{os.environ['PATH']}"
        self._calls = folder / "calls"
        for name, script in (("dpkg-query", dpkg_query), ("sudo", '#!/bin/bash\n"$@"'),
                             ("apt-get", f'#!/bin/bash\necho "$@" >>{self._calls}')):
            (folder / name).write_text(script + "\n")
            (folder / name).chmod(0o755)

    def apt_calls(self):
        return self._calls.read_text().splitlines() if self._calls.exists() else []


def other_distribution(folder, without):
    """A PATH with this machine's commands, but none of Debian's and not `without`."""
    hidden = {"apt-get", "dpkg-query", *without}
    for place in os.environ["PATH"].split(":"):
        for command in pathlib.Path(place).glob("*"):
            link = pathlib.Path(folder, command.name)
            if command.name not in hidden and not link.is_symlink():
                link.symlink_to(command)
    return folder


def main():
    run = cases.Cases("dev")
    with run.case("./dev help explains every command"):
        status, said = dev("help")
        assert status == 0 and dev() == (status, said)
        for command in ("setup", "demo", "test", "bench", "vm", "check", "soak"):
            assert f"\n  {command} " in said, f"{command} is not in\n{said}"
    with run.case("./dev says what is wrong with a command it does not know"):
        for wrong in (["frob"], ["setup", "--frob"], ["test", "--device"], ["vm", "ls"],
                      ["bench", "--frob"], ["soak", "a", "b"], ["demo", "a"]):
            status, said = dev(*wrong)
            assert status == 2 and said.endswith("dev: './dev help' lists the commands.\n"), said
    with run.case("./dev test lists the devices there are when asked for another"):
        status, said = dev("test", "--device", "mlx9_9")
        assert status == 1 and said.startswith("dev: no device 'mlx9_9' here; there is: "), said

    with run.case("./dev setup --check lists what is missing and installs nothing"):
        bare = Debian("#!/bin/bash\nexit 1")
        status, said = dev("setup", "--check", path=bare.path)
        assert status == 1 and {"  g++", "  meson", "  liburing-dev"} <= set(said.splitlines()), said
        assert not bare.apt_calls()
    with run.case("./dev setup does nothing when all is there"):
        complete = Debian(INSTALLED)
        assert dev("setup", path=complete.path) == (0, "All packages are there.\n")
        assert not complete.apt_calls()
    with run.case("./dev setup installs only what is missing, and names it"):
        partial = Debian(INSTALLED + " | grep -vx 'installed meson'")
        status, said = dev("setup", path=partial.path)
        assert status == 0 and ": meson\n" in said, said
        assert partial.apt_calls() == ["-q -y update", "-q -y install --no-install-recommends meson"]

    with run.case("on another distribution setup goes on where all is there"):
        with tempfile.TemporaryDirectory() as folder:
            status, said = dev("setup", path=other_distribution(folder, []))
            assert status == 0, said
    with run.case("on another distribution setup lists what is missing"):
        with tempfile.TemporaryDirectory() as folder:
            status, said = dev("setup", path=other_distribution(folder, ["meson"]))
            assert status == 1 and "the command meson" in said and "libibverbs-dev" in said, said
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
