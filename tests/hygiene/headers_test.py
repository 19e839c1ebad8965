#!/usr/bin/env python3
"""Each public header compiles alone: `headers_test.py ROOT STAMP_FOLDER COMPILER...`.

The build itself shows it of a header that a source of the library includes first. Any other is
compiled here, and again only when something that it includes has changed.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402


def is_fresh(stamp):
    """`stamp` is a depfile, `target: file file \\ ...`, newer than all that it names."""
    try:
        made = stamp.stat().st_mtime
        files = stamp.read_text().replace("\\\n", " ").split(":", 1)[1].split()
        return all(os.stat(file).st_mtime <= made for file in files if file != "-")
    except (OSError, IndexError):
        return False


def complaints(header, include, stamp, compiler):
    """What the compiler says about a file that only includes `header`; None when it is content."""
    if is_fresh(stamp):
        return None
    stamp.unlink(missing_ok=True)
    source = stamp.with_suffix(".cpp")
    source.write_text(f"#include <{header}>\n")
    # ccache knows a file that is compiled, but none whose syntax alone is looked at.
    done = subprocess.run(
        [*compiler, "-std=c++20", "-Wall", "-Wextra", "-Wnon-virtual-dtor", "-Werror", "-O0",
         f"-I{include}", "-MD", "-MF", stamp, "-c", source, "-o", stamp.with_suffix(".o")],
        text=True, capture_output=True, check=False)
    if done.returncode == 0:
        return None
    stamp.unlink(missing_ok=True)
    return done.stderr


def first_includes(folder):
    """What the sources include first."""
    found = (re.search(r'^#include ["<](.+?)[">]', path.read_text(), re.MULTILINE)
             for path in folder.rglob("*.cpp"))
    return {one[1] for one in found if one}


def main():
    root, stamps, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    include = root / "include"
    stamps.mkdir(parents=True, exist_ok=True)
    # The public headers include those of detail/.
    headers = sorted({path.relative_to(include).as_posix() for path in include.rglob("*.hpp")
                      if "detail" not in path.parts} - first_includes(root / "lib"))
    run = cases.Cases("headers")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = pool.map(
            lambda header: complaints(header, include, stamps / (header.replace("/", "_") + ".d"),
                                      compiler), headers)
        for header, complaint in zip(headers, said):
            with run.case(f"<{header}> compiles alone"):
                assert complaint is None, complaint
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
