"""A second host for conformance.py: a network namespace beside this one, joined by a virtual link."""

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


class Link:
    """Two hosts while it is entered: `near`, which is this namespace, and `far`."""

    def __enter__(self):
        # The holder lives as long as its input is open, so it ends with this process, however that
        # ends.
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        enter = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        self.near = Host(NEAR, listen=True)
        self.far = Host(FAR, enter, listen=True)
        ends = (("near", NEAR, []), ("far", FAR, enter))
        self.run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns",
                 str(self.holder.pid))
        for name, address, prefix in ends:
            self.run(*prefix, "ip", "address", "add", f"{address}/{MASK}", "dev", name)
            self.run(*prefix, "ip", "link", "set", "lo", "up")
            self.run(*prefix, "ip", "link", "set", name, "up")
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "link", "delete", "near"], check=False)
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()

    @staticmethod
    def run(*command):
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
