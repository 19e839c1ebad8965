#!/usr/bin/env python3
"""What cordma's public headers declare, one name a line: `front.py INCLUDE_FOLDER`.

A name is a type, concept, alias, constant, or function of a namespace that is not `detail`; overloads
are one. Members are not counted, nor are operators. The further names are those that the headers below
detail/ declare in such namespaces.
"""

import pathlib
import re
import sys

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|\bCORDMA_EXPORT\b',
                   re.DOTALL | re.MULTILINE)
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\([^)]*\)\s*)?"
                  r"(\w+)\s*(?:final\b)?\s*(?::(?!:).*)?$", re.DOTALL)
ALIAS = re.compile(r"\b(?:using|concept)\s+(?:[\w:]+::)?(\w+)\s*(?:=|$)")
FUNCTION = re.compile(r"(?<![\w:~.])(?!operator\b|requires\b|alignas\b|decltype\b|noexcept\b)(\w+)\s*\(")
CONSTANT = re.compile(r"\bconstexpr\b[^=]*?(\w+)\s*(?:=|$)", re.DOTALL)


def without_templates(text):
    """`template <...>` and requires-clauses in parentheses say nothing of the name."""
    text = re.sub(r"\[\[.*?\]\]", " ", text, flags=re.DOTALL)
    while match := re.search(r"\btemplate\s*<", text):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {"<": 1, ">": -1}.get(text[at], 0)
            at += 1
        text = text[:match.start()] + text[at:]
    return text.strip()


def declared(text, has_body):
    text = without_templates(text)
    if not text or re.match(r"(friend|static_assert|extern|namespace)\b", text):
        return None
    if match := TYPE.search(text):
        return match[1] if has_body else None  # A forward declaration is no name of its own.
    if match := re.match(r"(?:class|struct)\s+([\w:]+)\s*<", text):
        return match[1] if has_body and "::" not in match[1] else None  # A specialization.
    if match := ALIAS.match(text):
        return match[1]
    if "operator" in text:
        return None
    head = text.split("=")[0]
    if "(" in head and (match := FUNCTION.search(head)):
        return match[1]
    if match := CONSTANT.search(text):
        return match[1]
    return None


def names_in(text):
    """Qualified names that a header declares."""
    text = NOISE.sub(" ", text)
    scopes, start, depth = [], 0, 0  # `depth`: of braces that are no namespace's.
    for at, char in enumerate(text):
        if char == "{":
            before = text[start:at]
            match = re.search(r"\bnamespace\s+([\w:]*)\s*$", before)
            if depth == 0 and match:
                scopes.append(match[1])
                start = at + 1
                continue
            if depth == 0 and "detail" not in "::".join(scopes):
                name = declared(before, True)
                if name:
                    yield "::".join([*scopes, name])
            depth += 1
        elif char == "}":
            if depth == 0:
                scopes.pop()
            else:
                depth -= 1
            if depth == 0:
                start = at + 1
        elif char == ";" and depth == 0:
            if "detail" not in "::".join(scopes):
                name = declared(text[start:at], False)
                if name:
                    yield "::".join([*scopes, name])
            start = at + 1


# The front of cordma-sim, a library of its own for tests (docs/simulation.md): no header of libcordma.
OF_SIM = "sim.hpp"


def names_of(headers):
    return {name for path in headers for name in names_in(path.read_text())}


def is_bridge(header):
    """Headers beside cordma.hpp, named from include/cordma, bridge to other libraries: few programs include one."""
    return "/" not in header and header not in ("cordma.hpp", "version.hpp", OF_SIM)


def public_headers(include):
    named = {str(path.relative_to(include)): path for path in sorted(include.rglob("*.hpp"))}
    return {name: path for name, path in named.items() if not name.startswith("detail/") and name != OF_SIM}


def front(include):
    """How many headers are public, bridges apart, and the names that they declare."""
    headers = [path for name, path in public_headers(include).items() if not is_bridge(name)]
    return len(headers), sorted(names_of(headers))


def bridges(include):
    """The names that the bridges declare."""
    return sorted(names_of(path for name, path in public_headers(include).items() if is_bridge(name)))


def of_sim(include):
    """The names that the header of cordma-sim declares."""
    return sorted(names_of([include / OF_SIM]))


def further(include):
    """The names that headers below detail/ declare outside of namespaces called detail."""
    return sorted(names_of(include.glob("detail/**/*.hpp")) - set(front(include)[1]))


if __name__ == "__main__":
    headers, names = front(pathlib.Path(sys.argv[1]))
    print(*names, sep="\n")
    print(f"{headers} headers, {len(names)} names; of bridges, and of cordma-sim:", file=sys.stderr)
    print(*bridges(pathlib.Path(sys.argv[1])), *of_sim(pathlib.Path(sys.argv[1])), sep="\n")
    print("below detail/:", file=sys.stderr)
    print(*further(pathlib.Path(sys.argv[1])), sep="\n")
