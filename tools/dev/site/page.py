"""The frame of each page: its head, its navigation and its foot."""

import html
import re

from . import addresses

FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="{style}">
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<a class="site" href="{first}">cordma</a>
<span>RDMA by co_await</span>
{to_contents}<a class="menu" href="#menu">Menu</a>
</header>
<main id="content">
{body}{neighbours}</main>
{contents}<nav id="menu" aria-label="All pages">
{navigation}</nav>
</body>
</html>
"""
# A page that has fewer headings needs no table of contents.
HEADINGS_LEAST = 3


def text_of(title):
    return re.sub(r"<[^>]*>", "", title)


def contents(headings):
    """Links to the headings of a page, those of level 3 in lists of their own."""
    shown = [heading for heading in headings if heading.level in (2, 3)]
    if len(shown) < HEADINGS_LEAST:
        return ""
    lines = [f'<li class="level{one.level}"><a href="{addresses.link("", "", one.anchor)}">{one.text}</a></li>'
             for one in shown]
    return '<nav class="contents" id="contents" aria-label="On this page">\n<h2>On this page</h2>\n<ul>\n' + "\n".join(
        lines) + "\n</ul>\n</nav>\n"


def navigation(page, groups, titles):
    """`groups` has (title, is it folded, pages) of each group."""
    out = []
    for title, is_folded, pages in groups:
        is_open = " open" if not is_folded or page in pages else ""
        out.append(f"<details{is_open}><summary>{html.escape(title)}</summary>\n<ul>")
        for other in pages:
            current = ' aria-current="page"' if other == page else ""
            out.append(f'<li><a href="{addresses.link(page, other)}"{current}>{titles[other]}</a></li>')
        out.append("</ul></details>")
    return "\n".join(out) + "\n"


def neighbours(page, groups, titles):
    """Links to the pages before and after it in the navigation."""
    pages = [other for _, _, pages in groups for other in pages]
    if page not in pages:
        return ""
    at = pages.index(page)
    beside = [("prev", "Previous", pages[at - 1:at]), ("next", "Next", pages[at + 1:at + 2])]
    links = [f'<a rel="{rel}" href="{addresses.link(page, other)}">{label}: {titles[other]}</a>'
             for rel, label, found in beside for other in found]
    return '<p class="neighbours">' + "\n".join(links) + "</p>\n"


def framed(page, title, body, headings, groups, titles):
    name, inside = text_of(title), contents(headings)
    return FRAME.format(title=name if name == "cordma" else f"{name} - cordma", body=body,
                        style=addresses.link(page, "style.css"), first=addresses.link(page, "index.html"),
                        to_contents='<a class="menu" href="#contents">On this page</a>\n' if inside else "",
                        contents=inside, navigation=navigation(page, groups, titles),
                        neighbours=neighbours(page, groups, titles))
