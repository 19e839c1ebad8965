"""Build folders: how they are configured and built, plain and with a sanitizer."""

import dataclasses
import pathlib
import re
import tempfile

from . import errors

PLAIN, CHECK, REFERENCE = "build", "build-check", "build/reference"
SITE, MAN = "build/site", "build/man"
# Compiles all files of a room as one: headers take most of a compiler's time. The plain build
# compiles each file of the library by itself.
TOGETHER = ("--unity", "on", "--unity-size", "40")
# Line tables are all that a report needs, and quicker to build than full debug information.
SANITIZED = ("-Db_lundef=false", "-Dbench=false", "-Dexamples=false", "-Dtools=false",
             "-Doptimization=1", "-Dcpp_args=-gline-tables-only -fno-omit-frame-pointer")
# An old ThreadSanitizer fails by chance where the kernel's addresses are very random.
TRIAL_RUNS = 20
CHECK_COMPILER = "clang++-19"
# Generated files that clang-tidy reads.
CHECK_TARGETS = ("tests/rpc/order.pb.h", "tests/docs/readme.cpp", "tests/docs/docs_test.cpp",
                 "tests/docs/asio_docs_test.cpp", "tests/docs/simulation.cpp",
                 "tests/docs/sim_docs_test.cpp", "tests/docs/guide_test.cpp",
                 "tests/docs/guide_hello.cpp", "tests/docs/guide_server.cpp",
                 "tests/docs/names_test.cpp", "tests/docs/spdlog_docs_test.cpp")


@dataclasses.dataclass
class Sanitizer:
    folder: str
    kinds: str  # The argument of -fsanitize.
    compilers: tuple  # In the order of choice.


# `address` takes the newest clang, `thread` the oldest supported one: CI then builds with both.
SANITIZERS = {
    "address": Sanitizer("build-asan", "address,undefined",
                         ("clang++-19", "clang++-14", "clang++")),
    "thread": Sanitizer("build-tsan", "thread", ("clang++-14", "clang++-19", "clang++")),
}


def configure_command(folder, arguments, is_strict):
    """Returns what configures `folder`, or None when nothing is left to do."""
    if not (folder / "build.ninja").is_file():
        return ["meson", "setup", folder.name, *arguments, *(["--werror"] if is_strict else [])]
    if is_strict:
        noted = folder / "meson-private/cmd_line.txt"
        if not noted.is_file() or not re.search("werror = true", noted.read_text(), re.IGNORECASE):
            return ["meson", "configure", folder.name, "-Dwerror=true"]
    return None


def configure(project, folder, arguments=(), is_strict=None, **variables):
    """Configures a folder once; later calls cost nothing. Warnings are errors by CORDMA_WERROR."""
    if is_strict is None:
        is_strict = project.variable("CORDMA_WERROR") != ""
    command = configure_command(project.root / folder, arguments, is_strict)
    if command:
        project.require(command, to_stderr=True, **variables)


def build_command(folder, targets=()):
    return ["ninja", "-C", folder, "--quiet", *targets]


def build(project, folder, targets=()):
    """Builds, and prints nothing when all is well."""
    status = project.processes.run_without({"ninja: no work to do."},
                                           build_command(folder, targets), project.environment)
    if status:
        raise errors.CommandFailed(status)


def build_plain(project, targets=()):
    configure(project, PLAIN)
    build(project, PLAIN, targets)


def build_for_check(project):
    # No --werror: clang-tidy makes errors of the warnings that are in the project's own files.
    configure(project, CHECK, TOGETHER, is_strict=False, CXX=CHECK_COMPILER)
    build(project, CHECK, CHECK_TARGETS)


def cached(project, compiler):
    """Puts ccache before a compiler where there is one, as Meson does for the default compiler."""
    return f"ccache {compiler}" if project.has_command("ccache") else compiler


def trial_command(compiler, kinds, program):
    """Returns what compiles stdin to `program`."""
    return [compiler, "-x", "c++", f"-fsanitize={kinds}", "-", "-o", str(program)]


def compiles_and_runs(project, compiler, kinds, program):
    status, _ = project.output(trial_command(compiler, kinds, program), is_quiet=True,
                               stdin="int main() {}\n")
    return status == 0 and all(project.output([str(program)], is_quiet=True)[0] == 0
                               for _ in range(TRIAL_RUNS))


def sanitizing_compiler(project, sanitizer):
    """Returns a clang++ that can link, and whose programs run, with this sanitizer."""
    with tempfile.TemporaryDirectory() as scratch:
        for compiler in sanitizer.compilers:
            if compiles_and_runs(project, compiler, sanitizer.kinds, pathlib.Path(scratch, "a")):
                return compiler
    raise errors.Failure(f"no clang++ here can build with -fsanitize={sanitizer.kinds}")


def build_sanitized(project, name, targets=()):
    """Builds for `address` or `thread`, all or some targets. Returns the build's folder."""
    if name not in SANITIZERS:
        raise errors.UsageError(f"no sanitizer '{name}': address or thread")
    sanitizer = SANITIZERS[name]
    variables = {}
    if not (project.root / sanitizer.folder / "build.ninja").is_file():
        variables["CXX"] = cached(project, sanitizing_compiler(project, sanitizer))
    configure(project, sanitizer.folder,
              (*TOGETHER, f"-Db_sanitize={sanitizer.kinds}", *SANITIZED), **variables)
    build(project, sanitizer.folder, targets)
    return sanitizer.folder
