#!/usr/bin/env python3
"""Runs programs of rdma-core and perftest, as Debian ships them, and looks at what they say.

    conformance.py [--preload LIBRARY]... [--device NAME] [--cache FOLDER] [--repeat N]
                   [PROGRAM|PROJECT...]

Without a name: all of programs.py; a project's name: all its programs. Exits with 1 when one
failed, 77 when none could run because it is not installed here. Where all is installed, --no-skips
makes a failure of each that cannot run. PROGRAM@hosts runs server and client on two hosts, which
are network namespaces.

A soft device's programs run in a network namespace of their own where one can be made: there nobody
else takes a port between our finding it free and the server's listening on it, and no other process
of this machine is on the same fabric. A kernel's device stays in the namespace it was made in.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import functools
import ipaddress
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import hosts
import programs
import pyverbs_suite

SECONDS_MAX = 120  # One program, or one pair.
POLL_SECONDS = 0.01
COPIED_BYTES = 3_000_000
CM_TCP_PORT = 48024  # softverbs' rdma_cm has SOFTVERBS_PORT + 1024.
KERNELS_CM = pathlib.Path("/dev/infiniband/rdma_cm")
REMOTE_SHELL = pathlib.Path(__file__).with_name("remote_shell")
GROUPS_ETHERNET = "3333" + ipaddress.ip_address(programs.GROUP).packed.hex()  # RFC 2464
NEEDS_CM_LIBRARY = "it needs libsoftverbs_cm.so"
READ_CALL = {"x86_64": "0", "aarch64": "63"}  # The number of read() in /proc/PID/syscall.
SPINS_TICKS = 5  # 50 ms of a processor, where setting options takes some microseconds.
EXIT_SKIPPED = 77  # Meson's code for "skipped".
NAMESPACES = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])


class Failure(Exception):
    """A program that did not do what the table says."""


class Running:
    """A program in a process group of its own, which ends with it, whatever it started."""

    def __init__(self, arguments, environment, cwd=None):
        self.arguments = arguments
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT, env=environment, cwd=cwd,
                                        start_new_session=True)

    def text(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def ended(self):
        return self.process.poll() is not None

    def wait(self, deadline):
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.arguments[0]} did not end in time") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.close()

    def report(self):
        return f"$ {' '.join(self.arguments)}\n{self.text()}(exit status {self.process.poll()})\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def listens(port, pid):
    """Whether a TCP socket of that process's namespace, of either family, listens on it."""
    for table in ("tcp", "tcp6"):
        try:
            rows = pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:  # A kernel without IPv6, or a process that has ended.
            continue
        for row in rows:
            _, local, _, state = row.split()[:4]
            if state == "0A" and int(local.rsplit(":", 1)[1], 16) == port:
                return True
    return False


def listens_by_cm(port, pid):
    """Whether a process of that namespace listens on a port of softverbs' rdma_cm. A name is there
    from rdma_bind_addr() on, and the TCP port for other hosts while somebody listens."""
    name = re.compile(rf" 00010000 .* @softverbs\.cm\.\d+\.{port}\.")
    try:
        names = pathlib.Path(f"/proc/{pid}/net/unix").read_text(errors="replace")
    except OSError:
        return False
    return listens(CM_TCP_PORT, pid) and name.search(names) is not None


def listens_by_udp(port, pid):
    """Whether a UDP socket of that process's namespace is bound to it."""
    rows = pathlib.Path(f"/proc/{pid}/net/udp").read_text().splitlines()[1:]
    return any(int(row.split()[1].rsplit(":", 1)[1], 16) == port for row in rows)


def is_member(_, pid):
    """Whether a process of that namespace is a member of a multicast group of softverbs."""
    return "@softverbs.member." in pathlib.Path(f"/proc/{pid}/net/unix").read_text(errors="replace")


def listens_by_kernels_cm(port, _):
    """Whether a process listens on that port of the kernel's rdma_cm."""
    said = subprocess.run(["rdma", "-j", "resource", "show", "cm_id"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    return any(one.get("state") == "LISTEN" and one["src-addr"].endswith(f":{port}")
               for one in json.loads(said or "[]"))


def is_member_in_kernel(_, pid):
    """Whether a queue pair is attached to the group. Then rxe has the Ethernet address of its MGID
    among those of its interface."""
    return GROUPS_ETHERNET in pathlib.Path(f"/proc/{pid}/net/dev_mcast").read_text()


def reads_a_pointer(pid):
    """Whether the process waits in raccept(). rlisten() waits for a longer message."""
    number, *arguments = pathlib.Path(f"/proc/{pid}/syscall").read_text().split()
    return number == READ_CALL[platform.machine()] and int(arguments[2], 16) == 8


def processor_ticks(pid):
    """How long the process has run, in user space and in the kernel."""
    return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().split()[13:15]))


def accepts(listens_here):
    """Makes what says whether a server that listens waits in raccept(), or spins there."""
    ticks = None

    def is_ready(port, pid):
        nonlocal ticks
        if not listens_here(port, pid):
            return False
        try:
            ticks = processor_ticks(pid) if ticks is None else ticks
            return reads_a_pointer(pid) or processor_ticks(pid) - ticks > SPINS_TICKS
        except OSError:  # The process has ended.
            return False
    return is_ready


READY = {"tcp": listens, "udp": listens_by_udp, "rdma_cm": listens_by_cm, "group": is_member}
READY_IN_KERNEL = {**READY, "rdma_cm": listens_by_kernels_cm, "group": is_member_in_kernel}


def wait_for_listener(server, port, deadline, is_there=listens):
    while not is_there(port, server.process.pid):
        if server.ended():
            raise Failure("the server ended before it listened")
        if time.monotonic() > deadline:
            raise Failure("the server never listened")
        time.sleep(POLL_SECONDS)


def wait_for_both(server, client, deadline, own_fault=None):
    """The first that fails ends the other: it would only wait for its peer."""
    for process in (client, server):
        status = process.wait(deadline)
        if status != 0 and not (own_fault and re.search(own_fault, process.text(), re.MULTILINE)):
            raise Failure(f"the {'client' if process is client else 'server'} exits with {status}")


def wait_for_refusal(client, deadline):
    status = client.wait(deadline)
    if status <= 0:
        raise Failure(f"the client is not refused, but exits with {status}")


def check_output(text, expected, forbidden):
    for pattern in expected:
        if not re.search(pattern, text, re.MULTILINE):
            raise Failure(f"the output lacks /{pattern}/")
    for pattern in forbidden:
        if re.search(pattern, text, re.MULTILINE):
            raise Failure(f"the output has /{pattern}/")


class Device:
    def __init__(self, name, preload=()):
        self.name = name
        self.preload = preload
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith("SOFTVERBS")}
        self.environment["LC_ALL"] = "C.UTF-8"
        # The kernel's rdma_cm, where there is one, knows nothing of a soft device.
        if not self.is_kernels() and KERNELS_CM.exists():
            self.environment["SOFTVERBS_CM"] = "soft"
        if preload:
            self.environment["LD_PRELOAD"] = ":".join(map(str, preload))

    def has_file(self):
        """Whether programs that look for the device's file find it."""
        return self.is_kernels() or any("softverbs_cm" in one.name for one in self.preload)

    def is_kernels(self):
        return pathlib.Path("/sys/class/infiniband", self.name).exists()

    @functools.cached_property
    def host(self):
        """This machine: by the device's address if a kernel has it, whose rdma_cm has no device
        for a loopback address."""
        return hosts.Host(self.gid(self.environment)[1]) if self.is_kernels() else hosts.HERE

    def ready(self, program):
        """What says whether the program's server is ready."""
        listens_here = (READY_IN_KERNEL if self.is_kernels() else READY)[program.ready_by]
        return accepts(listens_here) if program.sets_options_late else listens_here

    def joined(self, program):
        """A kernel sends a multicast to its own host only if somebody has joined the IP group."""
        if not (program.in_group and self.is_kernels()):
            return contextlib.nullcontext()
        member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                          socket.inet_aton(programs.GROUP) + socket.inet_aton(self.host.address))
        return member

    def gid(self, environment, host=hosts.HERE):
        """The index and the address of the first RoCEv2 GID of the host that has an IPv4 address."""
        said = subprocess.run([*host.command, "ibv_devinfo", "-v", "-d", self.name],
                              env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              text=True, stderr=subprocess.STDOUT, timeout=SECONDS_MAX,
                              check=False).stdout
        found = re.search(r"GID\[ *(\d+)\]:\s*::ffff:(\d+\.\d+\.\d+\.\d+), RoCE v2", said)
        if not found:
            raise Failure(f"ibv_devinfo names no RoCEv2 GID with an IPv4 address:\n{said}")
        return int(found[1]), found[2]

    def start(self, program, arguments, host=hosts.HERE, **values):
        """Starts the program on that host, its arguments filled in."""
        environment = {**self.environment, **host.environment,
                       **{key: value.format(device=self.name)
                          for key, value in program.environment.items()}}
        if program.preload:
            loaded = [*map(str, self.preload), program.preload]
            environment["LD_PRELOAD"] = ":".join(loaded)
        values["device"] = self.name
        if any("{gid}" in word for word in arguments):
            values["gid"], _ = self.gid(environment, host)
        words = [word.format(**values) if "{" in word else word for word in arguments]
        return Running(host.command + words, environment)


def run_single(device, program, deadline):
    with device.start(program, program.arguments) as process:
        try:
            if process.wait(deadline) != 0:
                raise Failure("exit status")
            expected = [p.format(device=device.name) for p in program.expected]
            check_output(process.text(), expected, program.forbidden)
        except Failure as failure:
            raise Failure(f"{failure}\n{process.report()}") from None


def run_pair(device, program, deadline, near, far):
    """The server runs on the far host, the client on the near one."""
    port = program.port or free_port()
    with tempfile.TemporaryDirectory() as folder, device.joined(program), \
            device.start(program, program.arguments, far, port=port, server=far.address) as server:
        source, copy = (pathlib.Path(folder, name) for name in ("source", "copy"))
        source.write_bytes(os.urandom(COPIED_BYTES) if program.copies else b"")
        try:
            wait_for_listener(server, port, deadline, device.ready(program))
        except Failure as failure:
            raise Failure(f"{failure}\n{server.report()}") from None
        with device.start(program, program.client, near, port=port, server=far.address,
                          client=near.address, source=source, copy=copy) as client:
            try:
                if program.is_refused:
                    wait_for_refusal(client, deadline)
                else:
                    wait_for_both(client if program.server_stays else server, client, deadline,
                                  program.own_fault)
                check_output(client.text(), program.expected, program.forbidden)
                check_output(server.text(), program.expected if program.both_report else [],
                             program.forbidden)
                if program.copies and copy.read_bytes() != source.read_bytes():
                    raise Failure("the copy is another file")
            except Failure as failure:
                raise Failure(f"{failure}\n--- server: {server.report()}"
                              f"--- client: {client.report()}") from None


def run_mpi(device, program, deadline, link=None):
    """Compiles mpi_check.c first: `{check}` in the arguments. With a link, each of its hosts has
    one of the two ranks."""
    with tempfile.TemporaryDirectory() as folder:
        check = pathlib.Path(folder, "mpi_check")
        compiled = subprocess.run(["mpicc", "-O1", "-o", check, programs.MPI_CHECK],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
        if compiled.returncode != 0:
            raise Failure(f"mpicc fails:\n{compiled.stdout}")
        command, *words = (word.replace("{check}", str(check)) for word in program.arguments)
        if link:
            words = ["--host", f"{link.near.address}:1,{link.far.address}:1",
                     "--mca", "plm_rsh_agent", str(REMOTE_SHELL), *words]
        environment = {**program.environment, **(link.environment if link else {})}
        run_single(device, dataclasses.replace(program, arguments=[command, *words],
                                               environment=environment), deadline)


def run_pyverbs(device, options):
    """Its own tests, from a copy, with an address of their own where there is a namespace for it."""
    with hosts.Network() if options.inside else contextlib.nullcontext(), \
            tempfile.TemporaryDirectory() as folder:
        pyverbs_suite.copy_tests(pathlib.Path(folder, "tests"), options.documentation)
        gid_index, address = device.gid(device.environment)
        arguments = [pyverbs_suite.PYTHON, str(pyverbs_suite.RUNNER), hosts.interface_of(address),
                     "--dev", device.name, "--gid", str(gid_index), "-v"]
        with Running(arguments, device.environment, folder) as suite:
            try:
                suite.wait(time.monotonic() + pyverbs_suite.SECONDS_MAX)
                late = ""
            except Failure as failure:
                late = f"{failure}\n"
            said = suite.text()
    results = pyverbs_suite.parse(said)
    print(pyverbs_suite.summary(results))
    if options.results:
        options.results.write_text("".join(f"{k}\t{v}\n" for k, v in sorted(results.items())))
    failed = pyverbs_suite.wrong(results, not device.is_kernels())
    if late or failed:
        raise Failure(late + "not as the lists say:\n" + "\n".join(failed) + "\n" + said)


def needs_link(name, program, device):
    """A kernel's device has an address."""
    return name.endswith(programs.ON_HOSTS) or (program.needs_address and not device.is_kernels())


def run(name, device, options):
    if name == "pyverbs":
        run_pyverbs(device, options)
        return
    program = programs.find(name)
    deadline = time.monotonic() + SECONDS_MAX
    if needs_link(name, program, device):
        with hosts.Link() as link:
            if program.is_mpi:
                run_mpi(device, program, deadline, link)
            else:
                far = link.far if name.endswith(programs.ON_HOSTS) else link.near
                run_pair(device, program, deadline, link.near, far)
    elif program.pair:
        run_pair(device, program, deadline, device.host, device.host)
    elif program.is_mpi:
        run_mpi(device, program, deadline)
    else:
        run_single(device, program, deadline)


def absent(name, device, options):
    """What this program needs and is not here; the empty string when all is there."""
    if name == "pyverbs":
        return pyverbs_suite.absent() or ("" if device.has_file() else NEEDS_CM_LIBRARY)
    program = programs.find(name)
    for command in [program.arguments[0]] + (["mpicc"] if program.is_mpi else []):
        if not shutil.which(command):
            return f"{command} is not installed"
    if program.preload is not None and not program.preload:
        return "librspreload.so is not installed"
    if program.needs_soft and device.is_kernels():
        return "it needs soft0"
    if program.by_cm and device.is_kernels() and not shutil.which("rdma"):
        return "rdma is not installed"
    if (program.needs_device_file or program.needs_cm) and not device.has_file():
        return NEEDS_CM_LIBRARY
    if needs_link(name, program, device):
        return hosts.absent() if options.inside else "no network namespace can be made here"
    return ""


def enter_namespace(more):
    """Goes on as a process in a network namespace of its own; returns where none can be made."""
    for command in NAMESPACES:
        made = subprocess.run(command + ["true"], stderr=subprocess.DEVNULL, check=False)
        if made.returncode == 0:
            os.execvp(command[0], command + [sys.executable, *sys.argv, "--inside", *more])


def bring_up_loopback():
    request_get_flags, request_set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        got = fcntl.ioctl(control, request_get_flags, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack("16sH14x", got)[1]
        fcntl.ioctl(control, request_set_flags, struct.pack("16sH14x", b"lo", flags | up))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preload", type=lambda path: pathlib.Path(path).resolve(strict=True),
                        action="append", default=[], help="a library to test")
    parser.add_argument("--device", default="soft0")
    parser.add_argument("--cache", type=pathlib.Path, help="a folder for what must be downloaded")
    parser.add_argument("--documentation", type=pathlib.Path, default=pyverbs_suite.DOCUMENTATION,
                        help="where the tests of pyverbs are")
    parser.add_argument("--results", type=pathlib.Path, help="a file for the results of pyverbs")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run each N times")
    parser.add_argument("--no-skips", action="store_true", default="CI" in os.environ,
                        help="what cannot run has failed; so it is where CI is set")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat {options.repeat}: must be 1 or more")
    everything = [*programs.names(), "pyverbs"]
    families = programs.families()
    unknown = set(options.names) - set(everything) - set(families)
    if unknown:
        parser.error(f"unknown: {' '.join(sorted(unknown))}; there is: "
                     f"{' '.join([*families, *everything])}")
    options.names = [name for given in options.names or everything
                     for name in families.get(given, [given])]
    return options


def outcome(name, device, options):
    """Runs it as often as asked, and says how that went."""
    why = absent(name, device, options)
    if why:
        found = "FAILED" if options.no_skips else "skipped"
        print(f"{name}: {found}: {why}", flush=True)
        return found
    begin = time.monotonic()
    failures = []
    for _ in range(options.repeat):
        try:
            run(name, device, options)
        except Failure as failure:
            failures.append(str(failure))
            print(f"{name}: {failure}", flush=True)
    found = "FAILED" if failures else "passed"
    times = f" {options.repeat - len(failures)} of {options.repeat}" if options.repeat > 1 else ""
    print(f"{name}: {found}{times}, {time.monotonic() - begin:.1f} s", flush=True)
    return found


def exit_status(outcomes):
    if "FAILED" in outcomes:
        return 1
    return 0 if "passed" in outcomes else EXIT_SKIPPED


def main():
    options = parse_arguments()
    kernel_device = pathlib.Path("/sys/class/infiniband", options.device).exists()
    if options.inside:
        bring_up_loopback()
    else:
        # Finds the tests outside the new namespace, which has no network.
        if "pyverbs" in options.names and not pyverbs_suite.absent():
            options.documentation = pyverbs_suite.find_tests(options.documentation, options.cache)
        if not kernel_device:
            enter_namespace(["--documentation", str(options.documentation)])
    device = Device(options.device, options.preload)
    return exit_status([outcome(name, device, options) for name in options.names])


if __name__ == "__main__":
    sys.exit(main())
