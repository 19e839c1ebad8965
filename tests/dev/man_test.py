"""Markdown of a man page as roff."""

import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import fakes
from dev import man

HEAD = "# x(1)\n\n"


def body(text):
    """The roff of a page's text, without its head."""
    return man.roff(HEAD + text).split("\n", 2)[2]


class Man(unittest.TestCase):
    def test_a_page_begins_with_its_title(self):
        self.assertIn('.TH CORDMA\\-PERF 1 "" cordma\n', man.roff("# cordma-perf(1)\n"))
        with self.assertRaisesRegex(ValueError, r"line 1: write '# NAME\(1\)'"):
            man.roff("# cordma-perf\n")

    def test_sections_are_in_capitals(self):
        self.assertEqual(body("## See also\n### More\n"), ".SH SEE ALSO\n.SS More\n")

    def test_words_have_fonts_and_links_are_words(self):
        self.assertEqual(body("Say `--go`, **now** or *later*: see\n[the page](x.md).\n"),
                         ".PP\nSay \\fB\\-\\-go\\fR, \\fBnow\\fR or \\fIlater\\fR: see\nthe page.\n")

    def test_an_item_that_begins_with_code_describes_an_option(self):
        self.assertEqual(body("- `-s`, `--size BYTES`: How much.\n  More.\n- plain `x`\n"),
                         ".TP\n\\fB\\-s, \\-\\-size \\fIBYTES\\fB\\fR\nHow much.\nMore.\n"
                         '.IP "\\[u2022]" 2\nplain \\fBx\\fR\n')

    def test_text_is_no_request_of_roff(self):
        self.assertEqual(body("a\n.b \\c\n"), ".PP\na\n\\&.b \\ec\n")
        self.assertEqual(body("```\n.x\n- y\n\n## z\n```\n"),
                         ".PP\n.RS 4\n.EX\n\\&.x\n\\- y\n\n## z\n.EE\n.RE\n")

    def test_what_a_man_page_cannot_have_is_an_error_with_its_line(self):
        for text in ("| a |", "1. a", "<b>", "    code", "> a"):
            with self.assertRaisesRegex(ValueError, "line 3: a man page cannot have this"):
                man.roff(HEAD + text)

    def test_the_program_writes_a_file_or_says_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder, "x.1.md"), pathlib.Path(folder, "man/x.1")
            source.write_text(HEAD)
            with mock.patch("sys.argv", ["man.py", str(source), str(target)]):
                self.assertEqual(man.main(), 0)
                self.assertIn(".TH X 1", target.read_text())
                source.write_text(HEAD + "> a\n")
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    self.assertEqual(man.main(), 1)
                self.assertEqual(said.getvalue(), f"{source}: line 3: a man page cannot have this: > a\n")

    def test_the_pages_of_the_project_are_understood(self):
        pages = sorted((fakes.ROOT / "docs/man").glob("*.md"))
        self.assertTrue(pages)
        for page in pages:
            self.assertIn(f".TH {page.stem.partition('.')[0].upper()}".replace("-", "\\-"), man.roff(page.read_text()))


if __name__ == "__main__":
    unittest.main()
