"""Arguments of each command. Parsing them does not look at the machine."""

import dataclasses

from .errors import UsageError


@dataclasses.dataclass
class DemoArguments:
    device: str  # Empty when the command line names none, here and below.
    way: str
    ranks: int = 0  # Of a group; 0 for a server and a client.


@dataclasses.dataclass
class TestArguments:
    device: str
    sanitizer: str
    meson: list  # For `meson test`.


@dataclasses.dataclass
class BenchArguments:
    device: str
    name: str  # A pattern; empty for all benchmarks.
    json: str
    is_counted: bool  # Instructions, not times.


@dataclasses.dataclass
class SimArguments:
    sanitizer: str
    rest: list  # For cordma-sim-scenarios.


@dataclasses.dataclass
class SoakArguments:
    device: str
    name: str | None


def take(option, arguments):
    """Returns the last value of `option` (empty when there is none) and all other arguments."""
    value, rest, left = "", [], iter(arguments)
    for argument in left:
        if argument == option:
            value = next(left, None)
            if value is None:
                raise UsageError(f"{option} needs a value")
        elif argument.startswith(option + "="):
            value = argument.removeprefix(option + "=")
        else:
            rest.append(argument)
    return value, rest


# How the two processes of the demo can connect (docs/connecting.md).
WAYS = ("tcp", "unix", "rdma_cm", "raw", "psk", "certificate")


RANKS_MAX = 64  # Processes of one host.


def demo(arguments):
    device, rest = take("--device", arguments)
    way, rest = take("--connect", rest)
    ranks, rest = take("--group", rest)
    if rest:
        raise UsageError(f"demo takes only --device, --connect and --group: '{rest[0]}'")
    if way and way not in WAYS:
        raise UsageError(f"no way '{way}' to connect; there is: {', '.join(WAYS)}")
    if way and ranks:
        raise UsageError("--connect is for two processes, --group for the ranks of a group")
    if ranks and not (ranks.isdecimal() and 1 <= int(ranks) <= RANKS_MAX):
        raise UsageError(f"--group needs a number of ranks from 1 to {RANKS_MAX}: '{ranks}'")
    return DemoArguments(device, way or WAYS[0], int(ranks or 0))


def test(arguments):
    sanitizer, rest = take("--sanitize", arguments)
    device, rest = take("--device", rest)
    return TestArguments(device, sanitizer, rest)


def sim(arguments):
    return SimArguments(*take("--sanitize", arguments))


def bench(arguments):
    device, rest = take("--device", arguments)
    parsed = BenchArguments(device, "", "", False)
    left = iter(rest)
    for argument in left:
        if argument == "--json":
            parsed.json = next(left, None)
            if parsed.json is None:
                raise UsageError("--json needs a file")
        elif argument == "--callgrind":
            parsed.is_counted = True
        elif argument.startswith("-"):
            raise UsageError(f"bench has no option '{argument}'")
        else:
            parsed.name = argument
    return parsed


def soak(arguments):
    device, rest = take("--device", arguments)
    if len(rest) > 1:
        raise UsageError(f"soak takes one campaign: '{rest[1]}'")
    return SoakArguments(device, rest[0] if rest else None)


def none(command, arguments):
    if arguments:
        raise UsageError(f"{command} takes no argument '{arguments[0]}'")


def package(arguments):
    """Returns the step of packaging/packages."""
    if not arguments:
        return "build"
    if arguments != ["try"]:
        raise UsageError(f"package takes no argument but `try`: '{arguments[-1]}'")
    return "try"


def vm(arguments):
    """Returns the command for the guest."""
    if len(arguments) < 2 or arguments[0] != "--":
        raise UsageError("write: ./dev vm -- CMD")
    return arguments[1:]
