"""Runs softverbs-run: its options, what it preloads, and what --check says.

usage: run_test.py SOFTVERBS_RUN BINDIR LIBDIR KERNEL_DOUBLE README [unittest's arguments]
"""

import os
import pathlib
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

BINDIR, LIBDIR = sys.argv[2:4]
RUN, KERNEL_DOUBLE, README = (os.path.abspath(sys.argv[n]) for n in (1, 4, 5))
LIBRARIES = pathlib.Path(RUN).parent
PRELOADED = f"{LIBRARIES}/libsoftverbs_cm.so.0:{LIBRARIES}/libsoftverbs.so.0"
STATUS_PROBLEM, STATUS_USAGE, STATUS_CANNOT_RUN, STATUS_NOT_FOUND = 1, 125, 126, 127
LIST_DEVICES = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
verbs.ibv_get_device_name.restype = ctypes.c_char_p
count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
print(*[verbs.ibv_get_device_name(devices[n]).decode() for n in range(count.value)])
"""


def run(*arguments, program=RUN, **variables):
    """softverbs-run in an environment of no variable of softverbs' but these."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("SOFTVERBS") and name != "LD_PRELOAD"}
    return subprocess.run([program, *arguments], env={**kept, **variables}, check=False,
                          capture_output=True, text=True, timeout=60)


class Options(unittest.TestCase):
    def test_help_names_every_variable_of_the_readme(self):
        text = run("--help").stdout
        variables = set(re.findall(r"^\| `(SOFTVERBS\w*)", pathlib.Path(README).read_text(),
                                   re.MULTILINE))
        self.assertIn("SOFTVERBS_PORT", variables)
        self.assertLessEqual(variables, set(re.findall(r"\((SOFTVERBS\w*)\)", text)))

    def test_version(self):
        result = run("--version")
        self.assertRegex(result.stdout, r"^softverbs-run \d+\.\d+\.\d+\n$")
        self.assertEqual(result.returncode, 0)

    def test_bad_input_is_named(self):
        for arguments, message in (
                ([], "no program to run"),
                (["--port"], "--port needs a value: 1 to 64511"),
                (["--port", "64512", "true"], "--port 64512: must be 1 to 64511"),
                (["--port=0", "true"], "--port 0: must be 1 to 64511"),
                (["--port=47000x", "true"], "--port 47000x: must be 1 to 64511"),
                (["--listen", "nobody", "true"], "--listen nobody: must be an IPv4 or IPv6 address"),
                (["--cm", "kernel", "true"], "--cm kernel: must be soft"),
                (["--link", "udp", "true"], "--link udp: must be tcp"),
                (["--link-layer", "x", "true"], "--link-layer x: must be infiniband or ethernet"),
                (["--lid", "0", "true"], "--lid 0: must be LID or LID=ADDRESS"),
                (["--lid", "0xc000", "true"], "--lid 0xc000: must be"),
                (["--lid", "1,,2", "true"], "--lid 1,,2: must be"),
                (["--lid", "1=", "true"], "--lid 1=: must be"),
                (["--peers", "", "true"], "--peers : must be IPv4 or IPv6 addresses"),
                (["--peers", "10.0.0.1,x", "true"], "--peers 10.0.0.1,x: must be"),
                (["--any-uid=1", "true"], "--any-uid takes no value"),
                (["--what", "true"], "unknown option --what"),
                (["--what=1", "true"], "unknown option --what"),
                (["-p", "true"], "unknown option -p")):
            with self.subTest(arguments):
                result = run(*arguments)
                self.assertIn(message, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertEqual(result.returncode, STATUS_USAGE)

    def test_options_set_variables(self):
        result = run("--port", "50000", "--listen=::1", "--link", "tcp", "--any-uid", "--cm=soft",
                     "--link-layer=infiniband", "--lid=7,0x8=10.0.0.2", "--peers", "10.0.0.2,::1",
                     "--off", "--", "env")
        said = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        self.assertEqual({name: value for name, value in said.items() if name.startswith("SOFT")},
                         {"SOFTVERBS_PORT": "50000", "SOFTVERBS_LISTEN": "::1",
                          "SOFTVERBS_LINK": "tcp", "SOFTVERBS_ANY_UID": "1",
                          "SOFTVERBS_CM": "soft", "SOFTVERBS": "off",
                          "SOFTVERBS_LINK_LAYER": "infiniband",
                          "SOFTVERBS_LID": "7,0x8=10.0.0.2", "SOFTVERBS_PEERS": "10.0.0.2,::1"})


class Programs(unittest.TestCase):
    def test_arguments_and_status_are_the_programs(self):
        result = run("sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "", "--check")
        self.assertEqual(result.stdout, "a b||--check|")
        self.assertEqual(result.returncode, 7)

    def test_a_program_that_cannot_run_is_named(self):
        result = run("no-such-program")
        self.assertEqual(result.stderr, "softverbs-run: no-such-program: No such file or directory\n")
        self.assertEqual(result.returncode, STATUS_NOT_FOUND)
        result = run("/")
        self.assertEqual(result.stderr, "softverbs-run: /: Permission denied\n")
        self.assertEqual(result.returncode, STATUS_CANNOT_RUN)

    def test_both_libraries_are_preloaded_after_what_is_there(self):
        show = ["sh", "-c", "echo $LD_PRELOAD"]
        self.assertEqual(run(*show).stdout, PRELOADED + "\n")
        self.assertEqual(run(*show, LD_PRELOAD=KERNEL_DOUBLE).stdout,
                         f"{KERNEL_DOUBLE}:{PRELOADED}\n")

    def test_a_program_finds_soft0(self):
        result = run(sys.executable, "-c", LIST_DEVICES)
        self.assertEqual(result.stdout.split()[-1:], ["soft0"], result.stderr)


class Trees(unittest.TestCase):
    """The program finds the libraries from where it lies."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def install(self, name, libraries=True):
        """A tree as the package has it, elsewhere."""
        root = pathlib.Path(self.folder.name, name)
        prefix = pathlib.Path(os.path.commonpath([BINDIR, LIBDIR]))
        program = root / pathlib.Path(BINDIR).relative_to(prefix) / "softverbs-run"
        folder = root / pathlib.Path(LIBDIR).relative_to(prefix)
        program.parent.mkdir(parents=True)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(RUN, program)
        if libraries:
            for library in PRELOADED.split(":"):
                shutil.copy(library, folder)
        return program, folder

    def test_an_installed_tree(self):
        program, folder = self.install("tree")
        self.assertEqual(run("sh", "-c", "echo $LD_PRELOAD", program=program).stdout,
                         f"{folder}/libsoftverbs_cm.so.0:{folder}/libsoftverbs.so.0\n")

    def test_a_tree_without_libraries(self):
        program, folder = self.install("tree", libraries=False)
        result = run("true", program=program)
        self.assertIn(f"are neither in {program.parent} nor in {folder}", result.stderr)
        self.assertEqual(result.returncode, STATUS_USAGE)

    def test_a_path_that_cannot_be_preloaded(self):
        for name in ("a tree", "a:tree"):
            with self.subTest(name):
                program, _ = self.install(name)
                result = run("true", program=program)
                self.assertIn("cannot stand in LD_PRELOAD", result.stderr)
                self.assertEqual(result.returncode, STATUS_USAGE)


class Check(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.program = os.path.join(self.folder.name, "program")

    def make_program(self, change):
        """A copy of /bin/true, whose bytes `change` changes."""
        content = bytearray(pathlib.Path("/bin/true").read_bytes())
        change(content)
        pathlib.Path(self.program).write_bytes(content)
        os.chmod(self.program, 0o755)

    def expect(self, arguments, kind, pattern, status, **variables):
        result = run("--cm", "soft", "--check", *arguments, **variables)
        self.assertRegex(result.stdout, re.compile(f"^{kind} +{pattern}", re.MULTILINE))
        self.assertEqual(result.returncode, status, result.stdout)
        return result

    def test_nothing_in_the_way(self):
        result = self.expect([], "ok", "libraries .*/libsoftverbs.so.0, .*/libsoftverbs_cm.so.0", 0)
        self.assertNotIn("problem", result.stdout)
        self.expect(["/bin/true"], "note", "program +/bin/true loads neither", 0)
        self.expect(["/bin/true"], "note", "program +a library that it opens with RTLD_DEEPBIND", 0)

    def test_a_low_limit_of_descriptors_is_noted(self):
        note = re.compile("^note +files +RLIMIT_NOFILE is 256: .*select", re.MULTILINE)
        for limit, is_low in (("-Sn 256", True), ("-n 256", False)):  # `-n` sets the hard limit, too.
            result = run("-c", f'ulimit {limit}; exec "$0" --cm soft --check', RUN, program="sh")
            self.assertEqual(note.search(result.stdout) is not None, is_low, result.stdout)

    def test_a_program_that_is_not_there(self):
        self.expect(["no-such-program"], "problem", "program +no-such-program is not found",
                    STATUS_PROBLEM)

    def test_a_static_program_is_not_served_and_run_says_so(self):
        phnum_offset = 56
        self.make_program(lambda content: struct.pack_into("<H", content, phnum_offset, 0))
        self.expect([self.program], "problem", "program .* is linked statically", STATUS_PROBLEM)
        self.assertIn("is linked statically", run(self.program).stderr)

    def test_a_program_of_another_machine(self):
        machine_offset, none = 18, 0xffff
        self.make_program(lambda content: struct.pack_into("<H", content, machine_offset, none))
        self.expect([self.program], "problem", "program .* is for another machine", STATUS_PROBLEM)

    def test_a_program_for_another_libc_is_not_asked(self):
        def change(content):
            linker = re.search(rb"/lib[^\0]*/ld[^\0]*\0", content)
            content[linker.start():linker.end()] = b"/lib/musl.so".ljust(len(linker[0]), b"\0")

        self.make_program(change)
        self.expect([self.program], "problem", "program .* another libc .* asks for /lib/musl.so",
                    STATUS_PROBLEM)

    def test_a_static_librdmacm(self):
        self.make_program(lambda content: content.extend(b"/dev/infiniband/rdma_cm\0"))
        self.expect([self.program], "problem", "program .* linked statically into it",
                    STATUS_PROBLEM)

    def test_broken_programs(self):
        for name, change, pattern in (
                ("empty", lambda content: content.clear(), "is no program that is known here"),
                ("cut", lambda content: content.__delitem__(slice(30, None)),
                 "is no program that is known here"),
                ("table", lambda content: struct.pack_into("<Q", content, 32, 2 ** 64 - 8),
                 "is linked statically")):
            with self.subTest(name):
                self.make_program(change)
                self.expect([self.program], "problem", f"program .* {pattern}", STATUS_PROBLEM)

    def test_a_program_that_gains_rights(self):
        if os.getuid() != 0:
            self.skipTest("only root makes a program of another user's")
        self.make_program(lambda content: None)
        os.chown(self.program, 1, 1)
        os.chmod(self.program, 0o755 | stat.S_ISUID)
        self.expect([self.program], "problem", "program .* gains rights", STATUS_PROBLEM)

    def test_a_script_is_checked_by_what_runs_it(self):
        for first_line in ("#!/bin/sh -e", "#!/usr/bin/env sh", "#! /usr/bin/env -S sh -e"):
            with self.subTest(first_line):
                pathlib.Path(self.program).write_text(first_line + "\n")
                os.chmod(self.program, 0o755)
                self.expect([self.program], "note", "program .* is a script: .*/sh", 0)
        pathlib.Path(self.program).write_text("#!/no/such/interpreter\n")
        self.expect([self.program], "problem", "program +/no/such/interpreter: No such",
                    STATUS_PROBLEM)

    def test_variables_are_checked_as_options_are(self):
        for variables in ({"SOFTVERBS_PORT": "x"}, {"SOFTVERBS_LISTEN": "x"},
                          {"SOFTVERBS_LINK": "x"}, {"SOFTVERBS": "off"}):
            (name, value), = variables.items()
            with self.subTest(name):
                self.expect([], "problem", f"settings +{name}={value}", STATUS_PROBLEM, **variables)

    def test_the_kernels_rdma_cm_is_in_the_way_unless_softverbs_is_wanted(self):
        kernel = {"LD_PRELOAD": KERNEL_DOUBLE, "SOFTVERBS_TEST_KERNEL_RDMA_CM": "1"}
        result = run("--check", **kernel)
        self.assertRegex(result.stdout, r"(?m)^problem +rdma_cm .* can be opened, so it answers")
        self.assertEqual(result.returncode, STATUS_PROBLEM)
        self.expect([], "ok", "rdma_cm +softverbs answers", 0, **kernel)
        result = run("--check", LD_PRELOAD=KERNEL_DOUBLE)
        self.assertRegex(result.stdout, r"(?m)^ok +rdma_cm .*cannot be opened \(No such file")

    def test_an_infiniband_port_has_no_rdma_cm(self):
        self.expect(["--link-layer", "infiniband"], "note", "rdma_cm +soft0 as an InfiniBand", 0)

    def test_an_address_of_another_host(self):
        self.expect(["--listen", "192.0.2.1"], "problem",
                    "listen +SOFTVERBS_LISTEN=192.0.2.1: Cannot assign", STATUS_PROBLEM)


class Ports(unittest.TestCase):
    """In a network namespace of their own: there, no other program listens."""

    def test_ports_that_others_have(self):
        shell = ["unshare", "--user", "--map-root-user", "--net"]
        if subprocess.run([*shell, "true"], check=False, capture_output=True).returncode != 0:
            self.skipTest("no network namespace can be made here")
        script = [sys.executable, *sys.argv[:6], "Inside", "--quiet"]
        result = subprocess.run([*shell, *script], check=False, capture_output=True, text=True,
                                env={**os.environ, "SOFTVERBS_TEST_INSIDE": "1"}, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)


class Inside(unittest.TestCase):
    @unittest.skipUnless("SOFTVERBS_TEST_INSIDE" in os.environ, "Ports starts it")
    def test_inside(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            port = taken.getsockname()[1]
            counts = run("--check", "--port", str(port - 1))
            self.assertIn("0 of softverbs' processes, 1 taken by others, 1023 free", counts.stdout)
            self.assertEqual(counts.returncode, 0, counts.stdout)
            note = run("--check", "--port", str(port - 1024))
            self.assertRegex(note.stdout, f"(?m)^note +ports +TCP port {port}, on which rdma_cm")
            self.assertEqual(note.returncode, 0, note.stdout)
            wanted = run("--check", "--listen", "0.0.0.0", "--port", str(port - 1024))
            self.assertRegex(wanted.stdout, f"(?m)^problem +ports +TCP port {port}, on which")
            self.assertEqual(wanted.returncode, STATUS_PROBLEM)
            with socket.socket(socket.AF_UNIX) as name:
                name.bind(b"\0softverbs.cm.262.7471.any")
                ours = run("--check", "--listen", "0.0.0.0", "--port", str(port - 1024))
                self.assertEqual(ours.returncode, 0, ours.stdout)
            with socket.socket(socket.AF_UNIX) as name:
                name.bind(b"\0softverbs.1")
                ours = run("--check", "--port", str(port - 1))
                self.assertIn("1 of softverbs' processes, 0 taken by others", ours.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
