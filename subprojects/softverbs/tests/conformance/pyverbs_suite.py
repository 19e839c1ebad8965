"""rdma-core's tests in Python, from Debian's package python3-pyverbs."""

import fcntl
import getpass
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

PACKAGE = "python3-pyverbs"
PYTHON = "/usr/bin/python3"  # The one that Debian's package is for, whatever PATH says.
DOCUMENTATION = pathlib.Path("/usr/share/doc/rdma-core/tests")
REQUIRED = pathlib.Path(__file__).with_name("pyverbs-required.txt")
REQUIRED_OF_SOFT = pathlib.Path(__file__).with_name("pyverbs-required-soft0.txt")  # Required, too.
SKIPS_OF_SOFT = pathlib.Path(__file__).with_name("pyverbs-skips-soft0.txt")
RUNNER = pathlib.Path(__file__).with_name("pyverbs_runner.py").resolve()
SECONDS_MAX = 600

STARTED = re.compile(r"^(?P<method>test_\w+) \((?P<id>tests\.[\w.]+)\)")
ENDED = re.compile(r"\.\.\. .*?(?P<result>ok|FAIL|ERROR|skipped .*)$")


def absent():
    """Why the tests cannot run here; the empty string when they can."""
    if not shutil.which("ip"):
        return "ip is not installed"
    found = subprocess.run([PYTHON, "-c", "import pyverbs.device"], stderr=subprocess.DEVNULL,
                           check=False) if pathlib.Path(PYTHON).exists() else None
    return "" if found and found.returncode == 0 else f"{PACKAGE} is not installed"


def unpacked_package(cache):
    """The installed version of the package, downloaded and unpacked once."""
    def ask(*command):
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    version = ask("dpkg-query", "-W", "-f", "${Version}", PACKAGE)
    cache = cache or pathlib.Path(tempfile.gettempdir())
    cache.mkdir(parents=True, exist_ok=True)
    tree = cache / f"{PACKAGE}_{version}"
    with open(cache / f"{PACKAGE}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                subprocess.run(["apt-get", "-qq", "-o", f"APT::Sandbox::User={getpass.getuser()}",
                                "download", f"{PACKAGE}={version}"], cwd=work, check=True)
                [archive] = pathlib.Path(work).glob("*.deb")
                unpacked = pathlib.Path(work, "tree")
                subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
                os.rename(unpacked, tree)
    return tree


def find_tests(documentation, cache):
    """Minimal images, those of containers, tell dpkg to leave out /usr/share/doc (path-exclude in
    dpkg.cfg.d), though the package is installed: then its tests are taken from the package itself.
    """
    if (documentation / "run_tests.py").exists():
        return documentation
    return unpacked_package(cache) / DOCUMENTATION.relative_to("/")


def copy_tests(folder, documentation):
    """Debian compresses some of them."""
    folder.mkdir()
    for source in documentation.iterdir():
        if source.suffix == ".gz":
            with gzip.open(source) as packed, open(folder / source.stem, "wb") as plain:
                shutil.copyfileobj(packed, plain)
        elif source.suffix == ".py":
            shutil.copy(source, folder)


def parse(said):
    """unittest's verbose output: test -> "ok", "FAIL", "ERROR", "skipped '...'", or "did not end".
    What a test prints itself may stand between its name and its result."""
    results, running = {}, None
    for line in said.splitlines():
        started = STARTED.search(line)
        if started and started["id"] not in results and started["id"].endswith(started["method"]):
            running = started["id"]
            results[running] = "did not end"
        ended = ENDED.search(line) or re.fullmatch("(?P<result>ok|FAIL|ERROR)", line)
        if ended and running:
            results[running] = ended["result"]
            running = None
    return results


def names(path):
    """The tests in one of the lists, which has comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def wrong(results, is_soft=False):
    """What is not as the lists say. A kernel's device may skip, and fail in, what is in no list."""
    required = names(REQUIRED) + (names(REQUIRED_OF_SOFT) if is_soft else [])
    skips = set(names(SKIPS_OF_SOFT))
    found = [f"{test}: {results.get(test, 'was not run')}" for test in required
             if results.get(test) != "ok"]
    if is_soft:
        found += [f"{test}: {result}, and is not in {SKIPS_OF_SOFT.name}"
                  for test, result in results.items() if test not in required
                  and result != "ok" and not (result.startswith("skipped") and test in skips)]
    return found


def summary(results):
    kinds = [result.split()[0] for result in results.values()]
    return "pyverbs: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
