"""Checks that libsoftverbs_cm defines the names of libc that it should, without versions, and no other.

usage: exports_test.py LIBSOFTVERBS_CM
"""

import subprocess
import sys

NAMES = set("""
    open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2
    fstat fstat64 __fxstat __fxstat64 write
    close close_range closefrom dup dup2 dup3 fcntl fcntl64
    access eaccess euidaccess faccessat
    stat stat64 lstat lstat64 fstatat fstatat64 statx
    __xstat __xstat64 __lxstat __lxstat64 __fxstatat __fxstatat64
    dlopen
""".split())
SONAME = "libsoftverbs_cm.so.0"


def read(path, what):
    return subprocess.run(["readelf", "--wide", what, path], check=True, capture_output=True,
                          text=True).stdout


def defined(path):
    """The names that the library defines for others, with their versions if they have any."""
    for line in read(path, "--dyn-syms").splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6] != "UND":
            yield fields[7]


def main(path):
    found = set(defined(path))
    wrong = [f"missing: {name}" for name in sorted(NAMES - found)]
    wrong += [f"should not be exported: {name}" for name in sorted(found - NAMES)]
    if f"[{SONAME}]" not in read(path, "--dynamic"):
        wrong.append(f"its name is not {SONAME}")
    print("\n".join(wrong) or f"{len(found)} names: all are there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
