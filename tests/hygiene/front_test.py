#!/usr/bin/env python3
"""The public headers stay few, and declare the names of front.txt; those below detail/ front_detail.txt's.

The limits are those of libcordma's front. sim.hpp is the front of cordma-sim, a library of its own, and has a
limit of its own.

    front_test.py INCLUDE_FOLDER COMPILER...
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402
import front  # noqa: E402

HEADER = """#pragma once
#include <vector>
namespace cordma {
class forward;
/// class comment;
template <class T> requires (sizeof(T) > 1)
class [[nodiscard]] holder : public base<T> { int member() { return 1; } };
enum class kind : int { a, b };
struct CORDMA_EXPORT alignas(64) line { };
using alias = std::vector<int>;
template <class T> concept plain = true;
inline constexpr std::size_t limit{4};
inline constexpr int other = f(1);
[[nodiscard]] std::vector<int> make(int first = 1);
std::vector<int> make(double);
template <class T> auto more(T&& it) noexcept(noexcept(it())) { return it; }
bool operator==(const line&, const line&);
template <class Signature> class call;
template <class R, class... Args> class call<R(Args...)> { R operator()(Args... args); };
namespace detail { struct hidden {}; }
namespace verbs { class pd final {}; }
}
template <> struct std::hash<int> {};
"""
NAMES = ["alias", "call", "holder", "kind", "limit", "line", "make", "more", "other", "plain", "verbs::pd"]

HEADERS_MAX = 60
NAMES_MAX = 180
SIM_NAMES_MAX = 8
# Names outside of namespaces called detail that the headers below detail/ declare beside those.
FURTHER_MAX = 56
# The headers that a file with one awaited WRITE reads.
WRITE_READS_MAX = 35
WRITE = """#include <cordma/connection/connection.hpp>
cordma::task<> copy(cordma::connection& conn, cordma::local_mr_slice from, cordma::remote_mr_slice to) {
  co_await conn.write(from, to);
}
"""
# A program that includes cordma pays more for each of these headers than cordma's use of it is worth.
HEAVY = {"functional", "iostream", "regex", "semaphore", "sstream", "thread", "unordered_map"}


def read_by(text, include, compiler):
    """Which headers of ours a file of this text reads."""
    done = subprocess.run([*compiler, "-x", "c++", "-std=c++20", f"-I{include.parent}", "-MM", "-"],
                          input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(set(re.findall(rf"{re.escape(str(include))}/([\w/]+\.hpp)", done.stdout)))


def standard_read_by(text, include, compiler):
    """The names of all files that a file of this text reads, without their folders."""
    done = subprocess.run([*compiler, "-x", "c++", "-std=c++20", f"-I{include.parent}", "-M", "-"],
                          input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return {pathlib.PurePath(word).name for word in done.stdout.split()}


def main():
    include, compiler = pathlib.Path(sys.argv[1]), sys.argv[2:]
    run = cases.Cases("front")
    with run.case("names are found, however they are declared"):
        found = sorted(set(front.names_in(HEADER)))
        assert found == [f"cordma::{name}" for name in NAMES], found
    with run.case("bridges are the headers beside cordma.hpp"):
        headers = ["asio.hpp", "cordma.hpp", "coro/task.hpp", "sim.hpp", "version.hpp"]
        assert [header for header in headers if front.is_bridge(header)] == ["asio.hpp"]
    with run.case("the public headers, the bridges and cordma-sim's declare what front.txt lists"):
        listed = (pathlib.Path(__file__).parent / "front.txt").read_text().split()
        headers, names = front.front(include)
        found = sorted({*names, *front.bridges(include), *front.of_sim(include)})
        assert found == listed, f"not listed: {set(found) - set(listed)}; gone: {set(listed) - set(found)}"
    with run.case("public headers and names are few"):
        assert headers <= HEADERS_MAX, f"{headers} headers, above {HEADERS_MAX}: merge some, or use detail/"
        assert len(names) <= NAMES_MAX, f"{len(names)} names, above {NAMES_MAX}: which can be private?"
    with run.case("the header of cordma-sim declares few names, and all in its namespace"):
        names = front.of_sim(include)
        assert 0 < len(names) <= SIM_NAMES_MAX, f"{len(names)} names, above {SIM_NAMES_MAX}: which can be private?"
        assert not [name for name in names if not name.startswith("cordma::sim::")], names
    with run.case("the headers below detail/ declare what front_detail.txt lists"):
        listed = (pathlib.Path(__file__).parent / "front_detail.txt").read_text().split()
        names = front.further(include)
        assert names == listed, f"not listed: {set(names) - set(listed)}; gone: {set(listed) - set(names)}"
        assert len(names) <= FURTHER_MAX, f"{len(names)} names, above {FURTHER_MAX}: use namespace detail"
    with run.case("a file that awaits one WRITE reads few headers"):
        read = read_by(WRITE, include, compiler)
        assert "connection/connection.hpp" in read, read
        assert len(read) <= WRITE_READS_MAX, f"{len(read)}, above {WRITE_READS_MAX}: {read}"
    with run.case("no header but a bridge includes a heavy one of the standard library"):
        for path in sorted(include.rglob("*.hpp")):
            if front.is_bridge(str(path.relative_to(include))):
                continue
            heavy = HEAVY & set(re.findall(r"^#include <(\w+)>", path.read_text(), re.MULTILINE))
            assert not heavy, f"{path.relative_to(include)} includes {heavy}"
    with run.case("cordma.hpp pulls in no heavy header, but what <chrono> does"):
        of_chrono, of_all = (standard_read_by(text, include, compiler) for text in
                             ("#include <chrono>\n", "#include <cordma/cordma.hpp>\n"))
        assert not HEAVY & (of_all - of_chrono), HEAVY & (of_all - of_chrono)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
