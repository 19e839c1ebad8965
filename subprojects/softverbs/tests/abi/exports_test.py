"""Compares the names and versions that libsoftverbs exports with those of the installed libibverbs.

usage: exports_test.py LIBSOFTVERBS
"""

import glob
import re
import subprocess
import sys

REAL = "libibverbs.so.1"
PUBLIC = re.compile(r"IBVERBS_1\.\d+$")
IMPORTERS = ["/usr/bin/ib_*", "/usr/bin/ibv_*", "/usr/lib/python3/dist-packages/pyverbs/*.so"]


def symbols(path):
    """(name, version, is default, is defined) of each dynamic symbol; the version may be empty."""
    text = subprocess.run(["readelf", "--wide", "--dyn-syms", path], check=True,
                          capture_output=True, text=True).stdout
    for line in text.splitlines():
        fields = line.split()
        # A version has a symbol of its own name, which is absolute.
        if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6] != "ABS":
            name, at, version = re.match(r"([^@]+)(@*)(.*)", fields[7]).groups()
            yield name, version, at == "@@", fields[6] != "UND"


def path_of(soname):
    for line in subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True,
                               text=True).stdout.splitlines():
        if line.strip().startswith(soname + " "):
            return line.split("=> ")[1]
    return None


def imported():
    """What the programs of this host take from libibverbs: {(name, version): a program}."""
    found = {}
    for path in sorted(p for pattern in IMPORTERS for p in glob.glob(pattern)):
        try:
            listed = list(symbols(path))
        except subprocess.CalledProcessError:  # A script.
            continue
        for name, version, _, defined in listed:
            if not defined and version.startswith("IBVERBS_"):
                found.setdefault((name, version), path)
    return found


def main(ours_path):
    ours = {(n, v): default for n, v, default, defined in symbols(ours_path) if defined}
    wrong = []
    real_path = path_of(REAL)
    if real_path is None:
        print(f"{REAL} is not installed: nothing to compare with")
        return 77  # Meson's and automake's exit code of a skipped test.
    count = 0
    for name, version, default, defined in symbols(real_path):
        if not defined or not PUBLIC.match(version):
            continue
        count += 1
        at = "@@" if default else "@"
        if (name, version) not in ours:
            wrong.append(f"missing: {name}{at}{version}")
        elif ours[name, version] != default:
            wrong.append(f"should be {'the' if default else 'no'} default: {name}{at}{version}")
    needed = imported()
    for (name, version), path in needed.items():
        if (name, version) not in ours:
            wrong.append(f"missing: {name}@{version}, which {path} imports")
    for name, version in ours:
        if not version.startswith(("IBVERBS_", "SOFTVERBS_")):
            wrong.append(f"should not be exported: {name}@{version}")
    print("\n".join(wrong) or f"{count} public names, {len(needed)} imported ones: all are there")
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
