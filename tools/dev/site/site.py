"""The site: a page for each document, for each source that a document links to, and for each public header."""

import html
import pathlib
import posixpath
import re
import shutil
import urllib.parse

import pygments.lexers
import pygments.util

from . import addresses, documents, linkcheck, page, plan, reference, samples

STYLE = pathlib.Path(__file__).parent / "style.css"
PICTURES = (".svg", ".png")
ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")


class Site:
    def __init__(self, root, output, xml):
        self._root, self._output = root, output
        self._groups = plan.read(root)
        self._documents = {name for group in self._groups for name in group.documents}
        self._reference = reference.Reference(xml, self._example)
        self._samples = None
        self._linked = {}  # Files, folders and pictures of the tree that pages link to, by address.

    def build(self):
        """Writes all pages. Returns what is wrong with them."""
        if found := list(plan.findings(self._root, self._groups)):
            return found
        self._samples = samples.Samples(self._root, self._documents)
        shutil.rmtree(self._output, ignore_errors=True)
        made = {addresses.of_document(name): self._document(name) for name in sorted(self._documents)}
        titles = {address: document.title for address, document in made.items()}
        groups = [(group.title, group.is_folded, [addresses.of_document(name) for name in group.documents])
                  for group in self._groups]

        def write(address, title, body, headings):
            text = page.framed(address, title, body, headings, groups, titles)
            self._file(address).write_text(text)

        for address, document in made.items():
            write(address, document.title, document.body, document.headings)
        for header, (address, title, body, headings) in self._reference.pages():
            self._address(f"include/{header}")
            write(address, title, body, headings)
        self._write_linked(write)
        shutil.copy(STYLE, self._file("style.css"))
        return list(linkcheck.findings(self._output))

    def _example(self, here, public):
        """The example of a name, folded up, or nothing."""
        found = self._samples.of(public)
        if found is None:
            return ""
        title = self._short_title(found.source) or found.source
        href = addresses.link(here, self._address(found.source), found.anchor)
        return (f'<details class="example"><summary>Example, from <a href="{href}">{html.escape(title, quote=False)}'
                f"</a></summary>\n{documents.highlighted(found.text, found.language)}</details>\n")

    def _file(self, address):
        path = self._output / address
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _document(self, name):
        here = addresses.of_document(name)
        made = documents.render((self._root / name).read_text(), lambda link: self._link(name, link),
                                lambda known: self._reference.link_of_name(here, known))
        if here == addresses.REFERENCE_INDEX:
            body, headings = self._reference.index()
            made = documents.Document(made.title, made.body + body, made.headings + headings)
        return made

    def _link(self, document, link):
        """The site's link for a link of a document, and the title of a document that it leads to."""
        if ELSEWHERE.match(link):
            return link, None
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(document), path)) if path else document
        there = self._address(target)
        if there is None:
            return link, None  # The check of all links finds it.
        return addresses.link(addresses.of_document(document), there, anchor), self._short_title(target)

    def _short_title(self, name):
        """The title of a document, or what stands before its colon if that is more than a number."""
        if name not in self._documents:
            return None
        title = (self._root / name).read_text().partition("\n")[0].removeprefix("# ")
        before = title.partition(": ")[0]
        return title if re.fullmatch(r"[\d.]+", before) else before

    def _address(self, target):
        """Where the site shows a file or a folder of the tree; None where there is none."""
        path = self._root / target
        if target in self._documents:
            return addresses.of_document(target)
        if not path.exists():
            return None
        address = addresses.of_folder(target) if path.is_dir() else addresses.of_source(target)
        if target.endswith(PICTURES):
            address = target
        self._linked[address] = target
        return address

    def _write_linked(self, write):
        """Pictures as they are, and pages of all else. The page of a folder links to its files."""
        written = set()
        while rest := sorted(set(self._linked) - written):
            for address in rest:
                target = self._linked[address]
                path = self._root / target
                if target.endswith(PICTURES):
                    shutil.copy(path, self._file(address))
                elif path.is_dir():
                    write(address, target, self._folder(address, path), [])
                else:
                    write(address, target, listing(target, path.read_text(errors="replace")), [])
                written.add(address)

    def _folder(self, address, path):
        name = path.relative_to(self._root).as_posix()
        items = [f'<li><a href="{addresses.link(address, self._address(f"{name}/{one.name}"))}">{one.name}</a></li>'
                 for one in sorted(path.iterdir()) if one.is_file()]
        return f"<h1>{addresses.breakable(name)}</h1>\n<ul>\n" + "\n".join(items) + "\n</ul>\n"


def listing(name, text):
    """A source, highlighted."""
    try:
        language = pygments.lexers.get_lexer_for_filename(name).aliases[0]
    except pygments.util.ClassNotFound:
        language = "text"
    return f"<h1>{addresses.breakable(name)}</h1>\n" + documents.highlighted(text, language)


def build(root, output, xml):
    return Site(root, output, xml).build()


def names_without_example(root, xml):
    """The outermost names that no document and no program shows, each in a line with its header."""
    shown = samples.Samples(root, [name for group in plan.read(root) for name in group.documents])
    api = reference.Reference(xml)
    for _, header in sorted(api.headers.items()):
        for public in api.outermost(header).values():
            if not samples.needs_none(public.name) and shown.of(public) is None:
                yield f"{header.name}: {public.name}"
