#!/usr/bin/env python3
"""Lets clang-tidy read programs together: `tidy_together.py BUILD`, behind `tests/support/check`.

Nearly all of clang-tidy's time goes to the headers of a translation unit. Programs of a folder whose one
source has no named namespace are therefore included by one file, each in a namespace of its own behind the
headers of all. BUILD/together/compile_commands.json then has this file in their place.
"""

import json
import pathlib
import re
import shlex
import sys

FOLDERS = ("examples", "bench")
INCLUDE = re.compile(r"^#include .*", re.MULTILINE)
NAMED_NAMESPACE = re.compile(r"^(inline )?namespace \w", re.MULTILINE)
UNITY = re.compile(r'#include "([^"]+)"')


def sources_of(entry):
    """Returns the files that a file of Meson's unity build includes."""
    unit = pathlib.Path(entry["directory"], entry["file"])
    if "-unity" not in unit.name or not unit.is_file():
        return []
    return [(unit.parent / name).resolve() for name in UNITY.findall(unit.read_text())]


def flags_of(entry):
    """Returns the flags that tell what the source means: folders, and macros."""
    words = shlex.split(entry["command"])
    folders = [word for word in words if word.startswith(("-I", "-isystem")) and not word.endswith(".p")]
    return folders, frozenset(word for word in words if word.startswith("-D"))


def text_together(sources):
    texts = {source: source.read_text() for source in sources}
    headers = dict.fromkeys(line for text in texts.values() for line in INCLUDE.findall(text))
    bodies = (f'namespace together_{number} {{\n#include "{source}"\n}}'
              for number, source in enumerate(texts))
    return "\n".join([*headers, *bodies]) + "\n"


def together(build, entries):
    """Returns the entries of a database in which one file stands for many, and writes these files."""
    chosen, others = {}, []
    for entry in entries:
        sources = sources_of(entry)
        folder = pathlib.PurePath(entry["file"]).parts[0]
        if folder in FOLDERS and len(sources) == 1 and \
                not NAMED_NAMESPACE.search(sources[0].read_text()):
            chosen.setdefault((folder, flags_of(entry)[1]), []).append((entry, sources[0]))
        else:
            others.append(entry)
    for number, ((folder, _), found) in enumerate(chosen.items()):
        if len(found) == 1:
            others.append(found[0][0])
            continue
        name = f"{folder}/together_{number}.cpp"
        (build / name).write_text(text_together([source for _, source in found]))
        folders = dict.fromkeys(word for entry, _ in found for word in flags_of(entry)[0])
        entry, _ = found[0]
        rest = [word for word in shlex.split(entry["command"])
                if not word.startswith("-I") and word != entry["file"]]
        command = shlex.join([rest[0], *folders, *rest[1:], name])
        others.append({"directory": entry["directory"], "file": name, "command": command})
    return others


def main():
    build = pathlib.Path(sys.argv[1])
    entries = json.loads((build / "compile_commands.json").read_text())
    folder = build / "together"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(together(build, entries), indent=1))


if __name__ == "__main__":
    main()
