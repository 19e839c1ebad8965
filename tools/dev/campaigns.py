"""`./dev soak`: long campaigns, hidden test cases of Catch2 or a fuzzer, and their record."""

import datetime
import pathlib
import re
import secrets
import sys
import tempfile

from . import builds, catch2, devices, errors, tally, tests

RECORD = "docs/testing.md"
RXE0_DIVISOR = "100"
DAY_SECONDS = "86400"
FUZZ_EXECUTIONS = 10_000_000
# Programs of libFuzzer, against a malicious process or peer.
FUZZERS = {
    "fuzz": "subprojects/softverbs/tests/fuzz/softverbs_fuzz",
    "fuzz-agent": "tests/fuzz/agent_fuzz",
    "fuzz-cm": "subprojects/softverbs/tests/fuzz/softverbs_cm_fuzz",
    "fuzz-group": "tests/fuzz/group_fuzz",
    "fuzz-handshake": "tests/fuzz/handshake_fuzz",
    "fuzz-multicast": "subprojects/softverbs/tests/fuzz/softverbs_multicast_fuzz",
    "fuzz-rdmacm": "subprojects/softverbs/tests/fuzz/softverbs_rdmacm_fuzz",
    "fuzz-rpc": "tests/fuzz/rpc_fuzz",
    "fuzz-rpc-frames": "tests/fuzz/rpc_frames_fuzz",
    "fuzz-stream": "tests/fuzz/stream_fuzz",
}
TAG = re.compile(r"\[soak-([^]\n]*)")


def names(project):
    """Returns the campaigns of Catch2 programs."""
    listings = (project.output([program, "--list-tags", "*"])[1]
                for program in catch2.programs(project))
    return sorted({name for listing in listings for name in TAG.findall(listing)})


def seed(project):
    return project.variable("CORDMA_SEED") or str(secrets.randbits(32))


def is_short(project):
    """Returns whether the environment cuts campaigns short, which leaves no record."""
    return project.variable("CORDMA_SOAK_DIVISOR") + project.variable("CORDMA_SOAK_COUNT") != ""


def record_line(date, name, device, used_seed, count, result):
    return f"| {date} | {name} | {device} | {used_seed} | {count} | {result} |\n"


def record(project, *fields):
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    with (project.root / RECORD).open("a") as file:
        file.write(record_line(date, *fields))


def fuzz_command(folder, name, executions, used_seed):
    return [f"{folder}/{FUZZERS[name]}", f"-runs={executions}", f"-seed={used_seed}",
            "-max_len=256", "-entropic=0"]


def fuzz_executions(project):
    if project.variable("CORDMA_SOAK_COUNT"):
        return project.variable("CORDMA_SOAK_COUNT")
    divisor = project.number("CORDMA_SOAK_DIVISOR", 1)
    if divisor == 0:
        raise errors.Failure("CORDMA_SOAK_DIVISOR is 0")
    return FUZZ_EXECUTIONS // divisor


def fuzz(project, name):
    used_seed, executions = seed(project), fuzz_executions(project)
    project.setup("build", "check")
    folder = builds.build_sanitized(project, "address")
    print(f"Campaign {name}, CORDMA_SEED={used_seed}, {executions} executions")
    project.require(fuzz_command(folder, name, executions, used_seed),
                    CORDMA_TEST_DEVICE=devices.SOFT0)
    if not is_short(project):
        record(project, name, "native", used_seed, executions, "passed")
    return 0


def choose(project, name):
    """Returns the programs that have a campaign, and whether the campaign needs a device."""
    spec = f"[soak-{name}]"
    chosen = [program for program in catch2.programs(project)
              if catch2.has_cases(project, spec, program)]
    if not chosen:
        raise errors.Failure(f"no campaign '{name}'; there is: {' '.join(names(project))}")
    needs_device = any(catch2.has_cases(project, f"{spec}[device]", program) for program in chosen)
    return chosen, needs_device


def variables(project, logs, used_seed):
    """Returns the variables that a campaign's programs and the guest read."""
    return {
        "CORDMA_SEED": used_seed,
        "CORDMA_TEST_LOG": logs,
        # Seconds. A program has no limit (0); the guest has a day.
        "CORDMA_TEST_TIMEOUT": project.variable("CORDMA_TEST_TIMEOUT", "0"),
        "CORDMA_VM_TIMEOUT": project.variable("CORDMA_VM_TIMEOUT", DAY_SECONDS),
        # softverbs' own campaigns know nothing of cordma's variables.
        "SOFTVERBS_TEST_LOG": logs,
        "SOFTVERBS_SEED": used_seed,
        "SOFTVERBS_SOAK_DIVISOR": project.variable("CORDMA_SOAK_DIVISOR"),
        "SOFTVERBS_SOAK_COUNT": project.variable("CORDMA_SOAK_COUNT"),
    }


def show_outputs(logs):
    outputs = sorted(logs.glob("*.out"))
    if not outputs:
        raise errors.Failure("the campaign's programs left no output")
    for output in outputs:
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read_bytes())
    sys.stdout.buffer.flush()


def counts(logs):
    """Returns the repetitions that the campaign's cases noted."""
    lines = (line for log in sorted(logs.glob("*.tsv"))
             for line in log.read_text(errors="replace").splitlines())
    return " ".join(line.removeprefix("count\t") for line in lines if line.startswith("count\t"))


def run(project, name, device):
    chosen, needs_device = choose(project, name)
    if not needs_device:
        device = "native"
    is_record = not is_short(project)
    if device == devices.RXE0 and is_record:
        project.environment["CORDMA_SOAK_DIVISOR"] = RXE0_DIVISOR
    used_seed = seed(project)
    print(f"Campaign {name} on {device}, CORDMA_SEED={used_seed}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as logs:
        project.environment.update(variables(project, logs, used_seed))
        command = [str(project.root / tests.RUN_DEVICE), f"[soak-{name}]", *chosen]
        if needs_device:
            status = devices.run_on(project, device, logs, command)
        else:
            status = project.run(command, CORDMA_TEST_DEVICE=device)
        show_outputs(pathlib.Path(logs))
        tally_status, tallied = project.output(tally.command(logs))
        tallied = tallied.rstrip("\n")
        print(tallied)
        # A campaign that was cut short is no record.
        if is_record:
            record(project, name, device, used_seed, counts(pathlib.Path(logs)),
                   tallied.rpartition("\n")[2])
        return tally_status or status


def soak(project, asked):
    """Returns the exit status."""
    if asked.name in FUZZERS:
        return fuzz(project, asked.name)
    device = asked.device or devices.best(project)
    devices.setup_for(project, device)
    builds.build_plain(project)
    if asked.name is None:
        print(*names(project), *FUZZERS, sep="\n")
        return 0
    return run(project, asked.name, device)
