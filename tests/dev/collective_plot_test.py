"""The plot of collectives: panels, names at the ends of lines, and a file that is XML."""

import unittest
from xml.etree import ElementTree

import fakes  # noqa: F401
from dev import collective_plot, libraries

SVG = "{http://www.w3.org/2000/svg}"


def figure(library, operation, size_bytes, ranks, seconds):
    return {"library": library, "operation": operation, "bytes": size_bytes, "ranks": ranks,
            "seconds": seconds, "rounds": [seconds]}


class CollectivePlot(unittest.TestCase):
    def drawn(self, figures):
        known = [libraries.Library(key, f"<{key}>", None, None) for key in ("cordma", "raw")]
        return ElementTree.fromstring(collective_plot.svg(known, figures))

    def texts(self, figures):
        return [one.text for one in self.drawn(figures).iter(f"{SVG}text")]

    def test_each_operation_and_each_number_of_ranks_has_a_panel(self):
        texts = self.texts([figure("cordma", operation, size, ranks, 1e-6 * size * ranks)
                            for operation in ("broadcast", "all_reduce")
                            for size in (8, 64) for ranks in (2, 4)])
        for title in ("broadcast, 2 ranks", "broadcast, 4 ranks", "all_reduce, 4 ranks"):
            self.assertIn(title, texts)

    def test_an_operation_without_bytes_has_one_panel_by_ranks(self):
        texts = self.texts([figure("raw", "barrier", 0, ranks, 1e-6 * ranks) for ranks in (2, 4)])
        self.assertEqual([text for text in texts if "rank" in text],
                         ["barrier", "2 ranks", "4 ranks"][1:])
        self.assertIn("barrier", texts)

    def test_a_line_has_its_name_at_its_right_end(self):
        drawn = self.drawn([figure("cordma", "broadcast", size, 2, 1e-6 * size)
                            for size in (8, 64)])
        name, = (one for one in drawn.iter(f"{SVG}text") if one.text == "<cordma>")
        last = max(float(one.get("cx")) for one in drawn.iter(f"{SVG}circle"))
        self.assertGreater(float(name.get("x")), last)

    def test_names_stay_apart_and_in_the_order_of_their_lines(self):
        heights = collective_plot.spread([10, 50, 11, 12], 12)
        self.assertEqual(sorted(range(4), key=heights.__getitem__), [0, 2, 3, 1])
        heights.sort()
        self.assertTrue(all(below - above >= 12 for above, below in zip(heights, heights[1:])))

    def test_a_library_that_is_not_drawn_is_left_out(self):
        self.assertEqual([text for text in self.texts([figure("raw_event", "barrier", 0, 2, 1.0)])
                          if text == "barrier"], [])

    def test_decades_enclose_all_times(self):
        self.assertEqual(collective_plot.decades(0.2, 300), (-1, 3))
        self.assertEqual(collective_plot.decades(10, 10), (1, 2))
        self.assertEqual([collective_plot.text_of_decade(e) for e in (-1, 0, 2, 3, 5, 6)],
                         ["0.1 us", "1 us", "100 us", "1 ms", "100 ms", "1 s"])


if __name__ == "__main__":
    unittest.main()
