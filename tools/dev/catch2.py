"""Catch2 test programs, and which test cases each has."""

# Programs that may have campaigns, softverbs' own among them.
PATTERNS = ("build/tests/test_*", "build/subprojects/softverbs/tests/campaign/test_*")
DEVICE_CASES = "[device]~[.]"


def has_cases(project, spec, program):
    """Returns whether a program has a test case that `spec` chooses."""
    _, names = project.output([program, "--list-test-names-only", spec], is_quiet=True)
    return names.strip("\n") != ""


def programs(project):
    return [str(path) for pattern in PATTERNS for path in sorted(project.root.glob(pattern))
            if path.is_file()]
