"""An example for each public name: a block of a document that has it, or lines of a program in examples/."""

import dataclasses
import re

from . import documents

LANGUAGES = ("cpp", "c")
PROGRAMS = {".cpp": "cpp", ".hpp": "cpp", ".c": "c"}
FOLDER = "examples"
C_HEADER = "cordma.h"
# A longer text is cut to the lines around the name.
LINES_MAX = 24
LINES_AROUND = 8
UNREAD = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
# Behind a type that a function takes, or that another template holds.
PARAMETER = re.compile(r"(?:<[^<>\n]*>)?(?:::\w+)?(?: ?[&*>]| \w+[,)])")
NAMES = re.compile(r"\bcordma(?:::|_)\w[\w:]*|\bCORDMA_\w+")


@dataclasses.dataclass
class Sample:
    source: str  # The file of the tree that it stands in.
    anchor: str  # Of the heading above it; empty: none, or the title.
    language: str
    text: str

    def __post_init__(self):
        # Positions stay: the same text, with blanks for comments and for what is in quotes.
        self.code = UNREAD.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), self.text)


def needs_none(name):
    """Whether programs never write a name: the compiler does (`promise_type`), or a template's own name stands for its
    specialization, `codec` for `codec<bool>`."""
    return name.rpartition("::")[2] == "promise_type" or ("<" in name and "operator" not in name)


def pattern(public):
    """What a use of a name looks like. A variable or a member may have the same last word, so names of C++ are
    qualified."""
    if public.header == C_HEADER or public.is_macro:
        words = [public.name, *public.values]  # In C, a value stands for its enumeration.
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b")
    if operator := re.fullmatch(r"(?:\w+::)*operator ?(\W+)", public.name):
        # An operator of an enumeration stands before one of its values.
        value = rf"(?:cordma::)?{re.escape(public.operands[0])}::\w"
        before = "" if public.is_unary else r"[\w)\]] "
        after = "" if public.is_unary else " [~(]?"
        return re.compile(before + re.escape(operator[1]) + after + value)
    return re.compile(rf"\bcordma::{re.escape(public.name)}\b")


class Samples:
    def __init__(self, root, names):
        """`names` are the documents."""
        self._samples = [Sample(name, block.anchor, block.language, block.text) for name in sorted(names)
                         for block in documents.code_blocks((root / name).read_text()) if block.language in LANGUAGES]
        self._samples += [Sample(path.relative_to(root).as_posix(), "", PROGRAMS[path.suffix], path.read_text())
                          for path in sorted((root / FOLDER).rglob("*")) if path.suffix in PROGRAMS]

    def of(self, public):
        """The best example of a name, cut to what is around it, or None."""
        if needs_none(public.name):
            return None
        wanted, language = pattern(public), "c" if public.header == C_HEADER else "cpp"
        uses = [(sample, match) for sample in self._samples if sample.language == language
                for match in wanted.finditer(sample.code)]
        if not uses:
            return None
        sample, match = min(uses, key=lambda use: rank(public, *use))
        return dataclasses.replace(sample, text=around(sample.text, match.start()))


def rank(public, sample, match):
    """Less is better: objects before parameters, and an overload's own type before others; then documents before
    programs, a whole text before a part, and what is about few other names, and short."""
    behind = sample.code[match.end():]
    is_less = PARAMETER.match(behind) is not None or (public.is_class and behind.startswith("::"))
    shown = around(sample.code, match.start())
    has_operand = any(re.search(rf"\b{re.escape(one)}\b", shown) for one in public.operands)
    return (is_less, bool(public.operands) and not has_operand, sample.source.startswith(FOLDER + "/"),
            len(shown) < len(sample.code), len(set(NAMES.findall(shown))), len(shown))


def around(text, at):
    """The lines around a position, as far as lines without text before and behind."""
    lines = text.splitlines()
    if len(lines) <= LINES_MAX:
        return text
    middle = text.count("\n", 0, at)
    first = max(middle - LINES_AROUND, 0)
    last = min(middle + LINES_AROUND, len(lines) - 1)
    first = next((line + 1 for line in range(middle - 1, first, -1) if not lines[line]), first)
    last = next((line - 1 for line in range(middle + 1, last) if not lines[line]), last)
    return "\n".join(lines[first:last + 1]).strip("\n") + "\n"
