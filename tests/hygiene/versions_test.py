#!/usr/bin/env python3
"""One version stands wherever one is named: `versions_test.py ROOT`."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

# File, and what finds the version in it.
WHOLE = {
    "meson.build": r"version: '(.*?)'",
    "subprojects/softverbs/meson.build": r"version: '(.*?)'",
    "debian/changelog": r"^cordma \((.*?)\)",
    "packaging/rpm/cordma.spec": r"Version: *(\S+)",
    "packaging/conan/conanfile.py": r'version = "(.*?)"',
    "packaging/vcpkg/vcpkg.json": r'"version": "(.*?)"',
}
MINOR = {
    "README.md": r"find_package\(cordma (\S+) ",
    "debian/control": r"^Package: libcordma([0-9.]+)$",
    "packaging/cmake/cordma-config.cmake.in": r"find_package\(cordma (\S+) ",
}


def found_in(root, file, pattern):
    found = re.search(pattern, (root / file).read_text(), re.MULTILINE)
    assert found, f"{file}: no version where it should be"
    return found[1]


def main():
    root = pathlib.Path(sys.argv[1])
    all_cases = cases.Cases("versions")
    with all_cases.case("all files name one version"):
        header = (root / "include/cordma/version.hpp").read_text()
        version = ".".join(re.findall(r"CORDMA_VERSION_\w+ (\d+)", header))
        named = {file: found_in(root, file, pattern) for file, pattern in WHOLE.items()}
        assert set(named.values()) == {version}, f"version.hpp has {version}; {named}"
        minor = version.rpartition(".")[0]
        named = {file: found_in(root, file, pattern) for file, pattern in MINOR.items()}
        assert set(named.values()) == {minor}, f"version.hpp has {version}; {named}"
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
