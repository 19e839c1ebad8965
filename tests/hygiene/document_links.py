"""Finds relative links of documents that lead to no file, folder or heading."""

import posixpath
import re
import urllib.parse

# A document's code, in which nothing is a link; the target of a link, of a definition, of a tag.
FENCED = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
LINKS = re.compile(r"\]\(\s*<?([^()<>\s]+)>?(?:\s+[\"'(][^)]*)?\)|^ {0,3}\[[^\]]+\]:\s*<?([^<>\s]+)"
                   r"|<(?:a|img)\s[^>]*?(?:href|src)=[\"']([^\"']+)", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$", re.MULTILINE)
MARKED = re.compile(r"<a\s[^>]*?(?:id|name)=[\"']([^\"']+)")


def without_code(lines, blank_spans):
    """A document's text, every line where it was, without blocks of code (and code in a line)."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    text = FENCED.sub(blank, "\n".join(lines))
    return CODE_SPAN.sub(blank, text) if blank_spans else text


def anchors_of(lines):
    """What `#anchor` may name in a document: its headings, as GitHub spells them, and its marks."""
    text = without_code(lines, blank_spans=False)
    found = set(MARKED.findall(text))
    for heading in HEADING.findall(text):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        count = 0
        while (anchor := f"{slug}-{count}" if count else slug) in found:
            count += 1
        found.add(anchor)
    return found


def findings(files, paths):
    """Yields (document, line number, what is wrong) of each relative link that leads nowhere."""
    for name, lines in files.items():
        if not name.endswith(".md"):
            continue
        text = without_code(lines, blank_spans=True)
        for match in LINKS.finditer(text):
            link = next(filter(None, match.groups()))
            if ELSEWHERE.match(link):
                continue
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            number = text.count("\n", 0, match.start()) + 1
            if target not in paths:
                yield name, number, f"the link {link} leads to no file"
            elif "#" in link and anchor not in anchors_of(files.get(target, [])):
                yield name, number, f"the link {link} leads to no heading"
