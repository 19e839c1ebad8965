"""Finds conditions that await, which g++ 12 miscompiles."""

import re

CONDITION = re.compile(r"\b(?:if|while|for|switch)\s*(?:constexpr\s*)?\(")


def in_parentheses(text, begin):
    """Returns what stands between `begin`, behind a parenthesis, and the one that closes it."""
    depth = 1
    for end in range(begin, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            return text[begin:end]
    return text[begin:]


def in_conditions(text):
    """Yields the line number of each condition of if, while, for or switch with a co_await in it."""
    text = re.sub(r"'[()]'", "''", text)
    for condition in CONDITION.finditer(text):
        if re.search(r"\bco_await\b", in_parentheses(text, condition.end())):
            yield text.count("\n", 0, condition.start()) + 1
