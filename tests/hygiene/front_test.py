#!/usr/bin/env python3
"""The public headers declare the names of front.txt: `front_test.py INCLUDE_FOLDER`."""

import pathlib
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
struct alignas(64) line { };
using alias = std::vector<int>;
template <class T> concept plain = true;
inline constexpr std::size_t limit{4};
inline constexpr int other = f(1);
[[nodiscard]] std::vector<int> make(int first = 1);
std::vector<int> make(double);
template <class T> auto more(T&& it) noexcept(noexcept(it())) { return it; }
bool operator==(const line&, const line&);
namespace detail { struct hidden {}; }
namespace verbs { class pd final {}; }
}
template <> struct std::hash<int> {};
"""
NAMES = ["alias", "holder", "kind", "limit", "line", "make", "more", "other", "plain", "verbs::pd"]


def main():
    run = cases.Cases("front")
    with run.case("names are found, however they are declared"):
        found = sorted(set(front.names_in(HEADER)))
        assert found == [f"cordma::{name}" for name in NAMES], found
    with run.case("the public headers declare what front.txt lists"):
        listed = (pathlib.Path(__file__).parent / "front.txt").read_text().split()
        _, names = front.front(pathlib.Path(sys.argv[1]))
        assert names == listed, f"not listed: {set(names) - set(listed)}; gone: {set(listed) - set(names)}"
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
