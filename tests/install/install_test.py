#!/usr/bin/env python3
"""A program outside the tree uses cordma as installed, by pkg-config alone, and as a subproject.

    install_test.py SOURCE_ROOT BUILD_ROOT SCRATCH PROGRAM.CPP SIM_PROGRAM.CPP static|shared COMPILER...

BUILD_ROOT is built with the one, the subproject with the other. SCRATCH holds the subproject's user
and is kept between runs, so that the library is not built anew each time. SIM_PROGRAM, a test on simulated
hosts, uses cordma-sim where that is built.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402
import link_order  # noqa: E402

SUBPROJECT_USER = """project('user', 'cpp',
  default_options: ['cpp_std=c++20', 'cordma:default_library=LIBRARY'])
cordma = dependency('cordma')
executable('program', 'program.cpp', dependencies: cordma)
# Found where cordma has it.
executable('program_on_soft0', 'program.cpp', dependencies: [dependency('softverbs'), cordma])
"""
SIMULATION_USER = """executable('sim_program', 'sim_program.cpp', dependencies: dependency('cordma-sim'))
"""


def run(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


def check_program(program):
    """Returns the devices that it finds."""
    # For the program's malloc, were that jemalloc; cordma's own does not look.
    said = run(program, env={**os.environ, "MALLOC_CONF": "nonsense:1"})
    found = re.fullmatch(r"((?:.*: 4096 bytes registered\n)*)malloc is in (.*)\n"
                         r"cordma 0: poll: disconnected\n", said)
    assert found, said
    # jemalloc allocates registered memory alone.
    assert pathlib.Path(found[2]).name.startswith("libc."), said
    return [line.partition(":")[0] for line in found[1].splitlines()]


def by_pkg_config(build, outside, source, simulation, compiler):
    destdir = outside / "installed"
    run("meson", "install", "-C", build, "--no-rebuild", "--destdir", destdir)
    (pc,) = destdir.rglob("cordma.pc")
    # The pc file names the prefix it was built for; the files lie below DESTDIR.
    (prefix,) = (line[len("prefix="):] for line in pc.read_text().splitlines()
                 if line.startswith("prefix="))
    def flags_of(*packages, prefix=f"{destdir}{prefix}"):
        flags = run("pkg-config", f"--define-variable=prefix={prefix}", "--cflags", "--libs", *packages,
                    env={**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}).split()
        assert not [flag for flag in flags if str(build) in flag], f"points into the build: {flags}"
        assert not [flag for flag in flags if "pmix" in flag], f"only cordma's own sources need PMIx: {flags}"
        return flags

    program = outside / "program"
    run(*compiler, "-std=c++20", source, "-o", program, *flags_of("cordma"), cwd=outside)
    check_program(program)
    # Users compile coroutines with the flags that the benchmarks' are compiled with.
    assert "-foptimize-sibling-calls" in flags_of("cordma")
    # A later standard is the program's choice: the last -std on the command line is what counts.
    assert not [flag for flag in flags_of("cordma") if flag.startswith("-std")]
    run(*compiler, "-std=c++2b", "-fsyntax-only", source, *flags_of("cordma"), cwd=outside)
    in_c(outside, source.parent / "program.c", flags_of, destdir)
    tools(destdir)
    if list(destdir.rglob("softverbs.pc")):
        on_soft0(outside, source, compiler, flags_of, destdir)
    if list(destdir.rglob("cordma-sim.pc")):
        on_simulated_hosts(outside, simulation, compiler, flags_of, destdir)


def in_c(outside, source, flags_of, destdir):
    """A program in C needs no flag and no library of C++."""
    flags = flags_of("cordma-c")
    libraries = [flag for flag in flags if flag.startswith("-l")]
    assert libraries == ["-lcordma-c"], flags
    (library,) = (path.parent for path in destdir.rglob("libcordma-c.so"))
    program = outside / "program_in_c"
    run("cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", source, "-o", program, *flags,
        f"-Wl,-rpath,{library}", cwd=outside)
    said = run(program)
    assert re.fullmatch(r"cordma 0\.\d+\.\d+: no such RDMA device\n", said), said


def check_order(flags_of, packages, *wanted):
    """Each library is named once, in this order. In /usr pkg-config leaves -L out and joins fewer flags: the
    first mentions are in this order there."""
    known = ("-lcordma-sim", "-lsoftverbs", "-libverbs")
    flags = flags_of(*packages)
    assert [flag for flag in flags if flag in known] == list(wanted), flags
    flags = flags_of(*packages, prefix="/usr")
    first = [flags.index(flag) for flag in wanted]
    assert first == sorted(first), flags


def on_soft0(outside, source, compiler, flags_of, destdir):
    """softverbs is searched ahead of libibverbs, in whatever order the two are named."""
    (library,) = (path.parent for path in destdir.rglob("libsoftverbs.so"))
    objects = outside / "program.o"
    run(*compiler, "-std=c++20", "-c", source, "-o", objects, *flags_of("cordma"), cwd=outside)
    for packages in (("cordma", "softverbs"), ("softverbs", "cordma")):
        flags = flags_of(*packages)
        check_order(flags_of, packages, "-lsoftverbs", "-libverbs")
        program = outside / "program_on_soft0"
        run(*compiler, objects, "-o", program, *flags, f"-Wl,-rpath,{library}", cwd=outside)
        assert "soft0" in check_program(program), packages


def tools(destdir):
    """An installed tool finds its libraries, and has its man page."""
    for name in ("cordma-perf", "softverbs-run"):
        for program in destdir.rglob(f"bin/{name}"):
            run(program, "--help", env={**os.environ, "LD_LIBRARY_PATH": ""})
            assert list(destdir.rglob(f"man/man1/{name}.1")), name


def on_simulated_hosts(outside, source, compiler, flags_of, destdir):
    """cordma-sim has cordma inside, and softverbs comes ahead of libibverbs."""
    flags = flags_of("cordma-sim")
    check_order(flags_of, ["cordma-sim"], "-lcordma-sim", "-lsoftverbs", "-libverbs")
    assert "-lcordma" not in flags, flags
    (library,) = (path.parent for path in destdir.rglob("libsoftverbs.so"))
    program = outside / "sim_program"
    run(*compiler, "-std=c++20", source, "-o", program, *flags, f"-Wl,-rpath,{library}", cwd=outside)
    check_simulation(program)


def check_simulation(program):
    said = run(program)
    assert said == "hello\nthe same seed: the same run, another seed: another run\n", said


def as_subproject(cordma, scratch, source, simulation, library):
    """`simulation` is None where cordma-sim is not built."""
    project = scratch / "subproject_user"
    definition = project / "meson.build"
    wanted = SUBPROJECT_USER.replace("LIBRARY", library) + (SIMULATION_USER if simulation else "")
    is_set_up = (project / "build" / "build.ninja").exists()
    if not is_set_up or definition.read_text() != wanted:
        shutil.rmtree(project, ignore_errors=True)
        (project / "subprojects").mkdir(parents=True)
        definition.write_text(wanted)
        (project / "subprojects" / "cordma").symlink_to(cordma)
        (project / "subprojects" / "cordma.wrap").symlink_to(cordma / "packaging" / "cordma.wrap")
        # Links, not a copy: an edit of the program is then built.
        (project / "program.cpp").symlink_to(source)
        if simulation:
            (project / "sim_program.cpp").symlink_to(simulation)
        run("meson", "setup", "--buildtype=plain", "--unity=on", "--unity-size=40", "build", cwd=project)
        # ccache then finds what another clone compiled.
        run(sys.executable, cordma / "tools/dev/relative_unity.py",
            env={**os.environ, "MESON_BUILD_ROOT": str(project / "build")})
    programs = ["program", "program_on_soft0", *(["sim_program"] if simulation else [])]
    run("ninja", "-C", project / "build", *programs)
    targets = run("ninja", "-C", project / "build", "-t", "targets", "all")
    assert "subprojects/cordma/tests/test_" not in targets, "its tests are built, too"
    assert "soft0" not in check_program(project / "build" / "program")
    on_soft0 = project / "build" / "program_on_soft0"
    assert "soft0" in check_program(on_soft0)
    link_order.softverbs_comes_first(on_soft0)
    if simulation:
        check_simulation(project / "build" / "sim_program")


def main():
    cordma, build, scratch, source, simulation = (pathlib.Path(path).resolve() for path in sys.argv[1:6])
    built, compiler = sys.argv[6], sys.argv[7:]
    has_simulation = (build / "meson-private/cordma-sim.pc").exists()
    other = "shared" if built == "static" else "static"
    scratch.mkdir(parents=True, exist_ok=True)
    all_cases = cases.Cases("install")
    with all_cases.case("programs outside the tree build and run with pkg-config alone, on soft0 and simulated hosts"):
        with tempfile.TemporaryDirectory() as outside:
            by_pkg_config(build, pathlib.Path(outside), source, simulation, compiler)
    with all_cases.case(f"a program that has cordma as a Meson subproject, {other}, builds and runs"):
        as_subproject(cordma, scratch, source, simulation if has_simulation else None, other)
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
