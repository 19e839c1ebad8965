#!/usr/bin/env python3
"""Every example finds soft0 by itself, with cordma static and shared.

    soft0_test.py SOURCE_ROOT BUILD_ROOT SCRATCH static|shared COMPILER...

BUILD_ROOT is built with the one, SCRATCH (kept between runs) gets a build with the other.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

# What needs no device has softverbs all the same.
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


def other_build(cordma, scratch, library, compiler):
    if not (scratch / "build.ninja").exists():
        run("meson", "setup", "--buildtype=plain", "--unity=on", "--unity-size=40", f"-Ddefault_library={library}",
            "-Dtests=false", "-Dbench=false", "-Dsoftverbs=enabled", scratch, cordma, CXX=" ".join(compiler))
    run("ninja", "-C", scratch)


def comes_first(program):
    """softverbs is searched before libibverbs, wherever the latter comes from."""
    loaded = [line.split()[0] for line in run(program, LD_TRACE_LOADED_OBJECTS="1").splitlines()]
    names = [name.partition(".so")[0] for name in loaded]
    assert "libsoftverbs" in names, loaded
    if "libibverbs" in names:
        assert names.index("libsoftverbs") < names.index("libibverbs"), loaded


def check_examples(all_cases, cordma, build, library):
    examples = build / "examples"
    with all_cases.case(f"with cordma {library}, softverbs comes before libibverbs"):
        for name in EXAMPLES:
            comes_first(examples / name)
    with all_cases.case(f"with cordma {library}, example 03 shows soft0"):
        said = run(examples / "03_device_info", *DEVICE)
        assert "found soft0\n" in said and "\nsoft0, port 1: " in said, said
    with all_cases.case(f"with cordma {library}, the examples that need a device use soft0"):
        assert "client got 'goodbye'" in run(examples / "04_send_recv", *DEVICE)
        assert "what it wrote: yes" in run(examples / "05_read_write_atomics", *DEVICE)
    with all_cases.case(f"with cordma {library}, all processes of an example use soft0"):
        device = DEVICE or [""]
        for name, clients, says in (("06_remote_memory", "1", "first word is 42"),
                                    ("07_shared_counter", "3", "3000 by fetch_add"),
                                    ("08_rpc_echo", "1", "answered 21000 calls"),
                                    ("09_key_value", "2", "gets beside")):
            said = run(cordma / "examples" / "processes", examples / name, *device, clients)
            assert says in said, said
    with all_cases.case(f"with cordma {library}, both processes of the demo use soft0"):
        said = run(cordma / "examples" / "demo", build, *DEVICE)
        assert said.count("] device soft0, ") == 2, said
    if not DEVICE:
        with all_cases.case(f"with cordma {library}, SOFTVERBS=off leaves no device"):
            said = run(examples / "04_send_recv", status=1, SOFTVERBS="off")
            assert "no such RDMA device" in said, said


def main():
    cordma, build, scratch = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
    library, compiler = sys.argv[4], sys.argv[5:]
    other = "shared" if library == "static" else "static"
    all_cases = cases.Cases("soft0")
    with all_cases.case(f"the examples build with cordma {other}"):
        other_build(cordma, scratch, other, compiler)
    for folder, kind in ((build, library), (scratch, other)):
        check_examples(all_cases, cordma, folder, kind)
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
