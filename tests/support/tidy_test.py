#!/usr/bin/env python3
"""Which files clang-tidy reads, and when it reads a file again. A script stands for clang-tidy."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import cases

# The script notes each file that it reads, and finds what the file calls a fault.
CLANG_TIDY = """#!/bin/sh
case "$*" in
--version) cat {folder}/version ;;
--dump-config*) cat {folder}/rules ;;
*) for file; do :; done; echo "$file" >>{folder}/read; ! grep "fault" "$file" ;;
esac
"""


class Place:
    """A build of two files, with the script, and a place for results."""

    def __init__(self, folder, kept, sources):
        self.root, self.kept = folder, kept
        self.build = folder / "build"
        (self.build / "together").mkdir(parents=True)
        for name, text in {"version": "1", "rules": "all", "read": "", **sources}.items():
            (folder / name).write_text(text)
        script = folder / "bin/clang-tidy-19"
        script.parent.mkdir()
        script.write_text(CLANG_TIDY.format(folder=folder))
        script.chmod(0o755)
        entries = [{"directory": str(self.build), "file": f"../{name}",
                    "command": f"c++ -I{folder} -MD -MQ a.o -MF a.d -o a.o -c ../{name}"} for name in sources
                   if name.endswith(".cpp")]
        (self.build / "together/compile_commands.json").write_text(json.dumps(entries))

    def run(self, chosen="cpp$"):
        """Returns what is printed, the status, and the names of the files that were read."""
        (self.root / "read").write_text("")
        tool = pathlib.Path(__file__).with_name("tidy.py")
        done = subprocess.run([sys.executable, tool, str(self.build), chosen], text=True, capture_output=True,
                              check=False, env={**os.environ, "XDG_CACHE_HOME": str(self.kept),
                                                "PATH": f"{self.root}/bin:{os.environ['PATH']}"})
        read = {pathlib.Path(line).name for line in (self.root / "read").read_text().splitlines()}
        return done.stdout + done.stderr, done.returncode, read


SOURCES = {"a.cpp": "#include <a.hpp>\n", "b.cpp": "int b;\n", "a.hpp": "#define A 1  // one\n"}


def place(**sources):
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    return Place(folder / "tree", folder / "kept",
                 {**SOURCES, **{name.replace("_", "."): text for name, text in sources.items()}})


def main():
    run = cases.Cases("tidy")
    with run.case("a file without findings is read once"):
        tree = place()
        assert tree.run()[1:] == (0, {"a.cpp", "b.cpp"})
        assert tree.run()[1:] == (0, set())
    with run.case("findings are printed, and their file is read each time"):
        tree = place(b_cpp="int fault;\n")
        tree.run()
        text, status, read = tree.run()
        assert "int fault;" in text and status == 1 and read == {"b.cpp"}, (text, status, read)
    with run.case("only the chosen files are read"):
        assert place().run("/b.cpp$")[2] == {"b.cpp"}
    for why, name, text in (("a header", "a.hpp", "int a;\n"),
                            ("a comment of a header", "a.hpp", "#define A 1  // two\n"),
                            ("a macro of a header", "a.hpp", "#define A 2  // one\n")):
        with run.case(f"a file is read again when {why} has changed"):
            tree = place()
            tree.run()
            (tree.root / name).write_text(text)
            assert tree.run()[2] == {"a.cpp"}
    for name in ("version", "rules"):
        with run.case(f"all files are read again when the {name} changed"):
            tree = place()
            tree.run()
            (tree.root / name).write_text("other")
            assert tree.run()[2] == {"a.cpp", "b.cpp"}
    with run.case("the same files elsewhere are not read again"):
        first, second = place(), place()
        first.run()
        second.kept = first.kept
        assert second.run()[1:] == (0, set())
    with run.case("a file that does not compile is read each time"):
        tree = place(b_cpp="#include <nowhere.hpp>\n")
        tree.run()
        assert tree.run()[2] == {"b.cpp"}
    return run.status()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        sys.exit(main())
