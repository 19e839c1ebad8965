#!/usr/bin/env python3
"""Doxygen understands every doc comment: `reference_test.py ROOT OUTPUT`."""

import pathlib
import re
import shutil
import sys
import tempfile

import reference

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

BAD_HEADER = """#pragma once
namespace cordma {
/// \\errorz: no such tag.
void call();
}
"""


# A connection inherits these functions from a header in detail/.
REQUESTS = ("await", "send", "send_with_imm", "write", "write_with_imm", "read", "compare_swap", "fetch_add",
            "atomic_write", "post", "post_all")


def described(page, function):
    """Whether a class's page has a paragraph below the heading of this function."""
    for part in page.split('<h2 class="memtitle">')[1:]:
        title, _, rest = part.partition("</h2>")
        if re.search(rf">{function}\(\)", re.sub(r"</span>", ">", title)):
            return "<p>" in rest.partition('<div class="memdoc">')[2]
    return False


def warnings_of(root, header):
    """Warnings about a project whose one header is `header`."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        (copy / "include/cordma").mkdir(parents=True)
        (copy / "include/cordma/a.hpp").write_text(header)
        (copy / "docs").mkdir()
        shutil.copy(root / "docs/Doxyfile", copy / "docs")
        (copy / "docs/reference.md").write_text("# API reference\n")
        return reference.make(copy, copy / "build/reference")


def main():
    root, output = (pathlib.Path(path) for path in sys.argv[1:])
    run = cases.Cases("reference")
    patterns = reference.explained(reference.FILTER.read_text())
    warnings = reference.make(root, output)
    with run.case("Doxygen warns of nothing but what the filter explains"):
        found = reference.unexplained(warnings, patterns)
        assert not found, "\n" + "\n".join(found)
    with run.case("every line of the filter has a reason, and explains a warning"):
        for pattern, *reason in patterns:
            assert reason and reason[0], f"no reason: {pattern}"
            assert any(re.search(pattern, line) for line in warnings), f"nothing to explain: {pattern}"
    with run.case("a class's page has the headings of our own tags"):
        text = (output / "html/classcordma_1_1mr__allocator.html").read_text()
        for heading in ("Errors", "Thread", "Cost"):
            assert f"<dt>{heading}</dt>" in text, f"no heading {heading}"
    with run.case("the page of connection describes its request functions"):
        text = (output / "html/classcordma_1_1connection.html").read_text()
        for name in REQUESTS:
            assert described(text, name), f"no description of {name}"
    with run.case("the first page leads to the runtime's"):
        assert "classcordma_1_1runtime.html" in (output / "html/index.html").read_text()
    with run.case("private headers are left out"):
        assert not list((output / "html").glob("*frame__cache*"))
    with run.case("an unknown tag is found"):
        found = reference.unexplained(warnings_of(root, BAD_HEADER), patterns)
        assert any("include/cordma/a.hpp:3" in line and "errorz" in line for line in found), found
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
