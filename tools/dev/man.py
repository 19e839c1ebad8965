#!/usr/bin/env python3
"""Makes a man page of its Markdown: `man.py NAME.1.md NAME.1`.

Only as much Markdown is known as man pages have: headings, paragraphs, lists, blocks of code, links, and words in
code, strong or emphasized. An item of a list that begins with code and a colon describes an option.
"""

import pathlib
import re
import sys

TITLE = re.compile(r"# (\S+)\((\d)\)")
OPTION = re.compile(r"((?:`[^`]+`(?:, )?)+): ")
MARKUP = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\*(?P<emphasis>[^*]+)\*"
                    r"|\[(?P<link>[^\]]+)\]\([^)]*\)")
FONTS = {"code": "B", "strong": "B", "emphasis": "I"}
# Tables, quotations, numbered lists, tags, and blocks of code by indentation.
UNKNOWN = re.compile(r"\||>|\d+\. |<|\s{4}|#### ")
FENCE = "```"


def escaped(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def styled(text):
    """A paragraph with its fonts. No line begins with a sign that roff takes for a request."""
    out, begin = [], 0
    for match in MARKUP.finditer(text):
        kind = match.lastgroup
        shown = styled(match[kind]) if kind == "link" else f"\\f{FONTS.get(kind)}{escaped(match[kind])}\\fR"
        out += [escaped(text[begin:match.start()]), shown]
        begin = match.end()
    out.append(escaped(text[begin:]))
    return re.sub(r"^(?=[.'])", r"\\&", "".join(out), flags=re.MULTILINE)


def option(text):
    """An option and its value: the value is what the user chooses, in capitals."""
    words = re.sub(r"[A-Z][A-Z0-9_.:]*(?![a-z])", lambda word: f"\\fI{word[0]}\\fB", escaped(text.replace("`", "")))
    return f"\\fB{words}\\fR"


def item(text):
    match = OPTION.match(text)
    if match:
        return [".TP", option(match[1]), styled(text[match.end():])]
    return ['.IP "\\[u2022]" 2', styled(text)]


def blocks(lines):
    """Yields (line number, kind, text): kinds are heading, code, item and paragraph."""
    number, end = 0, len(lines)
    while number < end:
        first, line = number, lines[number]
        number += 1
        if line.startswith(FENCE):
            number = lines.index(FENCE, number) + 1
            yield first + 1, "code", "\n".join(lines[first + 1:number - 1])
        elif line.startswith("#") and not UNKNOWN.match(line):
            yield first + 1, "heading", line
        elif UNKNOWN.match(line):
            raise ValueError(f"line {first + 1}: a man page cannot have this: {line}")
        elif line.strip():
            is_item = line.startswith("- ")
            while number < end and lines[number].strip() and not lines[number].startswith(("- ", "#", FENCE)):
                number += 1
            text = "\n".join(one.strip() for one in lines[first:number])
            yield first + 1, "item" if is_item else "paragraph", text.removeprefix("- ")


def roff(text):
    out = ['.\\" Made of its Markdown.']
    for number, kind, shown in blocks(text.splitlines()):
        title = TITLE.fullmatch(shown) if number == 1 else None
        if number == 1 and not title:
            raise ValueError("line 1: write '# NAME(1)'")
        if title:
            out.append(f'.TH {escaped(title[1]).upper()} {title[2]} "" cordma')
        elif kind == "heading":
            level, _, words = shown.partition(" ")
            out.append(f".SH {escaped(words).upper()}" if level == "##" else f".SS {escaped(words)}")
        elif kind == "code":
            lines = re.sub(r"^(?=[.'])", r"\\&", escaped(shown), flags=re.MULTILINE)
            out += [".PP", ".RS 4", ".EX", lines, ".EE", ".RE"]
        elif kind == "item":
            out += item(shown)
        else:
            out += [".PP", styled(shown)]
    return "\n".join(out) + "\n"


def main():
    source, target = (pathlib.Path(path) for path in sys.argv[1:])
    try:
        made = roff(source.read_text())
    except ValueError as error:
        print(f"{source}: {error}", file=sys.stderr)
        return 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
