#!/usr/bin/env python3
"""The library's probes, as tools see them: `usdt_test.py LIBRARY SCRIPT` reads the notes of its
objects, and what a bpftrace script takes of them."""

import pathlib
import re
import subprocess
import sys

import cases

# The probes that docs/metrics.md promises, and the number of their arguments.
PROBES = {"post": 3, "complete": 5, "wake": 3, "resume": 1}
CLAUSE = re.compile(r"^usdt:\*:cordma:(\w+)\n(.*?)^}", re.DOTALL | re.MULTILINE)
ARGUMENT = re.compile(r"-?\d+f?@\S+")


def probes(library):
    """(provider, name, arguments) of each note."""
    text = subprocess.run(["readelf", "-nW", library], check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    note = re.compile(r"Provider: (\S+)\s+Name: (\S+)\s+Location:.*\n\s+Arguments: ?(.*)")
    return [(provider, name, arguments.split())
            for provider, name, arguments in note.findall(text)]


def main():
    run = cases.Cases("usdt")
    found = [(name, arguments) for provider, name, arguments in probes(sys.argv[1])
             if provider == "cordma"]
    with run.case("each probe is in the library, and no other is"):
        assert {name for name, _ in found} == set(PROBES), found
    with run.case("every probe has the arguments that it is documented with"):
        for name, arguments in found:
            assert len(arguments) == PROBES[name], (name, arguments)
            assert all(ARGUMENT.fullmatch(argument) for argument in arguments), (name, arguments)
    with run.case("a request's kind is in the note, where it is known when it is compiled"):
        kinds = {arguments[1] for name, arguments in found if name == "post"}
        assert any("$" in kind for kind in kinds) or len(kinds) > 1, kinds
    with run.case("the example for bpftrace names probes that there are, and arguments they have"):
        clauses = CLAUSE.findall(pathlib.Path(sys.argv[2]).read_text())
        assert {"post", "complete", "resume"} <= {name for name, _ in clauses}, clauses
        for name, text in clauses:
            wanted = [int(number) for number in re.findall(r"\barg(\d+)", text)]
            assert max(wanted) < PROBES[name], (name, wanted)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
