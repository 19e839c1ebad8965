#!/usr/bin/env python3
"""Programs outside the tree find cordma by CMake, with each compiler that is here.

    cmake_test.py BUILD_ROOT COMPILER...

What BUILD_ROOT installs is moved to another folder, which CMake is told. Where the static library alone is
installed, the shared one is put beside it.
"""

import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402
import install_test  # noqa: E402
import link_order  # noqa: E402

PROGRAMS = pathlib.Path(__file__).parent
OTHER_COMPILERS = ("clang++-14", "clang++-19")


class Failed(Exception):
    pass


def run(*command):
    try:
        return install_test.run(*command)
    except AssertionError as failed:
        raise Failed(str(failed)) from None


class Installed:
    """The installed tree, and a scratch folder for its users."""

    def __init__(self, build, version, scratch):
        destdir = scratch / "installed"
        run("meson", "install", "-C", build, "--no-rebuild", "--destdir", destdir)
        (configuration,) = destdir.rglob("cordma-config.cmake")
        libraries = configuration.parent.parent.parent
        self.prefix = scratch / "moved"
        (prefix,) = (path for path in libraries.parents if (path / "include").exists())
        self.has_simulation = any(libraries.glob("libcordma-sim.a"))
        if not any(libraries.glob("libcordma.so")):
            shared = f"libcordma.so.{version}"
            shutil.copy(build / "lib" / shared, libraries)
            for name in ("libcordma.so", shared.rpartition(".")[0]):
                (libraries / name).symlink_to(shared)
        self.is_static = any(libraries.glob("libcordma.a"))
        prefix.rename(self.prefix)
        self._scratch = scratch
        self._users = 0

    def configure(self, compiler, wanted, *options):
        """Returns the build folder of a user that asks find_package for `wanted`."""
        self._users += 1
        build = self._scratch / f"user{self._users}"
        launcher = [word for word in compiler if word.endswith("ccache")]
        run("cmake", "-S", PROGRAMS / "cmake", "-B", build, "-G", "Ninja", f"-DPROGRAMS={PROGRAMS}",
            f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCORDMA_WANTED={wanted}",
            f"-DCMAKE_CXX_COMPILER={';'.join(compiler[len(launcher):])}",
            *(f"-DCMAKE_CXX_COMPILER_LAUNCHER={word}" for word in launcher), *options)
        return build

    def build(self, *arguments):
        build = self.configure(*arguments)
        run("cmake", "--build", build)
        return build


def check_programs(build):
    install_test.check_program(build / "program")
    for name in ("softverbs_first", "softverbs_last"):
        assert "soft0" in install_test.check_program(build / name), name
        link_order.softverbs_comes_first(build / name)


def refused(installed, compiler, wanted, *named):
    try:
        installed.configure(compiler, wanted)
    except Failed as why:
        # CMake breaks lines.
        said = " ".join(str(why).split())
        assert all(name in said for name in named), said
    else:
        raise AssertionError(f"'{wanted}' was found")


def main():
    build, compiler = pathlib.Path(sys.argv[1]), sys.argv[2:]
    version = json.loads(run("meson", "introspect", "--projectinfo", build))["version"]
    major, minor, _ = version.split(".")
    series = f"{major}.{minor}"
    all_cases = cases.Cases("cmake")
    with tempfile.TemporaryDirectory() as scratch:
        installed = Installed(build, version, pathlib.Path(scratch))
        kinds = {"shared": "-DBUILD_SHARED_LIBS=ON"}
        if installed.is_static:
            kinds["static"] = "-DBUILD_SHARED_LIBS=OFF"
        for kind, option in kinds.items():
            with all_cases.case(f"programs find {kind} cordma by CMake, and softverbs in whatever order"):
                built = installed.build(compiler, series, option)
                check_programs(built)
                loaded = run("ldd", built / "program")
                assert ("libcordma.so" in loaded) == (kind == "shared"), loaded
                said = run(built / "program_in_c")
                assert said == f"cordma {version}: no such RDMA device\n", said
        for name, options in {"LTO": ["-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON", "-DCMAKE_BUILD_TYPE=Release"],
                              "C++23 without RTTI": ["-DCMAKE_CXX_FLAGS=-fno-rtti", "-DCMAKE_CXX_STANDARD=23"]}.items():
            with all_cases.case(f"programs with {name} find cordma by CMake"):
                check_programs(installed.build(compiler, f"{series};COMPONENTS;cxx", *options))
        # Code of one C++ library does not link with that of another.
        others = [] if "-stdlib=libc++" in compiler else filter(shutil.which, OTHER_COMPILERS)
        for other in others:
            with all_cases.case(f"programs of {other} find cordma by CMake"):
                check_programs(installed.build([other], f"{series};COMPONENTS;cxx"))
        if installed.has_simulation:
            with all_cases.case("a test on simulated hosts finds cordma-sim by CMake"):
                simulated = installed.build(compiler, f"{version};EXACT;COMPONENTS;sim")
                install_test.check_simulation(simulated / "sim_program")
        with all_cases.case("CMake refuses other versions and unknown components, and names them"):
            refused(installed, compiler, f"{major}.{int(minor) + 1}", version, f"{major}.{int(minor) + 1}")
            refused(installed, compiler, f"{int(major) + 1}.0", version)
            refused(installed, compiler, f"{series};COMPONENTS;cxx;rust", "'rust'", "cxx, c and sim")
        with all_cases.case("programs without exceptions are refused in one line"):
            try:
                installed.build(compiler, series, "-DCMAKE_CXX_FLAGS=-fno-exceptions")
            except Failed as why:
                errors = [line for line in str(why).splitlines() if "error:" in line]
                assert len(errors) == 1 and "compile without -fno-exceptions" in errors[0], why
            else:
                raise AssertionError("it was built")
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
