#!/usr/bin/env python3
"""The library's probes, as tools see them: `usdt_test.py LIBRARY SCRIPT` reads the notes of its
objects, and what a bpftrace script takes of them."""

import pathlib
import re
import subprocess
import sys

import cases

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/metrics.md"
# A probe's row in the document: name, when, arguments.
ROW = re.compile(r"^\| `(\w+)` \|[^|]*\| ([^|]+) \|$", re.MULTILINE)
CLAUSE = re.compile(r"^usdt:\*:cordma:(\w+)\n(.*?)^}", re.DOTALL | re.MULTILINE)
ARGUMENT = re.compile(r"-?\d+f?@\S+")


def documented(text):
    """{probe: number of its arguments} of the document's section on probes."""
    section = text.partition("\n## Probes\n")[2].partition("\n## ")[0]
    return {name: len(re.sub(r"\(.*?\)", "", arguments).split(",")) for name, arguments in ROW.findall(section)}


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
    promised = documented(DOCUMENT.read_text())
    with run.case("each probe that is documented is in the library, and no other is"):
        assert documented("\n## Probes\n| `x` | on, or off | a (of b, c), d |\n## More\n| `y` | z | a |\n") == {"x": 2}
        assert {name for name, _ in found} == set(promised), (found, promised)
    with run.case("every probe has the arguments that it is documented with"):
        for name, arguments in found:
            assert len(arguments) == promised[name], (name, arguments)
            assert all(ARGUMENT.fullmatch(argument) for argument in arguments), (name, arguments)
    with run.case("a request's kind is in the note, where it is known when it is compiled"):
        kinds = {arguments[1] for name, arguments in found if name == "post"}
        assert any("$" in kind for kind in kinds) or len(kinds) > 1, kinds
    with run.case("the example for bpftrace names probes that there are, and arguments they have"):
        clauses = CLAUSE.findall(pathlib.Path(sys.argv[2]).read_text())
        assert {"post", "complete", "resume"} <= {name for name, _ in clauses}, clauses
        for name, text in clauses:
            wanted = [int(number) for number in re.findall(r"\barg(\d+)", text)]
            assert max(wanted) < promised[name], (name, wanted)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
