#!/usr/bin/env python3
"""libcordma.so exports what symbols.txt lists: public names, and what needed.txt says why.

    symbols_test.py LIBRARY            compares
    symbols_test.py LIBRARY --write    writes the list anew

A line is a function or a variable, without parameters: overloads are one. A class's name alone stands
for its type information, by which an exception is caught across libraries.
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

FOLDER = pathlib.Path(__file__).parent
LISTING = FOLDER / "symbols.txt"
# Each line has a name, the header that needs the name, and the user of the name in that header.
NEEDED = FOLDER / "needed.txt"
FRONT = FOLDER.parent / "hygiene/front.txt"
INCLUDE = FOLDER.parents[1] / "include/cordma"
# The kinds of weak symbols: how a compiler optimizes decides how many it makes.
WEAK = "VWuvw"


def name_of(symbol):
    """`cordma::f` for `cordma::f[abi:cxx11](int) const`; None for another's."""
    symbol = symbol.removeprefix("typeinfo for ").replace("[abi:cxx11]", "")
    conversion = re.match(r"([\w:]+::operator [\w:]+)\(", symbol)
    if conversion:
        return conversion[1]
    name = re.match(r"cordma::(?:~?\w+::)*(?:operator\(\)|operator[^\w\s(]+|~?\w+)(?=$|\()", symbol)
    return name[0] if name else None


def exported(library):
    said = subprocess.run(["nm", "-DC", "--defined-only", library], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    names = set()
    for line in said.splitlines():
        kind, symbol = line.split(maxsplit=2)[1:]
        if kind in WEAK and not symbol.startswith("typeinfo for "):
            continue
        if "cordma::" in symbol:
            names.add(name_of(symbol) or symbol)
    return sorted(names)


def outside(symbols, names):
    """The symbols that belong to none of these names."""
    def owners(symbol):
        parts = symbol.partition("::operator")[0].split("::")
        return {"::".join(parts[:count]) for count in range(1, len(parts) + 1)}

    return [symbol for symbol in symbols if not owners(symbol) & set(names)]


def needed():
    """(name, header, what needs the name) of each line of needed.txt."""
    lines = [line for line in NEEDED.read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(part.strip() for part in line.split("|")) for line in lines]


def needs(header, user, name):
    """Whether a header's code, apart from comments, has both words."""
    code = re.sub(r"//[^\n]*", "", header)
    return all(re.search(rf"\b{word}\b", code) for word in (user, name.rpartition("::")[2]))


def main():
    library = sys.argv[1]
    if sys.argv[2:] == ["--write"]:
        LISTING.write_text("".join(f"{name}\n" for name in exported(library)))
        return 0
    run = cases.Cases("symbols")
    with run.case("names are those of functions, variables and classes with type information"):
        for symbol, name in (("cordma::a::b(int, cordma::c) const", "cordma::a::b"),
                             ("cordma::a::~a()", "cordma::a::~a"),
                             ("cordma::a::to_string[abi:cxx11]() const", "cordma::a::to_string"),
                             ("cordma::a::operator()(int) const", "cordma::a::operator()"),
                             ("cordma::a::operator=(cordma::a&&)", "cordma::a::operator="),
                             ("cordma::a::operator cordma::b() const", "cordma::a::operator cordma::b"),
                             ("typeinfo for cordma::a", "cordma::a"),
                             ("cordma::a::count", "cordma::a::count"),
                             ("std::vector<cordma::a>::size()", None)):
            assert name_of(symbol) == name, (symbol, name_of(symbol))
    with run.case("a symbol belongs to the class or function that its name begins with"):
        symbols = ["cordma::a::operator cordma::b", "cordma::a::c", "cordma::ab", "cordma::a", "cordma::d::a"]
        assert outside(symbols, ["cordma::a"]) == ["cordma::ab", "cordma::d::a"], symbols
        assert needs("/// x\nvoid f() { y(); }", "f", "a::y") and not needs("// x\nvoid f();", "f", "a::x")
    with run.case("each symbol belongs to a public name, or to one that a public header's code needs"):
        names = [*FRONT.read_text().split(), *(name for name, *_ in needed())]
        others = outside(LISTING.read_text().splitlines(), names)
        assert not others, f"neither in {FRONT.name} nor in {NEEDED.name}: {others}"
    with run.case("needed.txt has no line in vain"):
        private = outside(LISTING.read_text().splitlines(), FRONT.read_text().split())
        for name, header, user in needed():
            assert len(outside(private, [name])) < len(private), f"nothing of {name} is exported"
            assert needs((INCLUDE / header).read_text(), user, name), f"{header}: {user} does not need {name}"
    with run.case("the library exports what symbols.txt lists"):
        found, listed = set(exported(library)), set(LISTING.read_text().splitlines())
        assert found == listed, (
            f"not listed: {sorted(found - listed)}; gone: {sorted(listed - found)}. CORDMA_EXPORT marks "
            f"what programs link against; when this is meant: {sys.argv[0]} {library} --write")
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
