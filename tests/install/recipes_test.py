#!/usr/bin/env python3
"""The recipes of packaging/ are what their tools understand: `recipes_test.py ROOT`.

rpmspec (Debian: rpm) and systemd-analyze (systemd) are used where they are.
"""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

GIVEN = re.compile(r"-D([\w:]+)=([^\s)\\]+)")
BOOLEANS = ["true", "false"]
WITH_OPTIONS = ("packaging/container/Containerfile", "packaging/rpm/cordma.spec", "packaging/vcpkg/portfile.cmake",
                "debian/rules")
# Functions of ports of vcpkg. All others are vcpkg's own.
VCPKG_PORTS = {"vcpkg_cmake_config_fixup": "vcpkg-cmake-config", "vcpkg_configure_meson": "vcpkg-tool-meson"}
PACKAGES = {"cordma", "cordma-devel", "cordma-tools", "softverbs"}


def said(tool, *arguments):
    """What a tool prints, which succeeds. Its warnings are printed, too."""
    if not shutil.which(tool):
        raise unittest.SkipTest(f"there is no {tool}")
    done = subprocess.run([tool, *arguments], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"{tool} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def check_unit(unit):
    """A copy starts a program that is there, as who uses the example makes one."""
    text, started = re.subn(r"^ExecStart=.*$", f"ExecStart={shutil.which('true')}", unit.read_text(), flags=re.MULTILINE)
    assert started == 1, text
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, unit.name)
        copy.write_text(text)
        # The machine's own units, for which the copy waits, may have faults of their own.
        found = [line for line in said("systemd-analyze", "verify", copy).splitlines() if unit.name in line]
    assert not found, found


def options_of(root):
    """Each of Meson's options, and the values that it takes; None: any."""
    listed = subprocess.run(["meson", "introspect", "--buildoptions", root / "meson.build"], text=True, check=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return {option["name"]: BOOLEANS if option["type"] == "boolean" else option.get("choices")
            for option in json.loads(listed)}


def check_options(root):
    known = options_of(root)
    for path in WITH_OPTIONS:
        given = GIVEN.findall((root / path).read_text())
        assert given, f"{path} has no -D"
        for name, value in given:
            assert name in known, f"{path}: Meson has no option {name}"
            assert known[name] is None or value in known[name], f"{path}: -D{name}={value}"


def check_conan(recipe):
    """Conan 2 refuses files from outside the recipe's folder, unless the method export_sources copies them."""
    (made,) = (node for node in ast.parse(recipe.read_text(), recipe).body if isinstance(node, ast.ClassDef))
    methods = {node.name for node in made.body if isinstance(node, ast.FunctionDef)}
    assert {"export_sources", "layout", "package_info"} <= methods, methods
    attributes = {target.id for node in made.body if isinstance(node, ast.Assign) for target in node.targets}
    assert "exports_sources" not in attributes, attributes


def check_vcpkg(port):
    needed = {one if isinstance(one, str) else one["name"]
              for one in json.loads((port / "vcpkg.json").read_text())["dependencies"]}
    called = re.findall(r"^(vcpkg_\w+)\(", (port / "portfile.cmake").read_text(), re.MULTILINE)
    missing = {VCPKG_PORTS[name] for name in called if name in VCPKG_PORTS} - needed
    assert called and not missing, missing


def main():
    root = pathlib.Path(sys.argv[1])
    packaging = root / "packaging"
    run = cases.Cases("recipes")
    with run.case("rpm reads the recipe for Fedora, and finds its four packages"):
        spec = packaging / "rpm/cordma.spec"
        said("rpmspec", "--parse", spec)
        names = said("rpmspec", "--query", "--queryformat", "%{name}\n", spec).split()
        assert set(names) == PACKAGES, names
    with run.case("systemd finds nothing to say of the unit"):
        check_unit(packaging / "systemd/cordma-server.service")
    with run.case("Python reads the recipe for Conan, which exports the tree by a method"):
        check_conan(packaging / "conan/conanfile.py")
    with run.case("the recipe for vcpkg is JSON, and depends on the ports whose functions it calls"):
        check_vcpkg(packaging / "vcpkg")
    with run.case("recipes give Meson options that it has"):
        check_options(root)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
