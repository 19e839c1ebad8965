#!/usr/bin/env python3
"""Which programs clang-tidy reads together, and that what stands for them compiles."""

import json
import pathlib
import subprocess
import sys
import tempfile

import cases
import tidy_together

PROGRAM = "#include <cstdio>\nnamespace { int count() { return 1; } }\nint main() { return count(); }\n"


def databases(sources, flags=None):
    """Makes a tree with a unity file per source. Returns its build folder and both databases."""
    root = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    build = root / "build"
    entries = []
    for name, text in sources.items():
        source = root / name
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)
        unit = build / f"{name}.p" / "it-unity0.cpp"
        unit.parent.mkdir(parents=True)
        unit.write_text(f'#include "{source}"\n')
        file = str(unit.relative_to(build))
        own = (flags or {}).get(name, "-DONE=1")
        entries.append({"directory": str(build), "file": file,
                        "command": f"c++ -I{name}.p -I.. {own} -std=c++20 -c {file}"})
    return build, entries, tidy_together.together(build, entries)


def main():
    run = cases.Cases("tidy_together")
    with run.case("programs of a folder become one file that compiles"):
        build, _, after = databases({"examples/a.cpp": PROGRAM, "examples/b.cpp": PROGRAM})
        assert [entry["file"] for entry in after] == ["examples/together_0.cpp"], after
        command = [*after[0]["command"].split(), "-fsyntax-only"]
        done = subprocess.run(command, cwd=build, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    with run.case("a fault of one program is found in the file for all"):
        build, _, after = databases({"bench/a.cpp": PROGRAM, "bench/b.cpp": PROGRAM + "fault\n"})
        command = [*after[0]["command"].split(), "-fsyntax-only"]
        done = subprocess.run(command, cwd=build, text=True, capture_output=True, check=False)
        assert done.returncode != 0 and "b.cpp:4" in done.stderr, done.stderr
    for why, sources, flags in (
            ("a program of its own folder stays", {"examples/a.cpp": PROGRAM, "bench/b.cpp": PROGRAM},
             None),
            ("a named namespace stays", {"bench/a.cpp": PROGRAM, "bench/b.cpp": "namespace n {}\n"},
             None),
            ("other macros stay", {"bench/a.cpp": PROGRAM, "bench/b.cpp": PROGRAM},
             {"bench/b.cpp": "-DTWO=2"}),
            ("tests stay", {"tests/a.cpp": PROGRAM, "tests/b.cpp": PROGRAM}, None)):
        with run.case(why):
            _, before, after = databases(sources, flags)
            assert sorted(map(json.dumps, after)) == sorted(map(json.dumps, before)), after
    return run.status()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        sys.exit(main())
