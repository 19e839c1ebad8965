"""The command line of tests/support/tally.py, which adds up test cases."""


def command(logs, meson_log=None, is_sanitized=False):
    return ["python3", "tests/support/tally.py", "--skips", "tests/skips.txt",
            *(["--sanitized"] if is_sanitized else []),
            *(["--meson", str(meson_log)] if meson_log else []), str(logs)]
