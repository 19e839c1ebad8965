#!/usr/bin/env python3
"""Users compile with the flags that benchmarks are compiled with: `flags_test.py BUILD`.

Meson says what the benchmarks get, and the cordma.pc of that build what users get.
"""

import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

# A pattern of flags of one side only: why that makes no program faster than a user's.
EXPLAINED = {
    r"-I.*": "where headers are",
    r"-W.*": "warnings",
    r"-fdiagnostics-color=.*": "how warnings look",
    r"-std=c\+\+20": "users choose the standard",
    r"-O[0-3gs]|-g\d?": "Meson's option for how a program is optimized, which users choose",
    r"-D_FILE_OFFSET_BITS=64": "what Linux does on 64 bits anyway",
    r"-D_GLIBCXX_ASSERTIONS=1": "checks that later Mesons ask for",
    r"-DASIO_\w+|-DASIO_\w+=.*": "asio's, in the benchmark beside asio",
    r"-DBENCH_FOLDER=.*": "where a benchmark finds its files",
    r"-DCORDMA_SHARED_JEMALLOC": "where the allocations are counted, and how jemalloc is linked",
}


def said_by(*command):
    return subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE).stdout


def benchmarks(targets, build):
    """(name, flags) of each program that Meson builds in BUILD/bench."""
    for target in targets:
        if pathlib.Path(target["filename"][0]).parent == build / "bench" and target["type"] == "executable":
            yield target["name"], {flag for source in target["target_sources"] if source.get("language") == "cpp"
                                   for flag in source["parameters"]}


def unlike(flags, users):
    """The flags that one side alone has, and that nothing explains."""
    return sorted(flag for flag in flags ^ users if not any(re.fullmatch(pattern, flag) for pattern in EXPLAINED))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    run = cases.Cases("flags")
    users = set(said_by("pkg-config", "--cflags", str(build / "meson-private/cordma.pc")).split())
    found = list(benchmarks(json.loads(said_by("meson", "introspect", "--targets", str(build))), build))
    with run.case("a flag that one side alone has is found, unless it is explained"):
        assert unlike({"-I/a", "-O3", "-fa", "-pthread"}, {"-pthread", "-fb"}) == ["-fa", "-fb"]
    with run.case("each benchmark is compiled with the flags that cordma.pc gives to users"):
        assert found, f"no benchmark in {build}"
        for name, flags in found:
            assert not unlike(flags, users), f"{name}: {unlike(flags, users)}"
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
