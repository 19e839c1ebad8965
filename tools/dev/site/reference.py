"""The API reference: a page for each header, from Doxygen's XML."""

import dataclasses
import itertools
import posixpath
import re
import xml.etree.ElementTree as ElementTree

from . import addresses
from .documents import Heading
from .prose import Prose, escaped

CLASSES = ("class", "struct", "union", "concept")
# A header there has no page.
PRIVATE = "cordma/detail/"
C_HEADER = "cordma.h"
# Every declaration of the C header begins with it, and no program does.
C_EXPORT = "CORDMA_API"
# Comments name documents by their paths.
DOCUMENT = re.compile(r"\bdocs/[\w/-]+\.md\b")
# A declaration that is longer has a line for each parameter.
COLUMNS_MAX = 80
OUTER = "cordma::"


@dataclasses.dataclass
class Target:
    page: str
    anchor: str


@dataclasses.dataclass
class Class:
    element: ElementTree.Element
    name: str
    members: list  # Also those of bases: Doxygen copies them.


@dataclasses.dataclass
class Header:
    name: str  # As programs include it.
    members: list  # Of namespaces; in C, of the file.
    classes: list
    about: ElementTree.Element | None = None  # What has the comment on the whole file.


@dataclasses.dataclass
class Public:
    """A name of a header that stands in no other name."""
    header: str
    name: str
    elements: list  # Overloads are several.

    @property
    def is_macro(self):
        return self.elements[0].get("kind") == "define"

    @property
    def is_class(self):
        return self.elements[0].get("kind") in CLASSES

    @property
    def values(self):
        """The values of an enumeration."""
        return [value.findtext("name") for value in self.elements[0].findall("enumvalue")]

    @property
    def operands(self):
        """The types of what a function of C++ takes first: one of each overload. A parameter of any type has none."""
        found = [one.find("param/type") for one in self.elements if one.get("kind") == "function"]
        types = ["".join(one.itertext()).removeprefix("const ").rstrip(" &") for one in found if one is not None]
        return [] if self.header == C_HEADER else [one for one in types if one != "auto"]

    @property
    def is_unary(self):
        return len(self.elements[0].findall("param")) == 1


def short(name):
    """A qualified name without `cordma::`, spelled as programs spell it."""
    return close_up(name.removeprefix(OUTER))


def close_up(text):
    """Without the spaces that Doxygen writes around the signs of a type, in HTML or not."""
    return re.sub(r"(<|&lt;) | (>|&gt;|\*|&(?!lt;))", r"\1\2", text)


def anchor_of(name):
    """HTML allows no space in an anchor."""
    return name.replace(" ", "-")


def is_documented(member):
    return any(member.findall(f"{part}/para") for part in ("briefdescription", "detaileddescription"))


def public_members(element):
    """What programs can name. A function without a comment that takes private types is none of theirs."""
    for member in element.findall("sectiondef/memberdef"):
        is_internal = "detail::" in (member.findtext("argsstring") or "") and not is_documented(member)
        if member.get("prot") == "public" and member.get("kind") != "friend" and not is_internal:
            yield member


def is_special(member):
    """Whether it is a destructor, an assignment, or what is defaulted or deleted, without a comment."""
    name, arguments = member.findtext("name"), member.findtext("argsstring") or ""
    return not is_documented(member) and (name.startswith("~") or name == "operator="
                                          or arguments.endswith(("=default", "=delete")))


def name_in(scope, member):
    """The name under which a page lists a member. Special functions stand with the constructors."""
    name = member.findtext("name")
    if not scope:
        return short(member.findtext("qualifiedname") or name)
    if is_special(member):
        name = re.sub(r"<.*", "", scope).rpartition("::")[2]
    return f"{scope}::{short(name)}"


class Reference:
    def __init__(self, folder, example_of=lambda page, public: ""):
        """`example_of` gives the HTML of an example for a name, or nothing."""
        self.example_of = example_of
        self.headers, self._targets, self.names = {}, {}, {}
        for path in sorted(folder.glob("*.xml")):
            for compound in ElementTree.parse(path).getroot().findall("compounddef"):
                self._sort_in(compound)
        for header in self.headers.values():
            named = {C_EXPORT} | {one.name for one in header.classes}  # In C, `typedef struct s {} s`.
            header.members = [member for member in header.members if member.findtext("name") not in named]
            header.members.sort(key=lambda member: int(member.find("location").get("line")))
            header.classes.sort(key=lambda one: int(one.element.find("location").get("line")))
            self._name(header)

    def _header(self, element):
        """The header that declares it, or None where that is private."""
        file = element.find("location").get("file")
        if file.startswith(PRIVATE) or not (file.startswith("cordma/") or file == C_HEADER):
            return None
        return self.headers.setdefault(file, Header(file, [], []))

    def _sort_in(self, compound):
        if compound.get("kind") == "namespace":
            for member in public_members(compound):
                if header := self._header(member):
                    header.members.append(member)
        elif compound.get("kind") == "file" and (header := self._header(compound)):
            header.about = compound
            header.members += [member for member in public_members(compound)
                               if header.name == C_HEADER or member.get("kind") == "define"]
        elif compound.get("kind") in CLASSES and compound.get("prot", "public") == "public":
            if header := self._header(compound):
                members = list(public_members(compound))
                header.classes.append(Class(compound, short(compound.findtext("compoundname")), members))

    def _name(self, header):
        """Gives each name of a header an anchor. Overloads share one."""
        page = addresses.of_header(header.name)
        for one in header.classes:
            self._add(one.element, page, one.name)
        for scope, members in [(one.name, one.members) for one in header.classes] + [("", header.members)]:
            for member in members:
                name = name_in(scope, member)
                self._add(member, page, name)
                for value in member.findall("enumvalue"):
                    self._add(value, page, f"{name}::{value.findtext('name')}")

    def _add(self, element, page, name):
        target = Target(page, anchor_of(name))
        self._targets.setdefault(element.get("id"), target)
        self.names.setdefault(name, target)

    def link_of_name(self, page, name):
        target = self.names.get(name)
        return addresses.link(page, target.page, target.anchor) if target else None

    def pages(self):
        """Yields (header, (address, title, HTML, headings))."""
        for header in self.headers.values():
            if header.classes or header.members:
                yield header.name, _HeaderPage(self, header).made()

    def knows(self, base):
        """False for a private base, which no page shows."""
        return base.get("refid") in self._targets or base.text.startswith("std::")

    def link_of_id(self, page, refid):
        target = self._targets.get(refid)
        return addresses.link(page, target.page, target.anchor) if target else None

    def prose(self, page):
        return Prose(lambda refid: self.link_of_id(page, refid), lambda name: self.link_of_name(page, name))

    def index(self):
        """What the first page of the reference lists: the headers of each room, and what each name stands for.
        Returns HTML and headings."""
        page, out, headings = addresses.REFERENCE_INDEX, [], []
        headers = sorted((header for header in self.headers.values() if header.classes or header.members),
                         key=lambda header: (posixpath.dirname(header.name), header.name))
        for room, inside in itertools.groupby(headers, key=lambda header: posixpath.dirname(header.name)):
            room = room or "C"
            anchor = room.replace("/", "-")
            headings.append(Heading(2, anchor, room))
            out.append(f'<h2 id="{anchor}">{room}</h2>')
            for header in inside:
                href = addresses.link(page, addresses.of_header(header.name))
                out.append(f'<h3><a href="{href}">{posixpath.basename(header.name)}</a></h3>\n<ul class="names">')
                out += self._names(page, header)
                out.append("</ul>")
        return "\n".join(out), headings

    def outermost(self, header):
        """The names of a header that stand in no other name, by name."""
        outer = [one for one in header.classes if one.name.rpartition("::")[0] not in self.names]
        found = {one.name: Public(header.name, one.name, [one.element]) for one in outer}
        for member in header.members:
            name = name_in("", member)
            found.setdefault(name, Public(header.name, name, [])).elements.append(member)
        return found

    def _names(self, page, header):
        """The outermost names of a header, each with the first sentence about it."""
        for name, public in self.outermost(header).items():
            found = public.elements
            briefs = [self.prose(page).line(one.find("briefdescription/para")).strip() for one in found]
            brief = next(filter(None, briefs), "")
            yield (f'<li><a href="{self.link_of_name(page, name)}"><code>{escaped(name)}</code></a>'
                   f'{": " if brief else ""}{brief}</li>')


class _HeaderPage:
    def __init__(self, reference, header):
        self._page = addresses.of_header(header.name)
        self._header = header
        self._prose = reference.prose(self._page)
        self._reference = reference
        self._outermost = reference.outermost(header)
        self._headings, self._anchors = [], set()

    def made(self):
        file, header = self._header.name, self._header
        source = addresses.link(self._page, addresses.of_source(f"include/{file}"))
        up = addresses.link(self._page, addresses.REFERENCE_INDEX)
        title = file.removeprefix("cordma/")
        out = [f'<p class="where"><a href="{up}">API reference</a></p>\n<h1>{addresses.breakable(title)}</h1>\n'
               f'<pre tabindex="0"><code>#include &lt;<a href="{source}">{file}</a>&gt;</code></pre>\n',
               self._description(header.about) if header.about is not None else ""]
        for one in header.classes:
            out.append(self._heading(2, one.name, one.name))
            out.append(self._declaration(self._class_line(one.element)))
            out.append(self._description(one.element))
            out.append(self._example(one.name))
            out.append(self._members(one.members, one.name, 3))
        if header.classes and header.members:
            out.append(self._heading(2, "functions-and-more", "Functions and more"))
        out.append(self._members(header.members, "", 3 if header.classes else 2))
        return self._page, title, "".join(out), self._headings

    def _heading(self, level, name, text):
        anchor = anchor_of(name)
        self._anchors.add(anchor)
        shown = escaped(text).replace("::", "::<wbr>")
        self._headings.append(Heading(level, anchor, shown))
        return f'<h{level} id="{escaped(anchor)}">{shown}</h{level}>\n'

    def _mark(self, name):
        """The attribute of an anchor that is new on this page."""
        anchor = anchor_of(name)
        if anchor in self._anchors:
            return ""
        self._anchors.add(anchor)
        return f' id="{escaped(anchor)}"'

    @staticmethod
    def _declaration(line):
        return f'<pre class="declaration" tabindex="0"><code>{line}</code></pre>\n'

    def _description(self, element):
        text = "".join(self._prose.blocks(element.find(part)) for part in ("briefdescription", "detaileddescription"))
        return DOCUMENT.sub(self._document_link, text)

    def _example(self, name):
        """Names inside a class have none of their own: that of the class shows them."""
        public = self._outermost.get(name)
        return self._reference.example_of(self._page, public) if public else ""

    def _document_link(self, match):
        return f'<a href="{addresses.link(self._page, addresses.of_document(match[0]))}">{match[0]}</a>'

    def _members(self, members, scope, level):
        """Functions have headings. Fields, types and macros stand in a list before them."""
        fields = [member for member in members if member.get("kind") != "function"]
        out = [self._field(member, scope) for member in fields]
        if out:
            out = ['<dl class="fields">\n', *out, "</dl>\n"]
        functions = {}
        for member in members:
            if member.get("kind") == "function":
                functions.setdefault(name_in(scope, member), []).append(member)
        for name, overloads in functions.items():
            out.append(self._heading(level, name, self._shown(name, scope)))
            out.append(self._overloads(overloads))
            out.append(self._example(name))
        return "".join(out)

    def _overloads(self, members):
        """A comment is for its function and for those without a comment behind it, as in the header."""
        groups = []
        for member in sorted(members, key=is_special):
            if not groups or is_documented(member) or is_special(member) != is_special(groups[-1][0]):
                groups.append([])
            groups[-1].append(member)
        return "".join(self._declaration("\n".join(map(self._function_line, group))) + self._description(group[0])
                       for group in groups)

    @staticmethod
    def _shown(name, scope):
        return name.removeprefix(scope + "::") if scope else name

    def _field(self, member, scope):
        name = name_in(scope, member)
        shown = f"<b>{escaped(self._shown(name, scope))}</b>"
        words = self._description(member).replace("</p>\n<p>", " ", 1)
        if member.get("kind") == "variable":
            initial = self._prose.line(member.find("initializer"))
            line = f"{self._template(member)}{self._type(member)} {shown}"
            line += f" {initial}" if len(initial) < COLUMNS_MAX else ""
        elif member.get("kind") == "typedef":
            parameters = escaped(member.findtext("argsstring") or "")  # Of a function's type, in C.
            line = f"{self._template(member)}using {shown} = {self._type(member)}{parameters}"
        elif member.get("kind") == "enum":
            line = f"enum {'class ' if member.get('strong') == 'yes' else ''}{shown}"
            words += f"<dl>\n{''.join(self._enumerator(value, name) for value in member.findall('enumvalue'))}</dl>\n"
        else:
            line = f"#define {shown}"
        return f"<dt{self._mark(name)}><code>{line}</code></dt><dd>{words}{self._example(name)}</dd>\n"

    def _enumerator(self, value, scope):
        name = value.findtext("name")
        words = self._description(value)
        return f"<dt{self._mark(f'{scope}::{name}')}><code>{name}</code></dt><dd>{words}</dd>\n"

    def _type(self, element):
        return close_up(self._prose.line(element.find("type")))

    def _template(self, element):
        """`template <...>` and a new line, or nothing."""
        parameters = [self._parameter(one) for one in element.findall("templateparamlist/param")]
        if not parameters:
            return ""
        requires = self._prose.line(element.find("requiresclause"))
        return f"template &lt;{', '.join(parameters)}&gt;\n" + (f"  requires {requires}\n" if requires else "")

    def _parameter(self, one):
        words = [self._type(one), escaped(one.findtext("declname"))]
        text = " ".join(word for word in words if word) + escaped(one.findtext("array"))
        value = self._prose.line(one.find("defval"))
        return text + (f" = {value}" if value else "")

    def _class_line(self, element):
        kind, name = element.get("kind"), escaped(short(element.findtext("compoundname")))
        if kind == "concept":
            return self._prose.line(element.find("initializer")).strip()
        bases = [self._prose.linked(base.get("refid"), escaped(short(base.text)))
                 for base in element.findall("basecompoundref")
                 if base.get("prot") == "public" and self._reference.knows(base)]
        return f"{self._template(element)}{kind} <b>{name}</b>" + (f" : {', '.join(bases)}" if bases else "")

    def _function_line(self, member):
        """The declaration. Doxygen has what stands behind the parameters only as text."""
        arguments = "".join(member.find("argsstring").itertext())
        behind = arguments[closing_parenthesis(arguments) + 1:]
        before = [word for word, flag in (("static", "static"), ("explicit", "explicit")) if member.get(flag) == "yes"]
        before += [self._type(member)]
        head = " ".join(word for word in before if word)
        head += (" " if head else "") + f"<b>{escaped(short(member.findtext('name')))}</b>"
        parameters = [self._parameter(one) for one in member.findall("param")]
        plain_length = len("".join(member.find("type").itertext())) + len(member.findtext("name") + arguments)
        if plain_length > COLUMNS_MAX and len(parameters) > 1:
            inside = "\n    " + ",\n    ".join(parameters)
        else:
            inside = ", ".join(parameters)
        return f"{self._template(member)}{head}({inside}){escaped(behind.replace('=', ' = '))}"


def closing_parenthesis(arguments):
    """Where the list of parameters ends."""
    depth = 0
    for at, sign in enumerate(arguments):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth == 0:
            return at
    return len(arguments)
