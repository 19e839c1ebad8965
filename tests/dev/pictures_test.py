"""The pictures of docs/guide: each is what its text makes, and a line that no picture has is refused."""

import unittest
from xml.etree import ElementTree

import fakes
from dev import pictures

SVG = "{http://www.w3.org/2000/svg}"
FOLDER = fakes.ROOT / "docs/guide/pictures"
SEQUENCE = "sequence\nlane a | A\nlane b | B\n"


def texts(words):
    return [one.text for one in ElementTree.fromstring(pictures.svg("name", words)).iter(f"{SVG}text")]


class Pictures(unittest.TestCase):
    def test_each_picture_is_what_its_text_makes(self):
        made = dict(pictures.drawn(FOLDER))
        self.assertEqual(sorted(FOLDER.glob("*.svg")), sorted(made))
        for file, picture in made.items():
            self.assertEqual(file.read_text(), picture, f"python3 tools/dev/pictures.py {FOLDER} draws {file.name}")

    def test_each_picture_is_shown_by_a_page(self):
        pages = "".join(page.read_text() for page in FOLDER.parent.rglob("*.md"))
        for file, _ in pictures.drawn(FOLDER):
            self.assertTrue(f"pictures/{file.name})" in pages, f"no page shows {file.name}")

    def test_a_sequence_has_its_lanes_and_the_texts_of_its_steps(self):
        self.assertEqual(texts(SEQUENCE + "a -> b | there\nb --> a | back\nat a | <note>\n"),
                         ["A", "B", "there", "back", "<note>"])

    def test_a_text_between_lanes_has_room(self):
        words = "long " * 20
        drawn = ElementTree.fromstring(pictures.svg("name", f"{SEQUENCE}a -> b | {words}\n"))
        first, second = (float(one.get("x")) for one in drawn.iter(f"{SVG}text") if one.text in "AB")
        self.assertGreaterEqual(second - first, pictures.CHARACTER * len(words.strip()))

    def test_boxes_have_lines_of_text_and_labels(self):
        self.assertEqual(texts("boxes\nframe 0 0 1 2 | host\nbox a | 0 0 | A / low\nbox b | 0 1 | B\narrow a b | to\n"),
                         ["host", "A", "low", "B", "to"])

    def test_arrows_begin_at_the_borders_of_boxes(self):
        self.assertEqual(pictures.border((0, 0), (400, 0)), (pictures.CELL_WIDTH, pictures.CELL_HEIGHT / 2))

    def test_a_line_that_no_picture_has_is_refused(self):
        for words in ("circles\n", SEQUENCE + "a -> c | x\n", SEQUENCE + "draw a | x\n", "boxes\narrow a b | x\n"):
            with self.assertRaises(pictures.BadPicture):
                pictures.svg("name", words)


if __name__ == "__main__":
    unittest.main()
