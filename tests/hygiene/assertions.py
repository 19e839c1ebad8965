"""Finds test cases that assert nothing, themselves or by what they call."""

import re

ASSERTION = re.compile(r"\b((STATIC_)?(CHECK|REQUIRE)\w*|FAIL|FAIL_CHECK|static_assert)\s*\(")
TEST_CASE = re.compile(r"(TEMPLATE_(LIST_)?)?TEST_CASE(_METHOD)?\(")
# The head of a type, a function, a constructor or destructor, and a lambda that has a name.
TYPE = re.compile(r"(?:template .*)?(?:struct|class) (\w+)")
FUNCTION = re.compile(r"(?!return\b|throw\b|co_\w+\b|else\b|new\b)(?:[\w:<>,&*\[\] ]+[ &*>])?(~?\w+)\(")
LAMBDA = re.compile(r"(?:static )?(?:const )?auto (\w+) = \[")
STATEMENTS = {"if", "for", "while", "switch", "catch", "SECTION", "DYNAMIC_SECTION"}


def definitions(lines):
    """(line number, name, head, body) of each type, function and named lambda, as clang-format
    lays them out: what closes it stands in the column where it begins."""
    for first, line in enumerate(lines):
        text = line.lstrip()
        match = TYPE.match(text) or LAMBDA.match(text) or FUNCTION.match(text)
        if not match or match[1] in STATEMENTS:
            continue
        opens = first
        while opens < len(lines) and not lines[opens].endswith(("{", ";", "}", "};")):
            opens += 1
        if opens == len(lines) or lines[opens].endswith(";") and "{" not in lines[opens]:
            continue
        closes = opens
        if lines[opens].endswith("{"):
            ending = " " * (len(line) - len(text)) + "}"
            while closes < len(lines) and not lines[closes].startswith(ending):
                closes += 1
        whole = "\n".join(lines[first:closes + 1])
        head, _, body = whole.partition("{")
        yield first + 1, match[1], head, body


def in_tests(tree, name, seen):
    """The file, and what it includes of its tests' headers, with their sources."""
    if name in seen or name not in tree.files:
        return
    seen.add(name)
    root = name.partition("tests/")[0] + "tests/"
    for _, _, path in tree.includes(name):
        for header in (name.rpartition("/")[0] + "/" + path, root + path):
            in_tests(tree, header, seen)
            in_tests(tree, header.removesuffix("hpp") + "cpp", seen)


def asserting_names(defined):
    """Functions that assert, or call one that does; types whose constructor or destructor does."""
    found = set()
    while True:
        calls = re.compile("|".join([ASSERTION.pattern] + [rf"\b{re.escape(name)}\b" for name in found]))
        more = set()
        for name, head, body in defined:
            is_type = TYPE.match(head.lstrip())
            if calls.search(head.partition(":")[2] if is_type else body):
                more.add(name.removeprefix("~"))
        if more <= found:
            return found
        found |= more


def assertions(tree):
    """A test case that asserts nothing cannot fail."""
    by_file = {name: list(definitions(lines)) for name, lines in tree.cpp("tests")}
    for name, cases in by_file.items():
        cases = [case for case in cases if TEST_CASE.match(case[2].lstrip())]
        if not cases:
            continue
        seen = set()
        in_tests(tree, name, seen)
        helpers = asserting_names([one[1:] for file in seen for one in by_file.get(file, [])
                                   if not TEST_CASE.match(one[2].lstrip())])
        asserts = re.compile("|".join([ASSERTION.pattern] + [rf"\b{re.escape(helper)}\b"
                                                             for helper in helpers]))
        for number, _, _, body in cases:
            if not asserts.search(body):
                yield name, number, "a test case without an assertion cannot fail"
