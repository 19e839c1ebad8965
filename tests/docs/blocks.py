#!/usr/bin/env python3
"""The fenced blocks of the documents, and those of C++ as the compiler sees them.

    blocks.py ROOT TEMPLATE OUTPUT     writes TEMPLATE with each line `//@ docs/rpc.md 3` replaced by
                                       the third C++ block of that document
"""

import pathlib
import re
import sys

FENCED = re.compile(r"^ *```([^\n`]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"^//@ (\S+) (\d+)$", re.MULTILINE)


def documents(root):
    """What users read: README, docs and softverbs' README, by path relative to the root."""
    return ["README.md", *sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")),
            "subprojects/softverbs/README.md"]


def fenced(document):
    """(line number, language, text) of each block."""
    text = document.read_text()
    return [(text.count("\n", 0, block.start(2)) + 1, block[1], block[2]) for block in FENCED.finditer(text)]


def blocks_of(document, wanted="cpp"):
    """(line number, text) of each block in a language."""
    return [(line, text) for line, language, text in fenced(document) if language == wanted]


def filled(root, template):
    def block(place):
        document, number = place[1], int(place[2])
        blocks = blocks_of(root / document)
        if number > len(blocks):
            sys.exit(f"{template}: {document} has {len(blocks)} blocks of C++, not {number}")
        line, text = blocks[number - 1]
        after = place.string.count("\n", 0, place.end()) + 2
        return f'#line {line} "{document}"\n{text}#line {after} "{template.name}"'

    return PLACE.sub(block, template.read_text())


def missing(root, templates):
    """The blocks that stand in none of them."""
    shown = {place.groups() for template in templates for place in PLACE.finditer(template.read_text())}
    return [f"{document} {number}" for document in documents(root)
            for number in range(1, len(blocks_of(root / document)) + 1)
            if (document, str(number)) not in shown]


if __name__ == "__main__":
    pathlib.Path(sys.argv[3]).write_text(filled(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
