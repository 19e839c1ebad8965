#!/usr/bin/env python3
"""What the documents claim of the sources is so: `claims_test.py ROOT`."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

STEPS_MAX = 12
PERFORMANCE_LINES_MAX = 150
NUMBERED = re.compile(r"^(\d+)\. (.*(?:\n +\S.*)*)", re.MULTILINE)
NAMED = re.compile(r"`(\w+)::(\w+)`")
COMMENT = re.compile(r"//[^\n]*")

SOURCES = """
/// class ring { void comment() {} };
class CORDMA_EXPORT ring final : base<int> {
  [[nodiscard]] int inlined(int n = {}) const noexcept { return helper(n); }
  void declared() noexcept;
  virtual void pure() = 0;
};
void ring::declared() noexcept { called(); }
void other() { ring::used(); }
"""


def walk(document):
    """The steps of the walk of one WRITE: (number, text)."""
    section = document.partition("\n## One WRITE")[2].partition("\n## ")[0]
    return [(int(number), text) for number, text in NUMBERED.findall(section)]


def is_defined(sources, owner, function):
    """Whether a class of that name defines the function, in its head or outside of it."""
    rest = r"\([^;]*?\)(?: const| noexcept| final| override)* \{"
    if re.search(rf"^[^\n]*[\w>&*] [&*]?{owner}::{function}{rest}", sources, re.MULTILINE):
        return True
    head = rf"(?:class|struct) (?:\w+ |\[\[\w+\]\] |alignas\([^)]*\) )*{owner}\b[^;{{}}]*\{{"
    for match in re.finditer(head, sources):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(sources[end], 0)
            end += 1
        if re.search(rf"[\w>&*] [&*]?{function}{rest}", sources[match.end():end]):
            return True
    return False


def main():
    root = pathlib.Path(sys.argv[1])
    run = cases.Cases("claims")
    paths = [path for folder in ("include", "lib") for path in sorted((root / folder).rglob("*.[ch]pp"))]
    sources = "\n".join(COMMENT.sub("", path.read_text()) for path in paths)
    steps = walk((root / "docs/architecture.md").read_text())
    with run.case("a function is defined in a class or outside of it, not where it is called or declared"):
        text = COMMENT.sub("", SOURCES)
        found = [name for name in ("inlined", "declared", "pure", "called", "used", "helper", "comment")
                 if is_defined(text, "ring", name)]
        assert found == ["inlined", "declared"], found
    with run.case("the walk of one WRITE has few steps"):
        assert [number for number, _ in steps] == list(range(1, len(steps) + 1)), steps
        assert 1 < len(steps) <= STEPS_MAX, f"{len(steps)} steps, above {STEPS_MAX}"
    with run.case("each step of the walk begins with its one function, which the sources define"):
        for number, text in steps:
            named = NAMED.findall(text)
            assert len(named) == 1 and text.startswith("`{}::{}`".format(*named[0])), (number, named)
            assert is_defined(sources, *named[0]), f"step {number}: no {'::'.join(named[0])}"
    with run.case("the document of performance is short"):
        lines = len((root / "docs/performance.md").read_text().splitlines())
        assert lines <= PERFORMANCE_LINES_MAX, f"{lines} lines, above {PERFORMANCE_LINES_MAX}: shorten it"
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
