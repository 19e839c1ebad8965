"""`./dev test`: Meson's tests here, or the [device] cases on one device."""

import os
import pathlib
import tempfile

from . import builds, catch2, devices, tally

RUN_DEVICE = "tests/support/run_device"
PRELOADED = "tests/support/preloaded"
# A forked child that opens soft0 starts a thread.
TSAN_OPTIONS = "halt_on_error=1:die_after_fork=0"
SANITIZED_GUEST_MEMORY_MIB = "4096"


def meson_command(folder, arguments):
    return ["meson", "test", "-C", folder, "--no-rebuild", *arguments]


def room_programs(root, folder, listing):
    """Yields the test programs of cordma's rooms that `meson test --list` names."""
    for line in listing.splitlines():
        name = line.strip()
        if name and not name.startswith("softverbs"):  # softverbs knows no device but its own.
            yield root / folder / "tests" / f"test_{name.split(' ')[-1]}"


def device_programs(project, folder, arguments):
    """Returns the programs that Meson's arguments choose and that have [device] cases."""
    _, listing = project.output([*meson_command(folder, ["--list"]), *arguments], is_quiet=True)
    return [str(program) for program in room_programs(project.root, folder, listing)
            if os.access(program, os.X_OK)
            and catch2.has_cases(project, catch2.DEVICE_CASES, str(program))]


def build(project, sanitizer):
    """Builds the tests. Returns the build's folder."""
    if not sanitizer:
        project.setup("docs")  # The site is a test, too.
        builds.build_plain(project)
        return builds.PLAIN
    project.setup("build", "check")
    folder = builds.build_sanitized(project, sanitizer)
    project.environment.setdefault("TSAN_OPTIONS", TSAN_OPTIONS)
    project.environment["CORDMA_VM_MEMORY"] = project.variable("CORDMA_VM_MEMORY",
                                                               SANITIZED_GUEST_MEMORY_MIB)
    return folder


def run_on_device(project, asked, folder, logs):
    programs = device_programs(project, folder, asked.meson)
    if asked.device != devices.SOFT0 and not asked.meson and not asked.sanitizer:
        programs.append(str(project.root / PRELOADED))
    status = devices.run_on(project, asked.device, logs,
                            [str(project.root / RUN_DEVICE), catch2.DEVICE_CASES, *programs])
    # run_device ends with 0 or 1. Any other status is the guest's and counts as one more failure.
    if status > 1:
        pathlib.Path(logs, f"{asked.device}.guest.exit").write_text(f"{status}\n")
    return status


def test(project, asked):
    """Returns the exit status."""
    devices.setup_for(project, asked.device)
    folder = build(project, asked.sanitizer)
    meson_log = pathlib.Path(folder, "meson-logs/testlog.json")
    (project.root / meson_log).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as logs:
        project.environment.update(CORDMA_TEST_LOG=logs, SOFTVERBS_TEST_LOG=logs)
        if asked.device:
            status = run_on_device(project, asked, folder, logs)
        else:
            status = project.run(meson_command(folder, asked.meson))
        print()
        return project.run(tally.command(logs, meson_log, asked.sanitizer != "")) or status
