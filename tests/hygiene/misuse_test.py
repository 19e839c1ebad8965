#!/usr/bin/env python3
"""What users get wrong is told in a line or two: `misuse_test.py INCLUDE_FOLDER COMPILER...`."""

import concurrent.futures
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

PROGRAM = """#include <cordma/cordma.hpp>
struct ask : cordma::rpc::method<"ask", int, int> {};
cordma::task<> talk(cordma::runtime& rt, cordma::connection& conn, cordma::rpc::server& server,
                    cordma::remote_mr_slice there) {
  CODE
  co_return;
}
"""

# A user's code, the standard, and the text of the compiler's first error.
MISUSES = [
    ("a handler that gives no task", "server.handle<ask>([](int i) { return i; });", "c++20",
     "gives a cordma::task<M::reply> from an M::request"),
    ("a handler of another request", "server.handle<ask>([](std::string) -> cordma::task<int> "
     "{ co_return 1; });", "c++20", "gives a cordma::task<M::reply> from an M::request"),
    ("options that are not moved", "cordma::runtime_options o; cordma::runtime other(o);", "c++20",
     "runtime rt{std::move(options)}"),
    ("constant options", "const cordma::runtime_options o; cordma::runtime other{o};", "c++20",
     "runtime rt{std::move(options)}"),
    ("a SEND of text", 'co_await conn.send("text");', "c++20", "requests take registered memory"),
    ("a WRITE of text", 'co_await conn.write("text", there);', "c++20",
     "requests take registered memory"),
    ("a READ into text", 'co_await conn.read("text", there);', "c++20",
     "requests take registered memory"),
    ("a program of C++17", "", "c++17", "compile with -std=c++20"),
]
RIGHT = """server.handle<ask>([](int i) -> cordma::task<int> { co_return i; });
cordma::runtime_options o;
cordma::runtime other(std::move(o));
co_await conn.send(rt.memory().allocate_zeroed(8));
"""
ERRORS_MAX = 1
LINES_MAX = 25  # With the notes on where it was asked for.


def said_of(code, standard, include, compiler):
    stop = ["-Wfatal-errors"] if standard == "c++17" else []
    done = subprocess.run(
        [*compiler, "-x", "c++", f"-std={standard}", "-fsyntax-only", *stop, f"-I{include}", "-"],
        input=PROGRAM.replace("CODE", code), text=True, capture_output=True, check=False)
    return done.stderr


def main():
    include, compiler = sys.argv[1], sys.argv[2:]
    run = cases.Cases("misuse")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        right = pool.submit(said_of, RIGHT, "c++20", include, compiler)
        said = pool.map(lambda misuse: said_of(misuse[1], misuse[2], include, compiler), MISUSES)
        for (name, _, _, wanted), text in zip(MISUSES, said):
            with run.case(f"{name}: the compiler says what is wanted"):
                errors = [line for line in text.splitlines() if "error:" in line]
                assert errors and wanted in errors[0], text
                assert len(errors) <= ERRORS_MAX and len(text.splitlines()) <= LINES_MAX, text
        with run.case("what is right is not refused"):
            assert not right.result(), right.result()
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
