#!/usr/bin/env python3
"""Rules of the house that no compiler checks: `hygiene.py ROOT` prints `file:line: what is wrong`.

Each rule is a function over the tree; tests/hygiene/hygiene_test.py shows each of them a bad tree.
"""

import pathlib
import re
import sys

import awaits
import comments
import document_links
import front
import identifiers
from assertions import assertions

# The table of docs/architecture.md: which rooms a room may include, besides itself.
MAY_INCLUDE = {
    "base": "",
    "coro": "base",
    "verbs": "base",
    "io": "base coro",
    "security": "base coro io",
    "memory": "base verbs",
    "queue": "base coro io verbs memory",
    "request": "base coro io verbs memory queue",
    "agent": "base coro io security verbs memory queue request",
    "cm": "base coro io verbs",
    "connection": "base coro io security verbs memory queue request agent cm",
    "datagram": "base coro io security verbs memory queue request agent cm connection",
    "messages": "base coro io security verbs memory queue request agent cm connection",
    "rpc": "base coro io security verbs memory queue request agent cm connection messages",
    "runtime": "base coro io security verbs memory queue request agent cm connection datagram",
    "group": "base coro io security verbs memory queue request agent cm connection messages runtime",
    "sim": "base coro io runtime",
    "c": "base coro io security verbs memory queue request agent cm connection datagram messages rpc runtime group sim",
}

# The table of softverbs' docs/design.md: a room may include those before it.
SOFTVERBS = "subprojects/softverbs/"
SOFTVERBS_ROOMS = ("wire", "memory", "queue", "link", "node", "multicast", "object", "qp", "cm", "abi", "libc", "run")
# The header by which the rooms below qp know of it.
UPCALLS = "node/upcalls.hpp"

# Headers; sources of the library and of softverbs; tests; everything else.
HEADER_LINES_MAX = 350
SOURCE_LINES_MAX = 500
TEST_LINES_MAX = 600
LINES_MAX = 800
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70

CODE_FOLDERS = ("include", "lib", "src", "tests", "fuzz", "examples", "bench", "tools")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Spelled in two parts, so that this file obeys its own rule.
BANNED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~$}/])/(work|root|home|Users)/\w")
TESTED_AWAIT = re.compile(r"\b(?:CHECK|REQUIRE)\w*\s*\(.*\bco_await\b")
AWAITED = re.compile(r"\bco_await\b[^;]*;")
# Braces with text in them, and what stands before: a type, a call's parenthesis, a conditional.
BRACED_TEXT = re.compile(r"(\w*\(|[\w:>]+|[,?:=])\s*\{(?:[^{};]|\{[^{};]*\})*\"")
# A conditional that makes an object of a text: there, constructors do not help.
CHOSEN_TEXT = re.compile(r"\?[^;,]*[\w>][({][^;]*\"")
# Types with constructors, and calls that take nothing but such.
HAVE_CONSTRUCTORS = re.compile(r"((cordma::)?endpoint|(std::)?string(_view)?|connect\()$")
# Words of a doc comment, and the tag of docs/Doxyfile for each.
TAGS = {"Errors:": "errors", "Throws": "errors", "Cost:": "cost", "Thread:": "thread",
        "Threads:": "thread"}
UNTAGGED = re.compile(r"///.*\b(Errors:|Cost:|Threads?:|Throws\b)")
# A type's head where it is defined, and a declaration of one that is defined elsewhere, friends as well.
KEYWORDS = r"(?:struct|class|union|enum(?: class| struct)?) (?:[A-Z_]+ |\[\[\w+\]\] |alignas\(.*?\) )*"
DEFINED = re.compile(r"(?:namespace [\w:]+ \{ )*(?:template <.*> )?" + KEYWORDS + r"(\w+)(?:[^;]*$|[^;{]*\{)")
NESTED = re.compile(r"\s*(?:template <.*> )?" + KEYWORDS + r"(?:[\w<>]+::)*(\w+)(?:[^;]*$|[^;{]*\{)")
DECLARED = re.compile(r"(?<![\w<,(])" + KEYWORDS + r"(?:\w*::)*(\w+)(?:<[^;]*>)?(?: : [\w:]+)?;")
# Work requests are posted in these rooms, and where a probe has a queue pair of its own.
POST = re.compile(r"\b(ibv_post_\w+|post_send)\s*\(")
POSTS = ("lib/queue/", "lib/verbs/", "lib/agent/window_probe.cpp", "lib/sim/request_")
SLEEP = re.compile(r"(std::this_thread::sleep_(for|until)|(?<![\w.>:])(::)?(u|nano)?sleep)\s*\(")


class Tree:
    """The text files of a source tree, by path relative to its root."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = {}
        self.paths = {"."}  # All files and their folders, whatever is in them.
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if re.match(r"(subprojects/[^/]+/)?(\.git|\.cache|build[^/]*)(/|$)", name):
                continue
            if "__pycache__" in name or not path.is_file() or path.is_symlink():
                continue
            self.paths.add(name)
            self.paths.update(parent.as_posix() for parent in path.relative_to(self.root).parents)
            try:
                self.files[name] = path.read_text().split("\n")
            except UnicodeDecodeError:
                continue

    def cpp(self, *folders):
        """cordma's and softverbs' sources in these folders of theirs."""
        for name, lines in self.files.items():
            folder = name.removeprefix(SOFTVERBS).split("/")[0]
            if name.endswith((".hpp", ".cpp", ".h")) and folder in (folders or CODE_FOLDERS):
                yield name, lines

    def includes(self, name):
        """(line number, quote, path) of each #include."""
        for number, line in enumerate(self.files[name], 1):
            if match := INCLUDE.match(line):
                yield number, match[1], match[2]


def room_of(name):
    """The room a file under include/cordma/ or lib/ lies in; None elsewhere (the umbrella, say)."""
    parts = name.replace("/detail/", "/").split("/")
    if parts[0] == "lib" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ["include", "cordma"] and len(parts) > 3:
        return parts[2]
    return None


def public_names(stem):
    """Where the header of `room/file` may lie among the installed ones."""
    return f"cordma/{stem}.hpp", f"cordma/detail/{stem}.hpp"


def layers(tree):
    for name, _ in tree.cpp("include", "lib"):
        room = room_of(name)
        for number, quote, path in tree.includes(name):
            parts = path.replace("cordma/detail/", "cordma/").split("/")
            if quote == '"' and name.startswith("include/"):
                yield name, number, f'a public header includes only by <>, never private "{path}"'
            target = None
            if parts[0] == "cordma" and len(parts) > 2:
                target = parts[1]
            elif quote == '"' and len(parts) > 1 and parts[0] in MAY_INCLUDE:
                target = parts[0]
            if room is None or target is None or target == room:
                continue
            if room not in MAY_INCLUDE:
                yield name, number, f"room {room} is not in the table of tests/hygiene/hygiene.py"
            elif target not in MAY_INCLUDE[room].split():
                yield name, number, f"room {room} may not include {target}"


def declarations(tree):
    """A room that declares another's type knows of that room, as if it included it."""
    defined_in, nested = {}, set()
    for name, lines in tree.cpp("include", "lib"):
        for line in lines:
            if match := NESTED.match(line):
                nested.add((room_of(name), match[1]))
            if (match := DEFINED.match(line)) and room_of(name):
                defined_in.setdefault(match[1], set()).add(room_of(name))
    for name, lines in tree.cpp("include", "lib"):
        room = room_of(name)
        for number, line in enumerate(lines, 1):
            for declared in DECLARED.findall(line.partition("//")[0]):
                rooms = defined_in.get(declared, set())
                if line.startswith(" ") and (room, declared) in nested:
                    continue  # A class of that room has a type of that name.
                if room and rooms and not rooms & {room, *MAY_INCLUDE.get(room, "").split()}:
                    yield name, number, f"room {room} may not know {declared}, of {', '.join(sorted(rooms))}"


def softverbs_layers(tree):
    for name, _ in tree.cpp():
        is_softverbs = name.startswith(SOFTVERBS)
        parts = name.removeprefix(SOFTVERBS).split("/")
        for number, _, path in tree.includes(name):
            target = path.split("/")[0]
            if is_softverbs and target == "cordma":
                yield name, number, "softverbs knows nothing of cordma"
            is_library = not is_softverbs and parts[0] in ("include", "lib") and room_of(name) != "sim"
            if is_library and target == "softverbs":
                yield name, number, "the library knows nothing of softverbs"
            if not is_softverbs or parts[0] != "src" or target not in SOFTVERBS_ROOMS:
                continue
            if parts[1] not in SOFTVERBS_ROOMS:
                yield name, number, f"room {parts[1]} is not in the table of tests/hygiene/hygiene.py"
            elif (SOFTVERBS_ROOMS.index(target) > SOFTVERBS_ROOMS.index(parts[1])
                  and not (path == UPCALLS and parts[1] == "link")):
                yield name, number, f"room {parts[1]} may not include {target}"


def lines_max(name):
    if name.endswith((".hpp", ".h")):
        return HEADER_LINES_MAX
    folder = name.removeprefix(SOFTVERBS).split("/")[0]
    if folder in ("lib", "src"):
        return SOURCE_LINES_MAX
    return TEST_LINES_MAX if folder == "tests" else LINES_MAX


def sizes(tree):
    python = [(name, lines) for name, lines in tree.files.items() if name.endswith(".py")]
    for name, lines in [*tree.cpp(), *python]:
        if len(lines) - 1 > lines_max(name):
            yield name, lines_max(name), f"{len(lines) - 1} lines: split it by {lines_max(name)}"
    for name, lines in tree.cpp():
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                yield name, number, f"{len(line)} columns, the limit is {COLUMNS_MAX}"


def functions(tree):
    """clang-format puts a namespace-level function's closing brace in column 0 or, in a class, 2."""
    for name, lines in tree.cpp("include", "lib", "src", "examples", "bench", "tools"):
        start = {}
        for number, line in enumerate(lines, 1):
            indent = len(line) - len(line.lstrip())
            is_code = line.rstrip().endswith("{") and indent <= 2
            if is_code and not re.match(r"\s*(namespace|class|struct|enum|union|extern|template)\b",
                                        line):
                start[indent] = number
            if re.match(r"\s*\}", line) and indent in start:
                length = number - start.pop(indent) + 1
                if length > FUNCTION_LINES_MAX:
                    yield name, number, (f"a function of {length} lines, "
                                         f"the limit is {FUNCTION_LINES_MAX}")


def guards(tree):
    for name, lines in tree.cpp():
        if name.endswith(".hpp") and "#pragma once" not in lines:
            yield name, 1, "no #pragma once"
        if name.endswith(".h") and not any(line.startswith("#ifndef") for line in lines):
            yield name, 1, "no #ifndef, as C has it, around it"


def own_header_first(tree):
    for name, _ in tree.cpp("lib", "src"):
        if not name.endswith(".cpp"):
            continue
        root = SOFTVERBS + "src/" if name.startswith(SOFTVERBS) else "lib/"
        stem = name[len(root):-len(".cpp")]
        public = {path for path in public_names(stem) if f"include/{path}" in tree.files}
        private = f"{root}{stem}.hpp"
        if public:
            expected = public
        elif private in tree.files:
            expected = {f"{stem}.hpp", f"{stem.split('/')[-1]}.hpp", private}
        else:
            continue
        first = next(tree.includes(name), (1, "", "nothing"))
        if first[2] not in expected:
            yield name, first[0], f"its own header comes first, not {first[2]}"


def words(tree):
    for name, lines in tree.files.items():
        if name == "LICENSE":
            continue
        for number, line in enumerate(lines, 1):
            if match := BANNED.search(line):
                yield name, number, f"'{match[0]}': do it, or leave it out"
            if match := MACHINE_PATH.search(line):
                yield name, number, f"a path of one machine: {match[0]}..."


def sleeps(tree):
    for name, lines in tree.cpp("tests"):
        for number, line in enumerate(lines, 1):
            if match := SLEEP.search(line):
                yield name, number, f"a test waits for an event or turns a clock: {match[0]}...)"


def miscompiled_awaits(tree):
    for name, lines in tree.cpp("include", "lib", "tests", "examples", "bench", "tools"):
        for number, line in enumerate(lines, 1):
            if TESTED_AWAIT.search(line):
                yield name, number, "g++ 12 miscompiles this co_await: name its result"
        # Without what strings and comments say.
        text = re.sub(r'"[^"\n]*"', '""', "\n".join(lines))
        text = re.sub(r"//.*", "", text)
        for number in awaits.in_conditions(text):
            yield name, number, "g++ 12 may hang where a condition awaits: name the result first"
        for awaited in AWAITED.finditer(text):
            for braces in BRACED_TEXT.finditer(awaited[0]):
                if not HAVE_CONSTRUCTORS.match(braces[1]):
                    number = text.count("\n", 0, awaited.start() + braces.start()) + 1
                    yield name, number, "g++ 12 destroys what is in these braces twice: name it first"
            if chosen := CHOSEN_TEXT.search(awaited[0]):
                number = text.count("\n", 0, awaited.start() + chosen.start()) + 1
                yield name, number, "g++ 12 destroys what this ?: makes twice: name it first"


def dead_files(tree):
    for name, _ in tree.cpp("lib", "src", "tests", "fuzz", "examples", "bench", "tools"):
        if not name.endswith(".cpp"):
            continue
        path = pathlib.PurePosixPath(name)
        # A program may take files of the room beside it.
        wanted = [(path.parents[1] / room, f"../{path.parent.name}/{path.name}")
                  for room in SOFTVERBS_ROOMS]
        wanted += [(path.parent, path.stem)]
        wanted += [(parent, path.relative_to(parent).as_posix()) for parent in path.parents]
        if not any(f"'{file}'" in "\n".join(tree.files.get(f"{folder}/meson.build", []))
                   for folder, file in wanted):
            yield name, 1, "no meson.build names it"


def exceptions_of(tree):
    """tests/hygiene/untested.txt: `room/stem | reason` a line."""
    for line in tree.files.get("tests/hygiene/untested.txt", []):
        if line.strip() and not line.startswith("#"):
            stem, _, reason = (part.strip() for part in line.partition("|"))
            yield stem, reason


def mirrored_tests(tree):
    listing = "tests/hygiene/untested.txt"
    sources = {f"{room_of(name)}/{pathlib.PurePosixPath(name).stem}": name
               for name, _ in tree.cpp("include", "lib") if room_of(name)}
    excepted = dict(exceptions_of(tree))
    for stem, reason in excepted.items():
        if not reason or stem not in sources:
            yield listing, 1, f"{stem}: no such source, or no reason given"
    for stem, name in sources.items():
        tested = f"tests/{stem}_test.cpp" in tree.files
        if tested and stem in excepted:
            yield listing, 1, f"{stem} has a test now: take it out"
        elif not tested and stem not in excepted:
            yield name, 1, f"no tests/{stem}_test.cpp (exceptions: {listing})"


def changelog(tree):
    lines = tree.files.get("CHANGELOG.md", [])
    if not lines or lines[0] != "# Changelog":
        yield "CHANGELOG.md", 1, "its first line is '# Changelog'"
    version = None
    for number, line in enumerate(lines, 1):
        if line.startswith("## "):
            version = line
            if not re.fullmatch(r"## (Unreleased|\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d)", line):
                yield "CHANGELOG.md", number, "write '## Unreleased' or '## 1.2.3 - 2024-12-31'"
        elif line.startswith("### "):
            if version is None or line[4:] not in ("Safety", "Features", "Internals"):
                yield "CHANGELOG.md", number, "sections are Safety, Features, Internals"
        elif line.startswith("- ") and version is None:
            yield "CHANGELOG.md", number, "an entry belongs to a version"


def installed(tree):
    """include/meson.build names each header, and the umbrella each that is public and no bridge. That of cordma-sim,
    a library of its own, is installed with it."""
    listing = "include/meson.build"
    named = set(re.findall(r"'([\w/]+\.hpp)'", "\n".join(tree.files.get(listing, []))))
    named |= set(re.findall(r"'../../include/cordma/([\w/]+\.hpp)'",
                            "\n".join(tree.files.get("lib/sim/meson.build", []))))
    there = {name.removeprefix("include/cordma/") for name in tree.files
             if name.startswith("include/cordma/")}
    for header in sorted(named ^ there):
        yield listing, 1, (f"there is no {header}" if header in named else f"does not name {header}")
    umbrella = "include/cordma/cordma.hpp"
    wanted = {f"cordma/{header}" for header in there - {"cordma.hpp", front.OF_SIM}
              if "detail/" not in header and not front.is_bridge(header)}
    included = {path for _, _, path in tree.includes(umbrella)} if umbrella in tree.files else wanted
    for header in sorted(wanted ^ included):
        yield umbrella, 1, f"includes the public headers, and no others: {header}"


def private_headers(tree):
    """What users copy, examples and documents, includes public headers only."""
    shown = [name for name in tree.files if name.endswith(".md") or name.startswith("examples/")]
    for name in shown:
        for number, _, path in tree.includes(name):
            if path.startswith("cordma/detail/"):
                yield name, number, f"{path} is private: include the public header that needs it"


def doc_tags(tree):
    """Doc comments have one dialect: the tags of docs/Doxyfile."""
    for name, lines in tree.cpp("include", "lib", "src", "tools", "tests"):
        for number, line in enumerate(lines, 1):
            if match := UNTAGGED.search(line):
                yield name, number, f"'{match[1]}' in a doc comment: write \\{TAGS[match[1]]}"


def plain_comments(tree):
    """A comment stands alone, in sentences that are read once."""
    for name, lines in tree.files.items():
        is_script = name.endswith((".py", "meson.build")) or lines[0].startswith("#!")
        if not is_script and not name.endswith((".hpp", ".cpp", ".h", ".cpp.in")):
            continue
        for number, what in comments.findings(lines, is_script):
            yield name, number, what


def one_engine(tree):
    """The room queue posts work requests, and nobody else: a simulation only watches."""
    for name, lines in tree.cpp("lib"):
        for number, line in enumerate(lines, 1):
            if not name.startswith(POSTS) and (match := POST.search(line.partition("//")[0])):
                yield name, number, f"{match[1]} is the room queue's: post by its queues"


def plain_names(tree):
    """Names are made of the field's words."""
    for name, lines in tree.cpp():
        for number, what in identifiers.findings(lines):
            yield name, number, what


def links(tree):
    """A document's relative links lead to files, folders and headings that exist."""
    return document_links.findings(tree.files, tree.paths)


RULES = (layers, declarations, softverbs_layers, sizes, functions, guards, own_header_first, words,
         assertions, sleeps, miscompiled_awaits, dead_files, mirrored_tests, changelog, installed, private_headers,
         doc_tags, plain_comments, plain_names, one_engine, links)


def findings(root, rules=RULES):
    tree = Tree(root)
    for rule in rules:
        for name, number, what in rule(tree):
            yield f"{name}:{number}: {what}"


def main():
    found = list(findings(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
