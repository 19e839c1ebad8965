"""./dev as a program, as far as it goes without building.

Scripts that come first in PATH stand in for Debian's tools, so nothing is installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import fakes

INSTALLED = "#!/bin/bash\nshift 3\nprintf 'installed %s\\n' \"$@\""
HELP_HINT = "dev: './dev help' lists the commands.\n"


def dev(*arguments, path=os.environ["PATH"]):
    """(exit status, all that it said)"""
    done = subprocess.run([fakes.ROOT / "dev", *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, "PATH": str(path)})
    return done.returncode, done.stdout


class FrontDoor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"

    def script(self, name, text):
        path = self.folder / "scripts" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
        path.chmod(0o755)

    def debian(self, dpkg_query, path=os.environ["PATH"], apt_get=""):
        """A PATH whose dpkg-query runs `dpkg_query`, and whose apt-get notes how it was called."""
        self.script("dpkg-query", dpkg_query)
        self.script("sudo", '#!/bin/bash\n"$@"')
        self.script("apt-get", f'#!/bin/bash\necho "$@" >>{self.calls}\n{apt_get}')
        return f"{self.folder / 'scripts'}:{path}"

    def apt_calls(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def without(self, *hidden):
        """A PATH with this machine's commands, but none of Debian's and not the `hidden` ones."""
        folder = self.folder / "commands"
        folder.mkdir()
        for place in os.environ["PATH"].split(":"):
            for command in pathlib.Path(place).glob("*"):
                link = folder / command.name
                if command.name not in {"apt-get", "dpkg-query", *hidden} and not link.is_symlink():
                    link.symlink_to(command)
        return folder

    def test_help_explains_every_command(self):
        status, said = dev("help")
        self.assertEqual([dev(), dev("-h"), dev("--help")], [(status, said)] * 3)
        self.assertEqual(status, 0)
        for command in ("setup", "demo", "test", "bench", "vm", "check", "package", "reference", "docs", "soak"):
            self.assertIn(f"\n  {command} ", said)

    def test_what_is_wrong_with_a_command_line_is_said_with_status_2(self):
        for wrong in (["frob"], ["setup", "--frob"], ["setup", "--check", "x"],
                      ["test", "--device"], ["vm", "ls"], ["bench", "--frob"], ["soak", "a", "b"],
                      ["demo", "a"], ["reference", "a"], ["docs", "a"], ["package", "a"]):
            status, said = dev(*wrong)
            self.assertEqual(status, 2, wrong)
            self.assertTrue(said.startswith("dev: ") and said.endswith(HELP_HINT), said)

    def test_another_device_is_refused_with_a_list(self):
        status, said = dev("test", "--device", "mlx9_9")
        self.assertEqual(status, 1)
        self.assertTrue(said.startswith("dev: no device 'mlx9_9' here; there is: "), said)

    def test_setup_check_lists_what_is_missing_and_installs_nothing(self):
        status, said = dev("setup", "--check", path=self.debian("#!/bin/bash\nexit 1"))
        self.assertEqual(status, 1)
        self.assertLessEqual({"  g++", "  meson", "  liburing-dev"}, set(said.splitlines()))
        self.assertEqual(self.apt_calls(), [])

    def test_setup_does_nothing_when_all_is_there(self):
        self.assertEqual(dev("setup", path=self.debian(INSTALLED)),
                         (0, "All packages are there.\n"))
        self.assertEqual(self.apt_calls(), [])

    def test_setup_installs_only_what_is_missing_and_names_it(self):
        path = self.debian(INSTALLED + " | grep -vx 'installed meson'")
        status, said = dev("setup", path=path)
        self.assertEqual(status, 0)
        self.assertIn(": meson\n", said)
        self.assertEqual(self.apt_calls(),
                         ["-q -y update", "-q -y install --no-install-recommends meson"])

    def test_on_another_distribution_setup_goes_on_where_all_is_there(self):
        status, said = dev("setup", path=self.without())
        self.assertEqual(status, 0, said)

    def test_on_another_distribution_setup_lists_what_is_missing(self):
        status, said = dev("setup", path=self.without("meson"))
        self.assertEqual(status, 1)
        self.assertIn("the command meson", said)
        self.assertIn("libibverbs-dev", said)

    def test_on_another_distribution_the_site_needs_modules_of_python(self):
        for command in ("bash", "dirname", "sort", "xargs"):
            (self.folder / command).symlink_to(shutil.which(command))
        setup = [fakes.ROOT / "tests/support/setup.sh", "docs"]
        done = subprocess.run(setup, text=True, capture_output=True, check=False,
                              env={**os.environ, "PATH": str(self.folder)})
        self.assertIn("the command meson\n", done.stdout)
        modules = ["/usr/bin/python3", "-c", "import markdown_it, pygments"]
        are_there = subprocess.run(modules, capture_output=True, check=False).returncode == 0
        self.assertEqual("markdown_it and pygments" in done.stdout, not are_there)

    def test_help_and_setup_need_no_python(self):
        path = self.debian(INSTALLED, self.without("python3"))
        self.assertEqual(dev("help", path=path), dev("help"))
        self.assertEqual(dev("setup", path=path), (0, "All packages are there.\n"))

    def test_where_python_is_missing_it_is_installed_first(self):
        # The stand-in for apt-get installs python3, which the next command finds.
        install = (f'printf \'#!/bin/bash\\nexec {sys.executable} "$@"\\n\' '
                   f'>{self.folder}/scripts/python3 && chmod +x {self.folder}/scripts/python3')
        path = self.debian(INSTALLED + " | grep -vx 'installed python3'", self.without("python3"),
                           install)
        status, said = dev("frob", path=path)
        self.assertEqual(self.apt_calls(),
                         ["-q -y update", "-q -y install --no-install-recommends python3"])
        self.assertEqual(status, 2)
        self.assertTrue(said.endswith(f": python3\ndev: no command 'frob'\n{HELP_HINT}"), said)

    def test_where_python_cannot_be_installed_nothing_else_is_tried(self):
        status, said = dev("test", path=self.without("python3"))
        self.assertEqual(status, 1)
        self.assertIn("This is not Debian: nothing is installed for you.", said)
        self.assertIn("the command python3\n", said)


if __name__ == "__main__":
    unittest.main()
