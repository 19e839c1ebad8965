"""Doc comments, as Doxygen's XML has them, in HTML."""

import html

from .documents import code_linked

INLINE = {"computeroutput": "code", "emphasis": "em", "bold": "strong"}
SYMBOLS = {"ndash": "–", "mdash": "—", "sp": " ", "nonbreakablespace": " "}
LISTS = {"itemizedlist": "ul", "orderedlist": "ol"}
# Titles of sections that Doxygen knows. Those of our own tags bring a title along.
TITLES = {"return": "Returns", "note": "Note", "warning": "Warning", "see": "See", "pre": "Before", "post": "After",
          "param": "Parameters", "templateparam": "Template parameters", "exception": "Throws"}


def escaped(text):
    return html.escape(text or "", quote=False)


class Prose:
    """`link_of` gives the link to what has this refid, and `link_of_name` that to a name; or None."""

    def __init__(self, link_of, link_of_name):
        self._link_of, self._link_of_name = link_of, link_of_name

    def linked(self, refid, text):
        href = self._link_of(refid)
        return f'<a href="{href}">{text}</a>' if href else text

    def line(self, element):
        """What stands in one line: words, links, a type."""
        if element is None:
            return ""
        return escaped(element.text) + "".join(self._inline(child) + escaped(child.tail) for child in element)

    def _inline(self, child):
        if child.tag == "ref":
            return self.linked(child.get("refid"), self.line(child))
        if child.tag == "ulink":
            return f'<a href="{html.escape(child.get("url"))}">{self.line(child)}</a>'
        if child.tag == "computeroutput" and not len(child):
            return code_linked(child.text, self._link_of_name)
        if child.tag in INLINE:
            return f"<{INLINE[child.tag]}>{self.line(child)}</{INLINE[child.tag]}>"
        return SYMBOLS.get(child.tag) or self.line(child)

    def blocks(self, element):
        """The paragraphs of a description. In Doxygen's XML, lists and sections are parts of a paragraph."""
        if element is None:
            return ""
        out = []
        for paragraph in element.findall("para"):
            words = escaped(paragraph.text)
            for child in paragraph:
                block = self._block(child)
                if block is None:
                    words += self._inline(child) + escaped(child.tail)
                    continue
                out += [self._paragraph(words), block]
                words = escaped(child.tail)
            out.append(self._paragraph(words))
        return "".join(out)

    @staticmethod
    def _paragraph(words):
        return f"<p>{words.strip()}</p>\n" if words.strip() else ""

    def _block(self, child):
        """A list, a section, a table or code in HTML; None for what is part of a line."""
        if child.tag in LISTS:
            items = "".join(f"<li>{self.blocks(item)}</li>" for item in child.findall("listitem"))
            return f"<{LISTS[child.tag]}>{items}</{LISTS[child.tag]}>\n"
        if child.tag == "simplesect":
            title = self.line(child.find("title")) or TITLES.get(child.get("kind"), child.get("kind"))
            return f'<dl class="tag"><dt>{title}</dt><dd>{self.blocks(child)}</dd></dl>\n'
        if child.tag == "parameterlist":
            items = "".join(self._parameter(item) for item in child.findall("parameteritem"))
            return f'<dl class="tag"><dt>{TITLES[child.get("kind")]}</dt><dd>{items}</dd></dl>\n'
        if child.tag == "verbatim":
            return f'<pre tabindex="0"><code>{self.line(child)}</code></pre>\n'
        if child.tag == "programlisting":
            lines = "\n".join(self.line(line) for line in child.findall("codeline"))
            return f'<pre tabindex="0"><code>{lines}</code></pre>\n'
        if child.tag == "table":
            rows = "".join("<tr>" + "".join(self._cell(cell) for cell in row.findall("entry")) + "</tr>"
                           for row in child.findall("row"))
            return f'<div class="scroll" tabindex="0"><table>{rows}</table></div>\n'
        return None

    def _cell(self, cell):
        tag = "th" if cell.get("thead") == "yes" else "td"
        return f"<{tag}>{' '.join(self.line(para) for para in cell.findall('para'))}</{tag}>"

    def _parameter(self, item):
        names = ", ".join(f"<code>{self.line(name)}</code>" for name in item.iter("parametername"))
        words = " ".join(self.line(para).strip() for para in item.findall("parameterdescription/para"))
        return f"<p>{names}: {words}</p>\n"
