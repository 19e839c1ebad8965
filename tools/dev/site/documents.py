"""Markdown to HTML, as GitHub shows it."""

import dataclasses
import html
import re

import markdown_it
import pygments
import pygments.formatters
import pygments.lexers
import pygments.util

# Code that names something of the API, unless the word could mean anything else.
CODE_NAME = re.compile(r"(?:cordma::)?((?=\w*(?:_|::))[\w:]+?)(?:\(\))?")
PROSE_NAME = re.compile(r"\bcordma::\w+(?:::\w+)*")


@dataclasses.dataclass
class Heading:
    level: int
    anchor: str
    text: str  # HTML.


@dataclasses.dataclass
class Document:
    title: str  # HTML.
    body: str
    headings: list


@dataclasses.dataclass
class Block:
    language: str
    text: str
    anchor: str  # Of the heading above it; empty: the title.


def highlighted(code, language):
    """A block of code in HTML. A language that Pygments does not know is plain text."""
    try:
        lexer = pygments.lexers.get_lexer_by_name(language or "text", stripnl=False)
    except pygments.util.ClassNotFound:
        lexer = pygments.lexers.TextLexer(stripnl=False)
    shown = pygments.highlight(code, lexer, pygments.formatters.HtmlFormatter(nowrap=True))
    return f'<pre tabindex="0"><code>{shown}</code></pre>\n'


def anchor_of(text, taken):
    """The anchor of a heading, as GitHub spells it. `taken` are those before it in the document."""
    slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    anchor, count = slug, 0
    while anchor in taken:
        count += 1
        anchor = f"{slug}-{count}"
    return anchor


def plain(token):
    """The text of a heading, without its marks."""
    return "".join(child.content for child in token.children if child.type in ("text", "code_inline"))


def code_blocks(text):
    """The fenced blocks of a document."""
    tokens, taken, anchor = markdown_it.MarkdownIt("commonmark").parse(text), set(), ""
    for token, inner in zip(tokens, tokens[1:] + tokens[-1:]):
        if token.type == "heading_open":
            found = anchor_of(plain(inner), taken)
            taken.add(found)
            anchor = "" if token.tag == "h1" else found
        elif token.type == "fence":
            yield Block(token.info.strip(), token.content, anchor)


def code_linked(text, link_of_name):
    """Code in a line. If it names something of the API, it links there."""
    shown = html.escape(text, quote=False)
    match = CODE_NAME.fullmatch(text)
    href = match and link_of_name(match[1])
    return f'<code><a class="name" href="{href}">{shown}</a></code>' if href else f"<code>{shown}</code>"


def prose_linked(text, link_of_name):
    """Text in HTML. Names of the API link there."""
    def linked(match):
        href = link_of_name(match[0].removeprefix("cordma::"))
        return f'<a class="name" href="{href}">{match[0]}</a>' if href else match[0]
    return PROSE_NAME.sub(linked, html.escape(text, quote=False))


def with_names(children, link_of_name):
    """Replaces text and code, outside links, by HTML with links to the reference."""
    depth = 0
    for token in children:
        depth += token.nesting if token.type in ("link_open", "link_close") else 0
        if not depth and token.type in ("text", "code_inline"):
            linked = prose_linked if token.type == "text" else code_linked
            token.type, token.content = "html_inline", linked(token.content, link_of_name)


def lead_links(children, link_of):
    """A link to a document that shows the name of a file shows the document's title."""
    for token, shown in zip(children, children[1:] + children[-1:]):
        for attribute in ("href", "src"):
            if attribute in token.attrs:
                address, title = link_of(token.attrs[attribute])
                token.attrSet(attribute, address)
                if title and shown.type == "text" and shown.content.endswith(".md"):
                    shown.content = title


def picture(renderer, tokens, index, options, environment):
    """On a phone a picture is small: a tap shows it alone."""
    address = html.escape(tokens[index].attrs["src"])
    shown = type(renderer).image(renderer, tokens, index, options, environment)
    return f'<a class="picture" href="{address}">{shown}</a>'


def render(text, link_of, link_of_name):
    """`link_of` gives the site's link for a document's, with the title of a document there; `link_of_name` that to the
    reference, or None."""
    options = {"highlight": lambda code, language, _: highlighted(code, language)}
    markdown = markdown_it.MarkdownIt("commonmark", options)
    markdown.enable(["table", "strikethrough"])
    rules = {"table_open": '<div class="scroll" tabindex="0"><table>\n', "table_close": "</table></div>\n"}
    for rule, tag in rules.items():
        markdown.add_render_rule(rule, lambda *_, tag=tag: tag)
    markdown.add_render_rule("image", picture)
    environment = {}
    tokens = markdown.parse(text, environment)
    headings, taken = [], set()
    for token, inner in zip(tokens, tokens[1:] + tokens[-1:]):
        if token.type == "heading_open":
            anchor = anchor_of(plain(inner), taken)
            taken.add(anchor)
            token.attrSet("id", anchor)
            headings.append((int(token.tag[1]), anchor, inner))
        lead_links(token.children or [], link_of)
    shown = [Heading(level, anchor, html.escape(plain(inner), quote=False)) for level, anchor, inner in headings]
    for token in tokens:
        if token.type == "inline" and not any(token is inner for *_, inner in headings):
            with_names(token.children, link_of_name)
    title = shown[0].text if shown else ""
    return Document(title, markdown.renderer.render(tokens, markdown.options, environment), shown)
