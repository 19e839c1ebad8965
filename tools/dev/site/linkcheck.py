"""Finds links of the site that lead to no page, file or anchor of it."""

import html.parser
import posixpath
import re
import urllib.parse

ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")


class Page(html.parser.HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.repeated, self.links = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                (self.repeated.append if value in self.anchors else self.anchors.add)(value)
            elif name in ("href", "src"):
                self.links.append(value or "")


def findings(folder):
    """Yields what is wrong with the links of the pages in `folder`."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    pages = {name: Page(path.read_text()) for name, path in sorted(files.items()) if name.endswith(".html")}
    for name, page in pages.items():
        for anchor in page.repeated:
            yield f"{name}: two elements have the anchor {anchor}"
        for link in page.links:
            if ELSEWHERE.match(link):
                continue
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if target not in files:
                yield f"{name}: the link {link} leads to no file"
            elif "#" in link and (target not in pages or anchor not in pages[target].anchors):
                yield f"{name}: the link {link} leads to no anchor"
