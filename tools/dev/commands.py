"""The commands of ./dev by name. ./dev itself has `help` and `setup`, which need no Python."""

import signal
import sys

from . import arguments, benches, builds, campaigns, devices, processes, tests
from .errors import CommandFailed, Failure, UsageError
from .project import Project


def demo(project, given):
    asked = arguments.demo(given)
    device = asked.device or devices.best(project)
    devices.setup_for(project, device)
    builds.build_plain(project, ["demo"])
    shown, how = ("demo_group", str(asked.ranks)) if asked.ranks else ("demo", asked.way)
    command = [str(project.root / "examples" / shown), str(project.root / "build"), device, how]
    if not devices.is_here(project, device):
        command = [str(project.guest), "run", "--", *command]
    return project.replace(command)


def test(project, given):
    return tests.test(project, arguments.test(given))


def bench(project, given):
    return benches.bench(project, arguments.bench(given))


def check(project, given):
    project.setup("build", "check")
    builds.build_for_check(project)
    return project.run(["tests/support/check", *given])


def reference(project, given):
    arguments.none("reference", given)
    project.setup("build")
    return project.run(["tests/docs/reference.py", str(project.root), builds.REFERENCE])


# The one that Debian's packages of modules are for, whatever PATH says.
DEBIAN_PYTHON = "/usr/bin/python3"


def docs(project, given):
    arguments.none("docs", given)
    project.setup("docs")
    project.require(["tests/docs/reference.py", str(project.root), builds.REFERENCE])
    for page in sorted(project.root.glob("docs/man/*.md")):
        project.require(["tools/dev/man.py", str(page), f"{builds.MAN}/{page.stem}"])
    return project.run([DEBIAN_PYTHON, "tools/dev/site", str(project.root), builds.SITE,
                        f"{builds.REFERENCE}/xml"])


def package(project, given):
    step = arguments.package(given)
    project.setup("build", "check", "docs", "package")
    return project.run(["packaging/packages", step])


# Options that ask for one seed, or a text: no other seed is played beside it.
SIM_ALONE = ("--seed", "--plan", "--trace", "--known", "--help", "-h")
SIM_PROGRAM = "tests/sim/scenarios/cordma-sim-scenarios"
SIM_KNOWN = "tests/sim/seeds.txt"


def sim(project, given):
    asked = arguments.sim(given)
    project.setup("build", *(["check"] if asked.sanitizer else []))
    if asked.sanitizer:
        folder = builds.build_sanitized(project, asked.sanitizer, [SIM_PROGRAM])
    else:
        folder = builds.PLAIN
        builds.build_plain(project, [SIM_PROGRAM])
    is_alone = any(word.partition("=")[0] in SIM_ALONE for word in asked.rest)
    known = [] if is_alone else ["--known", str(project.root / SIM_KNOWN)]
    return project.replace([str(project.root / folder / SIM_PROGRAM), *known, *asked.rest],
                           project.started_in)


def soak(project, given):
    return campaigns.soak(project, arguments.soak(given))


def vm(project, given):
    command = arguments.vm(given)
    if not project.has_guest():
        raise Failure("no tests/vm/guest here")
    project.setup("build", "guest")
    return project.replace([str(project.guest), "run", "--", *command], project.started_in)


COMMANDS = {"demo": demo, "test": test, "bench": bench, "check": check, "soak": soak, "vm": vm,
            "package": package, "reference": reference, "docs": docs, "sim": sim}


def run(project, given):
    """Runs a command. Returns the exit status. Messages start with `dev: `."""
    try:
        name = given[0] if given else ""
        if name not in COMMANDS:
            raise UsageError(f"no command '{name}'")
        return COMMANDS[name](project, given[1:])
    except UsageError as error:
        print(f"dev: {error}\ndev: './dev help' lists the commands.", file=sys.stderr)
        return 2
    except Failure as error:
        print(f"dev: {error}", file=sys.stderr)
        return 1
    except CommandFailed as error:
        return error.status


def end(number, _):
    raise SystemExit(128 + number)


def handle_signals():
    # A pipe that nobody reads any more ends the program quietly, as it ends a shell.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP.
            signal.signal(number, end)


def main(root, given, environment):
    """Returns the exit status. Ctrl-C ends the program by SIGINT, so that its caller stops, too."""
    handle_signals()
    sys.stdout.reconfigure(line_buffering=True)
    try:
        return run(Project(root, environment, processes.Processes(root)), given)
    except KeyboardInterrupt:
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        return 128 + signal.SIGINT
