"""`./dev bench`: benchmarks, each where its device is, and their figures in one table."""

import glob
import pathlib
import tempfile

from . import builds, collectives, devices, errors

SOFTVERBS = "softverbs"
COLLECTIVES = "collectives"
GATHER = "bench/support/gather.py"
# Benchmarks whose instructions are counted, with the filter that leaves the cases of one thread.
# Cases of several threads or processes, and figures that are no times, are not counted.
COUNTED = {"asio": [], "coro": [], "rpc": ["rpc/echo/thread"], "stream": [], "transfer": []}


def program_name(program):
    return pathlib.Path(program).name.rpartition("bench_")[2]


def programs(root, name):
    """Returns the programs that `name` chooses."""
    folder = "build/subprojects/softverbs/bench" if name == SOFTVERBS else "build/bench"
    pattern = f"{glob.escape(str(root / folder))}/bench_{'*' if name == SOFTVERBS else name or '*'}"
    return sorted(path for path in glob.glob(pattern) if pathlib.Path(path).is_file())


def counting_command(program, results):
    """Returns what counts a program's instructions, or None when they are not counted."""
    name = program_name(program)
    if name not in COUNTED:
        return None
    out = f"{results}/callgrind"
    return ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={out}",
            "--log-file=/dev/null", program, *COUNTED[name], "--callgrind", out,
            *json_option(program, results)]


def json_option(program, results):
    return ["--json", f"{results}/{pathlib.Path(program).name}.json"]


def gather_command(project, asked, figures):
    """Returns what puts all figures into one array, and into a table when all benchmarks ran."""
    command = [str(project.root / GATHER), *(["--to", asked.json] if asked.json else [])]
    if not asked.name:
        kind = "bench-instructions" if asked.is_counted else "bench"
        command += ["--table", "--to", str(project.root / f"build/{kind}.json")]
    return [*command, *figures]


def count(project, chosen, asked, results):
    status = 0
    for program in chosen:
        if command := counting_command(program, results):
            status = project.run(command, CORDMA_TEST_DEVICE=devices.SOFT0) or status
            for left in pathlib.Path(results).glob("callgrind*"):
                left.unlink()
    if not any(pathlib.Path(results).glob("*.json")):
        raise errors.Failure(f"nothing of '{asked.name}' is counted: "
                             f"{', '.join(sorted(COUNTED))} are")
    return status


def measure(project, chosen, asked, results):
    status = 0
    for program in chosen:
        command = [program, *json_option(program, results)]
        if asked.name == SOFTVERBS:  # softverbs brings its own device.
            status = project.run(command if asked.json else [program]) or status
        elif project.run([program, "--needs-device"]) == 0:
            status = devices.run_on(project, asked.device, results, command) or status
        else:
            status = project.run(command) or status
    return status


def bench(project, asked):
    """Returns the exit status."""
    if asked.is_counted:
        if asked.device not in ("", devices.SOFT0):
            raise errors.Failure(
                "--callgrind counts on soft0 only: valgrind knows no driver's calls")
        asked.device = devices.SOFT0
    asked.device = asked.device or devices.best(project)
    devices.setup_for(project, asked.device)
    if asked.json:
        asked.json = str(pathlib.Path(project.started_in, asked.json))
    builds.build_plain(project)
    if asked.name == COLLECTIVES:
        return collectives.bench(project, asked.device, asked.json)
    chosen = programs(project.root, asked.name)
    if not chosen:
        there = [SOFTVERBS, COLLECTIVES, *map(program_name, programs(project.root, ""))]
        raise errors.Failure(f"no benchmark '{asked.name}'; there is: {' '.join(there)}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as results:
        run = count if asked.is_counted else measure
        status = run(project, chosen, asked, results)
        figures = sorted(map(str, pathlib.Path(results).glob("*.json")))
        if figures:  # Not those of softverbs without --json.
            if not asked.name:
                print()
            project.require(gather_command(project, asked, figures))
        return status
