"""Where the page of a file of the tree lies in the site, and how one page names another."""

import html
import posixpath
import urllib.parse

SOURCES = "source/"
REFERENCE = "reference/"
REFERENCE_INDEX = "reference/index.html"


def of_document(name):
    """The page of a Markdown document. A README is the first page of its folder."""
    if name == "docs/reference.md":
        return REFERENCE_INDEX
    folder, base = posixpath.split(name)
    return posixpath.join(folder, "index.html" if base == "README.md" else base.removesuffix(".md") + ".html")


def of_source(name):
    return f"{SOURCES}{name}.html"


def of_folder(name):
    return f"{SOURCES}{name}/index.html"


def of_header(name):
    """The page of the reference for `cordma/room/x.hpp`, or for C's `cordma.h`."""
    return f"{REFERENCE}{name.removeprefix('cordma/').removesuffix('.hpp')}.html"


def link(page, target, anchor=""):
    """How `page` links to a heading of `target`."""
    path = "" if target == page and anchor else posixpath.relpath(target, posixpath.dirname(page) or ".")
    return urllib.parse.quote(path) + (f"#{urllib.parse.quote(anchor, safe=':=!')}" if anchor else "")


def breakable(name):
    """A path in HTML, whose lines may break behind a slash."""
    return html.escape(name, quote=False).replace("/", "/<wbr>")
