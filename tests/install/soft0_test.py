#!/usr/bin/env python3
"""Every example finds soft0 by itself: `soft0_test.py SOURCE_ROOT BUILD_ROOT`."""

import os
import pathlib
import re
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "docs")]
import blocks  # noqa: E402
import cases  # noqa: E402
import link_order  # noqa: E402

# Examples that need no device have softverbs all the same.
EXAMPLES = ("01_task", "02_timer_and_stop", "03_device_info", "04_send_recv",
            "05_read_write_atomics", "06_remote_memory", "07_shared_counter", "08_rpc_echo",
            "09_key_value", "10_file_transfer", "cordma-demo")
HIDDEN = ("SOFTVERBS", "LD_PRELOAD", "CORDMA_TEST_DEVICE")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in HIDDEN}


def real_devices():
    folder = pathlib.Path("/sys/class/infiniband")
    return sorted(folder.iterdir()) if folder.exists() else []


# A real device would come first.
DEVICE = ["soft0"] if real_devices() else []


def run(*command, status=0, **environment):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, env={**ENVIRONMENT, **environment})
    assert done.returncode == status, (
        f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def without_numbers(text):
    """The lines of two processes, in any order, without the rows of a histogram."""
    lines = [line for line in text.splitlines() if not re.match(r" +[\d.]+ us ", line)]
    return sorted(re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "N", line) for line in lines)


def check_examples(all_cases, cordma, build):
    examples = build / "examples"
    with all_cases.case("in the examples softverbs comes before libibverbs"):
        for name in EXAMPLES:
            link_order.softverbs_comes_first(examples / name)
    with all_cases.case("example 03 shows soft0"):
        said = run(examples / "03_device_info", *DEVICE)
        assert "found soft0\n" in said and "\nsoft0, port 1: " in said, said
    with all_cases.case("the examples that need a device use soft0"):
        assert "client got 'goodbye'" in run(examples / "04_send_recv", *DEVICE)
        assert "what it wrote: yes" in run(examples / "05_read_write_atomics", *DEVICE)
    with all_cases.case("all processes of an example use soft0"):
        device = DEVICE or [""]
        for name, clients, says in (("06_remote_memory", "1", "first word is 42"),
                                    ("07_shared_counter", "3", "3000 by fetch_add"),
                                    ("08_rpc_echo", "1", "answered 21000 calls"),
                                    ("09_key_value", "2", "gets beside")):
            said = run(cordma / "examples" / "processes", examples / name, *device, clients)
            assert says in said, said
    with all_cases.case("both processes of the demo use soft0"):
        said = run(cordma / "examples" / "demo", build, *DEVICE)
        assert said.count("] device soft0, ") == 2, said
    with all_cases.case("README shows what the demo prints"):
        (_, shown), *_ = blocks.blocks_of(cordma / "README.md", "text")
        assert without_numbers(shown) == without_numbers(said), said
    if not DEVICE:
        with all_cases.case("SOFTVERBS=off leaves no device"):
            said = run(examples / "04_send_recv", status=1, SOFTVERBS="off")
            assert "no such RDMA device" in said, said


def main():
    all_cases = cases.Cases("soft0")
    check_examples(all_cases, *(pathlib.Path(path).resolve() for path in sys.argv[1:]))
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
