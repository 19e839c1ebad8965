#!/usr/bin/env python3
"""What the documents claim of the sources is so: `claims_test.py ROOT`."""

import ctypes
import errno
import os
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
MEANING = re.compile(r'case errc::(\w+): return \{"([^"]+)"(?:, (\w+))?\}')
NOT_MET = "### Not met with cordma"

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


def enumerators(header, name):
    """{name: value} of an enumeration of error codes."""
    body = header.partition(f"enum class {name} : int {{")[2].partition("};")[0]
    return {word: int(value) for word, value in re.findall(r"^  (\w+) = (\d+),", body, re.MULTILINE)}


def codes(root):
    """{name: (words of its message, remedy)} of each code that a failure can have."""
    header = (root / "include/cordma/base/error.hpp").read_text()
    meanings = {name: (words, remedy or "give_up")
                for name, words, remedy in MEANING.findall((root / "lib/base/error.cpp").read_text())}
    assert list(meanings) == list(enumerators(header, "errc")), set(meanings) ^ set(enumerators(header, "errc"))
    libibverbs = ctypes.CDLL("libibverbs.so.1")
    libibverbs.ibv_wc_status_str.restype = ctypes.c_char_p
    for name, value in enumerators(header, "wc_errc").items():
        meanings[name] = (libibverbs.ibv_wc_status_str(value).decode(), "reconnect")
    return meanings


def missing_codes(page, all_codes):
    """Codes without a heading, a way out, their words or their remedy; those not met are only listed."""
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    not_met = re.findall(r"`(\w+)`", page.partition(NOT_MET)[2].partition("\n## ")[0])
    for name, (words, remedy) in all_codes.items():
        if name in not_met and name not in sections:
            continue
        section = sections.get(name, "")
        parts = (f'"{words}". Remedy: `{remedy}`.', "**Means:**", "**Usual cause:**", "**Way out:**")
        if not all(part in section for part in parts) or f"| {words} | [{name}](#{name}) |" not in page:
            yield name


def statuses(root):
    """{name: (value, words)} of each status of the C interface; one that has no words of its own has None."""
    header = (root / "include/cordma.h").read_text().partition("enum cordma_status {")[2].partition("};")[0]
    words = dict(re.findall(r'case (CORDMA_\w+): return "([^"]+)"', (root / "lib/c/status.cpp").read_text()))
    return {name: (int(value), words.get(name)) for name, value in re.findall(r"^  (CORDMA_\w+) = (\d+)", header, re.M)}


def messages(root):
    """[(status, text)] of the C interface where the text stands beside its status."""
    source = "\n".join(COMMENT.sub("", path.read_text()) for path in sorted((root / "lib/c").glob("*.[ch]pp")))
    found = re.findall(r'(?:note\(|misuse\{)\s*(CORDMA_\w+),\s*((?:"[^"]*"\s*)+)[)}]', source)
    found += [("CORDMA_BAD_ARGUMENT", text) for text in
              re.findall(r'refuse_unless\([^;]*?,\s*((?:"[^"]*"\s*)+)\);', source)]
    return [(status, "".join(re.findall('"([^"]*)"', text))) for status, text in found]


def missing_statuses(page, root):
    """Statuses of C that lack a heading, their words, a way out or one of their messages."""
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    codes_of = {value: name for name, value in
                enumerators((root / "include/cordma/base/error.hpp").read_text(), "errc").items()}
    for name, (value, words) in statuses(root).items():
        if value in codes_of:
            if name != f"CORDMA_{codes_of[value].upper()}" or codes_of[value] not in sections:
                yield name
            continue
        if name in ("CORDMA_OK", "CORDMA_WC", "CORDMA_ERRNO"):
            if f"`{name}`" not in page:
                yield name
            continue
        section = sections.get(name, "")
        parts = (f'"{words}".', "**Means:**", "**Usual cause:**", "**Way out:**")
        if not all(part in section for part in parts) or f"| {words} | [{name}](#{name.lower()}) |" not in page:
            yield name
        # A message about a null pointer names the function and the argument: the page has one of them.
        yield from (text for status, text in messages(root) if status == name
                    and text not in " ".join(section.split()) and not text.endswith(" is null"))


def missing_errnos(page, root):
    """The errno values that the library has a remedy or a way out for, without a row or their words."""
    row = page.partition("\n## errno values")[2].partition("\n## ")[0]
    sources = "".join((root / path).read_text() for path in ("lib/base/error.cpp", "lib/io/stream_socket.cpp"))
    functions = re.findall(r"^[^\n]*(?:way_out_of_\w+|remedy_of_errno)\(int .*?^\}", sources, re.MULTILINE | re.DOTALL)
    assert len(functions) >= 3, functions
    for name in sorted(set(re.findall(r"case (E[A-Z]+):", "".join(functions)))):
        if f"{name}: {os.strerror(getattr(errno, name))}" not in row:
            yield name


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
    with run.case("each error code has a heading in the guide, with its words, its remedy and the way out"):
        page = (root / "docs/guide/errors.md").read_text()
        all_codes = codes(root)
        assert not list(missing_codes(page, all_codes)), list(missing_codes(page, all_codes))
        without = page.replace("### timed_out\n", "").replace("Remedy: `fall_back`", "", 1).replace("`tag_matching`", "")
        assert list(missing_codes(without, all_codes)) == ["timed_out", "no_device", "tag_matching"]
        assert list(missing_codes(page, {"unheard": ("of", "give_up")})) == ["unheard"]
    with run.case("each status of the C interface is in the guide, with its words, messages and way out"):
        assert statuses(root)["CORDMA_WRONG_STATE"] == (68, "not possible in this state")
        assert ("CORDMA_BAD_ARGUMENT", "options.receives is above 4096") in messages(root)
        assert not list(missing_statuses(page, root)), list(missing_statuses(page, root))
        without = page.replace("### CORDMA_CANCELLED\n", "").replace("cordma_stop: not started", "")
        without = without.replace("| would wait in a callback |", "").replace("### misaligned\n", "")
        assert list(missing_statuses(without, root))[:2] == ["CORDMA_MISALIGNED", "CORDMA_IN_CALLBACK"]
        assert {"CORDMA_CANCELLED", "cordma_stop: not started"} < set(missing_statuses(without, root))
    with run.case("each errno that the library knows a remedy or a way out for has a row in the guide"):
        assert not list(missing_errnos(page, root)), list(missing_errnos(page, root))
        without = page.replace("ENOENT: No such file", "ENOENT").replace("ECONNRESET", "")
        assert list(missing_errnos(without, root)) == ["ECONNRESET", "ENOENT"]
    with run.case("the document of performance is short"):
        lines = len((root / "docs/performance.md").read_text().splitlines())
        assert lines <= PERFORMANCE_LINES_MAX, f"{lines} lines, above {PERFORMANCE_LINES_MAX}: shorten it"
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
