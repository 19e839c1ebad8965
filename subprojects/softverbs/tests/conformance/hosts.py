"""Hosts for conformance.py: this one with an address, and a second one in a network namespace."""

import json
import shutil
import subprocess

NEAR = "10.73.0.1"  # This host's address.
FAR = "10.73.0.2"
MASK = 24


class Host:
    """How to start a program on a host, and the address that other hosts use for it."""

    def __init__(self, address, command=(), listen=False):
        self.address = address
        self.command = list(command)
        self.environment = {"SOFTVERBS_LISTEN": address} if listen else {}


HERE = Host("127.0.0.1")


def absent():
    """Why there is no second host here; the empty string when there is one."""
    for command in ("unshare", "nsenter", "ip"):
        if not shutil.which(command):
            return f"{command} is not installed"
    made = subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL, check=False)
    return "" if made.returncode == 0 else "a second network namespace needs root"


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def bring_up(interface, address, command=()):
    run(*command, "ip", "address", "add", f"{address}/{MASK}", "dev", interface)
    run(*command, "ip", "link", "set", "lo", "up")
    run(*command, "ip", "link", "set", interface, "up")


def interface_of(address):
    """The name of this host's interface that has the address."""
    said = subprocess.run(["ip", "-j", "address", "show", "to", address], check=True, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    return next(one["ifname"] for one in json.loads(said) if "ifname" in one)


class Network:
    """This host, with an address, while it is entered. Nobody is at the other end of the link."""

    def __enter__(self):
        run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
        run("ip", "link", "set", "far", "up")
        bring_up("near", NEAR)
        return Host(NEAR)

    def __exit__(self, *_):
        subprocess.run(["ip", "link", "delete", "near"], check=False)


class Link:
    """Two hosts while it is entered: `near`, which is this namespace, and `far`. `environment` is
    that of a program of the near one which starts others on the far one by remote_shell."""

    def __enter__(self):
        # The holder lives as long as its input is open, so it ends with this process, however that
        # ends.
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        namespace = f"/proc/{self.holder.pid}/ns/net"
        enter = ["nsenter", f"--net={namespace}"]
        self.environment = {"SOFTVERBS_LISTEN": NEAR, "CONFORMANCE_FAR": namespace}
        self.near = Host(NEAR, listen=True)
        self.far = Host(FAR, enter, listen=True)
        run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns",
            str(self.holder.pid))
        bring_up("near", NEAR)
        bring_up("far", FAR, enter)
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "link", "delete", "near"], check=False)
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()
