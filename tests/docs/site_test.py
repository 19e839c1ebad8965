#!/usr/bin/python3
"""The documentation site builds, and each of its links leads somewhere: `site_test.py ROOT OUTPUT`."""

import pathlib
import re
import shutil
import sys
import tempfile

import reference as doxygen

HERE = pathlib.Path(__file__).absolute().parent
sys.path[1:1] = [str(HERE.parent / "support"), str(HERE.parent / "hygiene"), str(HERE.parents[1] / "tools")]
import cases  # noqa: E402
import document_links  # noqa: E402
from dev.site import documents, linkcheck, plan, site  # noqa: E402
from reference_test import REQUESTS  # noqa: E402

PLAN = '[[group]]\ntitle = "All"\ndocuments = [{}]\n'
HEADER = """#pragma once
namespace cordma {
/// Two of a kind; docs/a.md has more.
struct pair_of {
  int first = 1;   ///< The one before.
  int second = 2;  ///< The other. Never 0.
};
/// Makes a pair.
/// \\param most  the larger number
/// \\errors errc::none, and `pair_of`.
/// \\thread any.
pair_of make_pair_of(const pair_of& other, int most = 3);
namespace detail { class secret; }
/// Has bases that nobody sees.
class shown : public detail::secret {
 public:
  shown() = default;
  ~shown() = default;
  explicit operator bool() const noexcept;
  void hide(detail::secret& from);
 private:
  int hidden_;
};
}  // namespace cordma
"""
C_HEADER = """/** \\file
 * What C programs include. */
#define CORDMA_API __attribute__((visibility("default")))
/** Has two words. */
typedef struct cordma_pair {
  int first; /**< The one before. */
} cordma_pair;
/** Is told that a pair is there. */
typedef void cordma_told(const cordma_pair* pair, void* user);
/** Kinds of pairs. */
enum cordma_kind { CORDMA_EVEN = 0 /**< Both are. */ };
/** Makes a pair. \\errors CORDMA_BAD_HANDLE. */
CORDMA_API int cordma_make(cordma_pair* made);
"""


SHOWN_HEADER = """#pragma once
namespace cordma {
/// Sides.
enum class side { left = 1, right = 2 };
side operator|(side a, side b) noexcept;
side operator~(side a) noexcept;
/// Names a side.
const char* name_of(side one) noexcept;
enum class other { none };
const char* name_of(other one) noexcept;
/// Counts.
struct tally {
  int count = 0;
};
/// Runs.
class runner {
  class hidden {
   public:
    struct promise_type {};
  };
};
/// Any type's.
template <class T>
struct kept {};
template <>
struct kept<int> {};
#define CORDMA_LIMIT 7
}  // namespace cordma
"""
SHOWN = """# A
## Sides and tallies
```cpp
// cordma::kept and "cordma::other" are only spoken of.
auto both = cordma::side::left | cordma::side::right;
```
Text.

```cpp
void count(cordma::tally& of, cordma::tally by_value, int tally);
```

```cpp
cordma::tally mine{.count = CORDMA_LIMIT};
std::puts(cordma::name_of(cordma::other::none));
```

```cpp
int kept, cordma_side;
std::puts(cordma::name_of(find()));
```
"""


class Tree:
    """A small project, whose site is built of the texts of its files."""

    def __init__(self, files, listed=("README.md", "docs/a.md", "docs/reference.md")):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {"README.md": "# cordma\n", "docs/a.md": "# A\n", "docs/reference.md": "# API\n",
                     "docs/site.toml": PLAN.format(", ".join(f'"{name}"' for name in listed)),
                     "include/cordma/room/pair.hpp": HEADER, **files}
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            shutil.copy(HERE.parents[1] / "docs/Doxyfile", root / "docs")
            doxygen.make(root, root / "reference")
            self.found = site.build(root, root / "site", root / "reference/xml")
            self.without = list(site.names_without_example(root, root / "reference/xml")) if not self.found else []
            self.pages = {path.relative_to(root / "site").as_posix(): path.read_text()
                          for path in (root / "site").rglob("*") if path.is_file()}

    def body(self, page):
        """The text of a page, without its navigation."""
        return self.pages[page].partition('<main id="content">\n')[2].partition("</main>")[0]


def render(text):
    return documents.render(text, lambda link: (link, None), lambda name: None)


def rendered(text):
    return render(text).body


def has(text, *parts):
    for part in parts:
        assert part in text, f"no {part} in:\n{text}"


def check_links(run):
    with run.case("links between documents lead to pages, and those to sources to listings"):
        tree = Tree({"docs/a.md": "# A\n[r](../README.md#try-it) [s](../lib/x.cpp) [f](../lib/) ![p](p.svg)\n",
                     "README.md": "# cordma\n## Try it\n[a](docs/a.md) [elsewhere](https://example.org/x)\n",
                     "lib/x.cpp": "int a<b>;\n", "lib/y.hpp": "", "docs/p.svg": "<svg/>"})
        assert not tree.found, tree.found
        has(tree.body("docs/a.html"), '<a href="../index.html#try-it">r</a>',
            '<a href="../source/lib/x.cpp.html">s</a>',
            '<a href="../source/lib/index.html">f</a>',
            '<a class="picture" href="p.svg"><img src="p.svg" alt="p" /></a>')
        has(tree.body("index.html"), '<a href="docs/a.html">a</a>', '<a href="https://example.org/x">elsewhere</a>')
        has(tree.body("source/lib/x.cpp.html"), '<span class="o">&lt;</span>')
        has(tree.body("source/lib/index.html"), '<a href="x.cpp.html">x.cpp</a>', '<a href="y.hpp.html">y.hpp</a>')
        assert tree.pages["docs/p.svg"] == "<svg/>"
    with run.case("a link that shows the name of a document's file shows the title instead"):
        tree = Tree({"docs/a.md": "# A: a letter\n[0001.md](b.md) [x](b.md)\n", "docs/b.md": "# 1: b\n[a.md](a.md)\n"},
                    ["README.md", "docs/a.md", "docs/b.md", "docs/reference.md"])
        has(tree.body("docs/a.html"), '<a href="b.html">1: b</a> <a href="b.html">x</a>')
        has(tree.body("docs/b.html"), '<a href="a.html">A</a>')
    with run.case("a link that leads nowhere is found"):
        found = Tree({"README.md": "# cordma\n[a](docs/b.md) [b](docs/a.md#none) [c](#cordma) [d](#none)\n"}).found
        assert sorted(found) == ["index.html: the link #none leads to no anchor",
                                 "index.html: the link docs/a.html#none leads to no anchor",
                                 "index.html: the link docs/b.md leads to no file"], found
    with run.case("an anchor that two elements have is found"), tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "x.html").write_text('<p id="a"><p id="a"><a href="x.html#a">')
        assert list(linkcheck.findings(pathlib.Path(folder))) == ["x.html: two elements have the anchor a"]


def check_plan(run):
    with run.case("each document is listed once"):
        for listed, wrong in ((["README.md", "docs/reference.md"], "does not list docs/a.md"),
                              (["README.md", "docs/a.md", "docs/reference.md", "docs/a.md"], "lists docs/a.md 2 times"),
                              (["docs/b.md", "docs/a.md", "docs/reference.md"], "there is no docs/b.md")):
            found = Tree({}, listed).found
            assert found == [f"docs/site.toml: {wrong}"], found
    with run.case("the navigation marks the page, and a page has those before and after it"):
        page = Tree({}).pages["docs/a.html"]
        has(page, '<a href="a.html" aria-current="page">A</a>',
            '<a rel="prev" href="../index.html">Previous: cordma</a>',
            '<a rel="next" href="../reference/index.html">Next: API</a>')


def check_text(run):
    with run.case("code is highlighted, and in an unknown language plain"):
        has(rendered("```cpp\nint a;\n```\n"), '<span class="kt">int</span>')
        has(rendered("```klingon\na < b\n```\n"), "<code>a &lt; b\n</code>")
    with run.case("headings of one name have anchors of their own"):
        has(rendered("# A\n## B c\n## B c\n## B c\n"), 'id="b-c"', 'id="b-c-1"', 'id="b-c-2"')
    with run.case("a table scrolls by itself"):
        has(rendered("| a |\n| --- |\n| b |\n"), '<div class="scroll" tabindex="0"><table>', "</table></div>")
    with run.case("names of the API in code lead to the reference, unless they are any word"):
        tree = Tree({"docs/a.md": "# A\n`pair_of` `pair_of::first` `first` cordma::shown [`pair_of`](#a) `no_such`\n"})
        assert not tree.found, tree.found
        page = "../reference/room/pair.html#"
        has(tree.body("docs/a.html"), f'<code><a class="name" href="{page}pair_of">pair_of</a></code>',
            f'href="{page}pair_of::first">pair_of::first</a>', "<code>first</code>",
            f'<a class="name" href="{page}shown">cordma::shown</a>', '<a href="#a"><code>pair_of</code></a>')


def check_reference(run):
    with run.case("a header's page has declarations, comments by their tags, and links"):
        tree = Tree({})
        assert not tree.found, tree.found
        text = tree.body("reference/room/pair.html")
        has(text, '<p>Two of a kind; <a href="../../docs/a.html">docs/a.md</a> has more.</p>',
            '<dt id="pair_of::first"><code>int <b>first</b> = 1</code></dt><dd><p>The one before.</p>',
            "<dd><p>The other. Never 0.</p>",
            '<a href="#pair_of">pair_of</a> <b>make_pair_of</b>(const <a href="#pair_of">pair_of</a>&amp; other, '
            "int most = 3)",
            '<dt>Errors</dt><dd><p>errc::none, and <code><a href="#pair_of">pair_of</a></code>.',
            "<dt>Thread</dt><dd><p>any.", "<dt>Parameters</dt><dd><p><code>most</code>: the larger number</p>",
            '<h3 id="shown::operator-bool">operator bool</h3>', "<b>shown</b>() = default\n<b>~shown</b>() = default",
            '<code>class <b>shown</b></code>', 'href="../../source/include/cordma/room/pair.hpp.html"')
        for private in ("hidden_", "secret", "hide"):
            assert private not in text, private
        has(tree.body("reference/index.html"),
            '<li><a href="room/pair.html#pair_of"><code>pair_of</code></a>: Two of a kind; docs/a.md has more.</li>',
            '<li><a href="room/pair.html#make_pair_of"><code>make_pair_of</code></a>: Makes a pair.</li>')
    with run.case("the header for C has a page, in the words of C"):
        tree = Tree({"include/cordma.h": C_HEADER})
        assert not tree.found, tree.found
        text = tree.body("reference/cordma.h.html")
        has(text, "<p>What C programs include.", "#include &lt;<a", "struct <b>cordma_pair</b>",
            "<b>cordma_told</b> = void(const cordma_pair *pair, void *user)", "<code>enum <b>cordma_kind</b></code>",
            "int <b>cordma_make</b>(<a href=\"#cordma_pair\">cordma_pair</a>* made)", "CORDMA_BAD_HANDLE.")
        assert "CORDMA_API" not in text, text
        has(tree.body("reference/index.html"), '<h2 id="C">C</h2>', '<a href="cordma.h.html#cordma_make">')


def check_examples(run):
    with run.case("a name has an example: of a document before a program, and not of a parameter"):
        tree = Tree({"include/cordma/shown.hpp": SHOWN_HEADER, "docs/a.md": SHOWN,
                     "examples/x.cpp": "cordma::tally of_program;\n\nauto not_left = ~cordma::side::left;\n"})
        assert not tree.found, tree.found
        text = tree.body("reference/shown.html")
        start = '<details class="example"><summary>Example, from <a href="'
        document = f'{start}../docs/a.html#sides-and-tallies">A</a></summary>\n<pre tabindex="0"><code>'
        program = f'{start}../source/examples/x.cpp.html">examples/x.cpp</a></summary>\n<pre tabindex="0"><code>'
        examples = {name: text.partition(f' id="{name}"')[2] for name in ("tally", "side", "operator~", "name_of")}
        for name, head in (("tally", document), ("side", document), ("operator~", program), ("name_of", document)):
            has(examples[name].partition("</details>")[0], head)
        has(examples["tally"].partition("</details>")[0], "mine")
        has(examples["side"].partition("</details>")[0], "only spoken of")
        has(examples["operator~"].partition("</details>")[0], "not_left")
        has(examples["name_of"].partition("</details>")[0], ">none<")
        assert tree.without == ["cordma/room/pair.hpp: pair_of", "cordma/room/pair.hpp: shown",
                                "cordma/room/pair.hpp: make_pair_of", "cordma/shown.hpp: runner",
                                "cordma/shown.hpp: kept"], tree.without
    with run.case("in C a value stands for its enumeration, and a long text is cut to the lines around a name"):
        tree = Tree({"include/cordma.h": C_HEADER, "docs/a.md": "# A\n```c\n" + "int none;\n\n" * 20
                     + "cordma_pair two;\nint kind = CORDMA_EVEN;\n\n" + "int none;\n\n" * 20 + "```\n"})
        text = tree.body("reference/cordma.h.html")
        assert text.count('<details class="example">') == 2, text
        assert text.count(">two<") == 2 and ">none<" not in text, text
        assert [line for line in tree.without if "cordma.h" in line] == ["cordma.h: cordma_told",
                                                                         "cordma.h: cordma_make"], tree.without


def check_all(run, root, output):
    doxygen.make(root, output / "reference")
    found = site.build(root, output / "site", output / "reference/xml")
    with run.case("the site has no link that leads nowhere, and all documents"):
        assert not found, "\n" + "\n".join(found)
    with run.case("the page of connection describes its request functions"):
        text = (output / "site/reference/connection/connection.html").read_text()
        for name in REQUESTS:
            part = text.partition(f'<h3 id="connection::{name}">')[2].partition("<h3")[0]
            assert "<p>" in part, f"no description of {name}"
        assert text.count("<b>write_with_imm</b>") == 1
    with run.case("each name of the API has an example in a document or a program"):
        without = list(site.names_without_example(root, output / "reference/xml"))
        assert not without, "".join(f"\n{line} has none: show it in a block of a document" for line in without)
    with run.case("headings have the anchors that the check of links knows"):
        names = [name for group in plan.read(root) for name in group.documents]
        for name in names:
            text = (root / name).read_text()
            anchors = {heading.anchor for heading in render(text).headings}
            assert anchors == document_links.anchors_of(text.split("\n")), name
    with run.case("pages need nothing from elsewhere, and no script"):
        for path in (output / "site").rglob("*.html"):
            text = path.read_text()
            assert not re.search(r"<script|<(?:link|img)[^>]*(?:href|src)=\"(?:\w+:|//)", text), path
        assert not re.search(r"@import|url\(", (output / "site/style.css").read_text())


def main():
    root, output = (pathlib.Path(path) for path in sys.argv[1:])
    run = cases.Cases("site")
    check_all(run, root, output)
    for check in (check_links, check_plan, check_text, check_reference, check_examples):
        check(run)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
