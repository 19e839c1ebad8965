#!/usr/bin/env python3
"""Makes Meson's unity sources the same in every clone: they name the files that they include by
absolute paths, and ccache would find none of them that another clone compiled. Meson runs this
program after it has configured."""

import os
import pathlib
import re

INCLUDE = re.compile(r"^#include<(/.*)>$", re.MULTILINE)


def relative(text, folder):
    return INCLUDE.sub(lambda match: f'#include "{os.path.relpath(match[1], folder)}"', text)


def main():
    for source in pathlib.Path(os.environ["MESON_BUILD_ROOT"]).rglob("*-unity*.cpp"):
        source.write_text(relative(source.read_text(), source.parent))


if __name__ == "__main__":
    main()
