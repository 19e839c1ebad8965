#!/usr/bin/env python3
"""The tree obeys the rules of hygiene.py, and each rule finds what it is there to find."""

import pathlib
import re
import sys
import tempfile

import hygiene

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]

HEADER = "#pragma once\n"
SOFTVERBS = hygiene.SOFTVERBS
# A rule, a tree that breaks it, and a part of what is said. The tree's other faults are not looked at.
BAD_TREES = [
    ("layers", {"lib/verbs/a.cpp": "#include <cordma/coro/task.hpp>\n"}, "verbs may not include coro"),
    ("layers", {"lib/base/a.cpp": '#include "io/ring.hpp"\n'}, "base may not include io"),
    ("layers", {"lib/attic/a.cpp": "#include <cordma/base/error.hpp>\n"}, "room attic is not in"),
    ("layers", {"include/cordma/io/a.hpp": '#include "ring.hpp"\n'}, "never private"),
    ("declarations", {"lib/io/a.hpp": "class ring final : base {\n", "lib/base/a.hpp": "class ring;\n"},
     "base may not know ring, of io"),
    *(("declarations", {"lib/io/a.hpp": defined, "lib/base/a.hpp": declared},
       f"a.hpp:{line}: room base may not know ring, of io")
      for defined, declared, line in [
          ("class ring {\n", "  class ring;\n", 1),
          ("class ring {\n", "int f();  struct ring;\n", 1),
          ("class ring {\n", "class CORDMA_EXPORT ring;\n", 1),
          ("class ring {\n", "class [[nodiscard]] ring;\n", 1),
          ("class ring {\n", "namespace cordma { class ring; }\n", 1),
          ("template <class T>\nclass ring {\n", "template <class T> class ring;\n", 1),
          ("template <class T> struct ring {};\n", "template <class T>\nstruct ring;\n", 2),
          ("enum class ring : int {\n", "enum class ring : int;\n", 1),
          ("enum ring : std::uint8_t { a };\n", "enum ring : std::uint8_t;\n", 1),
          ("union ring {\n", "union ring;\n", 1),
          ("class ring {\n", "  friend class ring;\n", 1),
          ("class ring {\n", "  friend struct cordma::detail::ring;\n", 1),
          ("class ring {\n", "  friend class ring<int>;\n", 1),
          ("namespace cordma { struct ring {}; }\n", "struct ring;\n", 1)]),
    ("one_engine", {"lib/rpc/a.cpp": "int f() { return qp.post_send(&wr, &bad); }\n"}, "post_send is the room queue's"),
    *(("plain_names", {name: text}, f"a.{name[-3:]}:2: '{word}' in the name {called}: {terms}")
      for name, text, word, called, terms in [
          ("lib/io/a.cpp", "// A way.\nbool looked_once = true;\n", "looked", "looked_once", "polled"),
          ("tests/io/a.cpp", "\nlistener door;\n", "door", "door", "listener"),
          ("bench/a.hpp", HEADER + "enum class Way {};\n", "way", "Way", "route"),
          (SOFTVERBS + "src/cm/a.hpp", HEADER + "channel* home;\n", "home", "home", "executor")]),
    ("softverbs_layers", {"subprojects/softverbs/src/wire/a.cpp": '#include "link/link.hpp"\n'},
     "wire may not include link"),
    ("softverbs_layers", {"subprojects/softverbs/src/node/a.cpp": '#include "qp/queue_pair.hpp"\n'},
     "node may not include qp"),
    ("softverbs_layers", {"subprojects/softverbs/src/attic/a.cpp": '#include "wire/a.hpp"\n'},
     "room attic is not in"),
    ("softverbs_layers", {"subprojects/softverbs/tests/a.cpp": "#include <cordma/cordma.hpp>\n"},
     "nothing of cordma"),
    ("softverbs_layers", {"lib/verbs/a.cpp": "#include <softverbs/softverbs.h>\n"},
     "nothing of softverbs"),
    ("sizes", {"subprojects/softverbs/src/qp/a.cpp": "//\n" * 501}, "501 lines"),
    ("sizes", {"lib/io/a.cpp": "//\n" * 501}, "501 lines"),
    ("sizes", {"include/cordma/io/a.hpp": "//\n" * 351}, "351 lines"),
    ("sizes", {"tests/support/a.hpp": "//\n" * 351}, "351 lines"),
    ("sizes", {"tests/io/a_test.cpp": "//\n" * 601}, "601 lines"),
    ("sizes", {"bench/a.cpp": "//\n" * 801}, "801 lines"),
    ("sizes", {"tests/io/a_test.py": "#\n" * 601}, "601 lines"),
    ("assertions", {"tests/io/a_test.cpp": 'TEST_CASE("a", "[io]") {\n  go();\n}\n'},
     "a_test.cpp:1: a test case without an assertion"),
    ("assertions", {"tests/support/a.hpp": HEADER + "inline void go() {\n  CHECK(true);\n}\n",
                    "tests/io/a_test.cpp": 'TEST_CASE("a", "[io]") {\n  go();\n}\n'},
     "cannot fail"),
    ("sizes", {"lib/io/a.cpp": "x" * 101}, "101 columns"),
    ("functions", {"lib/io/a.cpp": "int f() {\n" + "  g();\n" * 69 + "}\n"}, "71 lines"),
    ("functions", {"lib/io/a.hpp": "  int f() {\n" + "    g();\n" * 69 + "  }\n"}, "71 lines"),
    ("guards", {"lib/io/a.hpp": "int a;\n"}, "no #pragma once"),
    ("guards", {"subprojects/softverbs/include/a.h": "int a;\n"}, "no #ifndef"),
    ("functions", {"subprojects/softverbs/src/qp/a.cpp": "int f() {\n" + "  g();\n" * 69 + "}\n"},
     "71 lines"),
    ("own_header_first", {"include/cordma/io/a.hpp": HEADER, "lib/io/a.cpp": "#include <vector>\n"},
     "own header comes first"),
    ("own_header_first", {"lib/io/a.hpp": HEADER, "lib/io/a.cpp": '#include "io/b.hpp"\n'},
     "own header comes first"),
    ("words", {"docs/a.md": "TO" "DO: write\n"}, "leave it out"),
    ("words", {"lib/io/a.cpp": "// FIX" "ME\n"}, "leave it out"),
    ("words", {"docs/a.md": "see /ho" "me/me/x\n"}, "path of one machine"),
    ("miscompiled_awaits", {"tests/io/a_test.cpp": "  CHECK(co_await f() == 1);\n"}, "g++ 12"),
    ("miscompiled_awaits", {"tests/io/a_test.cpp": "co_await go({\"h\", 1});\n"}, "a_test.cpp:1"),
    ("miscompiled_awaits", {"tests/io/a_test.cpp": "co_await go(\n    named{1, \"h\"});\n"},
     "a_test.cpp:2: g++ 12 destroys"),
    ("miscompiled_awaits", {"lib/io/a.cpp": "co_await go({.one = {2}, .host = \"h\"});\n"},
     "destroys"),
    ("miscompiled_awaits", {"lib/io/a.cpp": "co_await late(go(b ? c : a{\"h\"}), 1s);\n"},
     "destroys what is in"),
    ("miscompiled_awaits", {"lib/io/a.cpp": "co_await go(b ? c : endpoint(\"h\"));\n"},
     "destroys what this ?:"),
    ("miscompiled_awaits", {"lib/io/a.cpp": "co_await go(std::vector<std::string>{\"h\"});\n"},
     "destroys"),
    ("miscompiled_awaits", {"lib/io/a.cpp": "  if ((co_await f()).ok()) {}\n"}, "a.cpp:1: g++ 12"),
    ("miscompiled_awaits", {"lib/io/a.cpp": "\nif (a() &&\n    co_await f()) return;\n"}, "a.cpp:2"),
    ("miscompiled_awaits", {"tests/io/a_test.cpp": "while (const auto n = co_await f()) {}\n"},
     "a_test.cpp:1: g++ 12 may hang"),
    ("miscompiled_awaits", {"examples/a.cpp": "for (int n; (n = co_await f()) > 0;) {}\n"}, "may hang"),
    ("miscompiled_awaits", {"tools/a.cpp": "if (c != ')' && co_await f()) {}\n"}, "may hang"),
    ("sleeps", {"tests/io/a_test.cpp": "std::this_thread::sleep_for(1s);\n"}, "waits for an event"),
    ("sleeps", {"tests/io/a_test.cpp": "  ::usleep(5);\n"}, "waits for an event"),
    ("own_header_first", {"subprojects/softverbs/src/qp/a.hpp": HEADER,
                          "subprojects/softverbs/src/qp/a.cpp": "#include <vector>\n"},
     "own header comes first"),
    ("dead_files", {"subprojects/softverbs/fuzz/a.cpp": ""}, "no meson.build"),
    ("dead_files", {"lib/io/a.cpp": "", "lib/io/meson.build": "files('b.cpp')\n"}, "no meson.build"),
    ("mirrored_tests", {"lib/io/a.cpp": ""}, "no tests/io/a_test.cpp"),
    ("mirrored_tests", {"tests/hygiene/untested.txt": "io/gone | was there\n"}, "no such source"),
    ("mirrored_tests", {"lib/io/a.cpp": "", "tests/hygiene/untested.txt": "io/a |\n"},
     "no reason"),
    ("mirrored_tests", {"lib/io/a.cpp": "", "tests/io/a_test.cpp": "",
                        "tests/hygiene/untested.txt": "io/a | plain\n"}, "take it out"),
    ("changelog", {"CHANGELOG.md": "# News\n"}, "first line"),
    ("changelog", {"CHANGELOG.md": "# Changelog\n## yesterday\n"}, "write '## Unreleased'"),
    ("changelog", {"CHANGELOG.md": "# Changelog\n## Unreleased\n### Fixed\n"}, "sections are"),
    ("installed", {"include/cordma/io/a.hpp": HEADER}, "does not name io/a.hpp"),
    ("installed", {"include/meson.build": "'io/a.hpp'"}, "there is no io/a.hpp"),
    ("installed", {"include/cordma/io/a.hpp": HEADER, "include/cordma/cordma.hpp": HEADER},
     "includes the public headers, and no others: cordma/io/a.hpp"),
    ("installed", {"include/cordma/detail/io/a.hpp": HEADER,
                   "include/cordma/cordma.hpp": "#include <cordma/detail/io/a.hpp>\n"},
     "includes the public headers, and no others: cordma/detail/io/a.hpp"),
    ("installed", {"include/cordma/sim.hpp": HEADER}, "does not name sim.hpp"),
    ("private_headers", {"examples/a.hpp": "#include <cordma/detail/io/a.hpp>\n"},
     "a.hpp:1: cordma/detail/io/a.hpp is private"),
    ("private_headers", {"docs/a.md": "```cpp\n#include <cordma/detail/io/a.hpp>\n```\n"},
     "a.md:2: cordma/detail/io/a.hpp is private"),
    ("doc_tags", {"include/cordma/io/a.hpp": "/// Ends. Thread: any.\n"}, r"write \thread"),
    ("doc_tags", {"include/cordma/io/a.hpp": "/// Ends. Cost: none.\n"}, r"write \cost"),
    ("doc_tags", {"include/cordma/io/a.hpp": "/// Ends. Errors:\n"}, r"write \errors"),
    ("doc_tags", {"include/cordma/io/a.hpp": "int f();  ///< Throws `error`.\n"}, r"write \errors"),
    ("doc_tags", {"lib/io/a.hpp": "/// Ends. Thread: any.\n"}, r"write \thread"),
    ("plain_comments", {"lib/io/a.cpp": "int a;\n// It is old.\n"}, "a.cpp:2: a comment begins with 'It'"),
    ("plain_comments", {"include/cordma/io/a.hpp": "int a;  ///< of a ring\n"}, "begins with 'of'"),
    ("plain_comments", {"lib/io/a.cpp": 'f("//");  // Nobody reads.\n'}, "begins with 'Nobody'"),
    ("plain_comments", {"tools/a.py": "# The same, later.\n"}, "begins with 'The same'"),
    ("plain_comments", {"examples/run": "#!/bin/sh\n\n# One of them.\n"}, "run:3: a comment begins with 'One of'"),
    ("plain_comments", {"bench/a.cpp": "/// A.\n/// " + "Word " * 26 + "ends.\n"}, "a.cpp:2: a sentence of 27"),
    ("plain_comments", {"subprojects/softverbs/src/qp/a.cpp": "//" + " word" * 13 + ":\n//" + " word" * 13},
     "a.cpp:1: a sentence of 26"),
    ("plain_comments", {"lib/io/a.cpp": "int a;  //" + " word" * 13 + "\n        //" + " word" * 13},
     "a.cpp:1: a sentence of 26"),
]

GOOD_TREE = {
    "README.md": """# The house: `rooms`, [doors](docs/)

[Docs](docs), [a mark](docs/rooms.md#mark), [a
room](docs/rooms.md#the-io_ring-a-room), [its twin](docs/rooms.md#twins-1 "Twins"), [above][top],
[out](https://example.org/none.md#none), [source](lib/io/ring.cpp), [here](#the-house-rooms-doors).

Code is no link: `a[0](none.md)`, ``b`[0](none.md)``.

```cpp
[](none.md) { }
```

[top]: docs/rooms.md
""",
    "docs/rooms.md": "## The `io_ring`: a room\n\n# Twins\n\n# Twins #\n<a id=\"mark\"></a>[up](../README.md)\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Safety\n- Nothing leaks.\n",
    "include/meson.build": "'io/ring.hpp', 'detail/io/alarm.hpp', 'cordma.hpp'\n",
    "include/cordma/cordma.hpp": HEADER + "#include <cordma/io/ring.hpp>\n",
    "include/cordma/sim.hpp": HEADER,
    "lib/sim/meson.build": "install_headers('../../include/cordma/sim.hpp')\n",
    "include/cordma/io/ring.hpp": HEADER + "#include <cordma/detail/coro/task.hpp>\n",
    "include/cordma/detail/io/alarm.hpp": HEADER + "/// Rings. \\thread any. It throws nothing.\n",
    "lib/io/ring.cpp": "#include <cordma/io/ring.hpp>\n#include \"io/clock.hpp\"\n"
                       "// The way out.\nchar way_out = '\"', one_way = '\"';  // A place: \"its\".\n"
                       "const char* text = \"who\";\nauto in_place = R\"(\"turn\")\";\n",
    "lib/io/clock.hpp": HEADER + "class clock {\n  struct hand;\n};\nstruct clock::hand {\n};\n",
    "lib/rpc/hand.hpp": HEADER + "struct hand {\n};\n",
    "tests/docs/a.cpp.in": """// Sentences are short, but a table, a list and code are no sentences.
/// | state | what moves it | """ + "word " * 30 + """|
/// - """ + "word " * 30 + """
///
///     """ + "word " * 30 + """
/// \\verbatim
/// """ + "word " * 30 + """
/// \\endverbatim
/// """ + "Word " * 24 + """ends. """ + "Word " * 24 + """ends.
/// \\errors as `f` \\thread """ + "word " * 25 + """
constexpr auto text = "// it is text";  // `it` is a name.
constexpr char quote = '"', mark = '"';  // A digit: 1'000.
""",
    "lib/io/meson.build": "cordma_sources += files('ring.cpp')\n",
    "tests/io/ring_test.cpp": """#include <support/served.hpp>

int main() { executor.sleep_for(1s); }

TEST_CASE("a helper asserts", "[io]") {
  passes(1);
}

TEST_CASE("a destructor asserts", "[io]") {
  served_twice s;
}
""",
    "examples/meson.build": "'safe.cpp'",
    "examples/safe.cpp": """co_await rt.connect({"host", 1});
co_await f(cordma::endpoint{"host:1"}, [] { return "text"; }, std::string{"text"});
const request named{"text"};
co_await f(named, "text");
if (named.ok(1)) co_await f(named, "text");
while (true) co_await f(named, "text");
""",
    "tests/support/served.hpp": HEADER + """struct served {
  ~served() { CHECK(is_over); }
};
struct served_twice : served {
  bool is_over = true;
};
inline void passes(int n) {
  CHECK(n == 1);
}
""",
    "tests/io/meson.build": "room_tests += {'io': files('ring_test.cpp')}\n",
    "tests/hygiene/untested.txt": "# room/stem | reason\nio/clock | an interface\nio/alarm | another\n"
                                  "rpc/hand | another\n",
}


def rooms_of_document(text):
    """The table of docs/architecture.md: which rooms each room may include."""
    rooms = {}
    for room, cell in re.findall(r"^\| (\w+) \|.*\| ([^|]*) \|$", text, re.MULTILINE):
        first, all_above, but = cell.partition("all above")
        named = set(re.findall(r"\w+", but.removeprefix(" but") if all_above else first))
        rooms[room] = set(rooms) - named if all_above else named
        assert not all_above or named <= set(rooms), f"{room}: {named}"
    return rooms


def findings_in(tree, rules):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return list(hygiene.findings(folder, rules))


def main():
    run = cases.Cases("hygiene")
    with run.case("the tree obeys the rules of the house"):
        found = list(hygiene.findings(ROOT))
        assert not found, "\n" + "\n".join(found)
    with run.case("the table of rooms is that of docs/architecture.md, and each room is a folder"):
        documented = (ROOT / "docs/architecture.md").read_text().partition("\n## ")[0]
        rooms = rooms_of_document(documented.partition("| --- ")[2])
        table = {room: set(may.split()) for room, may in hygiene.MAY_INCLUDE.items()}
        assert rooms == table, [(room, rooms.get(room), table.get(room)) for room in {*rooms, *table}
                                if rooms.get(room) != table.get(room)]
        folders = {path.name for path in (ROOT / "lib").iterdir() if path.is_dir()}
        assert folders == set(table), folders ^ set(table)
    for rule, tree, said in BAD_TREES:
        with run.case(f"the rule '{rule}' says: {said}"):
            found = findings_in(tree, [getattr(hygiene, rule)])
            assert any(said in line for line in found), f"found only {found}"
    with run.case("a tree that obeys every rule has no findings"):
        found = findings_in(GOOD_TREE, hygiene.RULES)
        assert not found, found
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
