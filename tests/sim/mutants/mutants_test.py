#!/usr/bin/env python3
"""Each mutant still applies, and a patch that does not is named."""

import pathlib
import sys
import tempfile
import unittest

import hunt

HERE = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import cases  # noqa: E402

SOURCE = "int f(int a) {\n  if (a == 0) return 1;\n  return a;\n}\n"
PATCH = """A function forgets 0.
--- a/lib/a.cpp
+++ b/lib/a.cpp
@@ -7,3 +7,2 @@
 int f(int a) {
-  if (a == 0) return 1;
   return a;
"""


class FolderCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "lib").mkdir()
        self.file("lib/a.cpp", SOURCE)

    def file(self, name, text):
        (self.root / name).write_text(text)

    def wrong(self, patch):
        self.file("forgets.patch", patch)
        return hunt.check(self.root, self.root)


class MutantsOfTheTree(unittest.TestCase):
    def test_each_applies_to_one_place(self):
        self.assertEqual(hunt.check(), [])

    def test_there_are_fifty_of_all_rooms(self):
        files = [mutant.file for mutant in hunt.read_all()]
        self.assertGreaterEqual(len(files), 50)
        self.assertGreaterEqual(sum(file.startswith("subprojects/softverbs/") for file in files), 12)
        for room in ("queue", "io", "memory", "agent", "connection", "messages", "rpc", "group"):
            self.assertTrue(any(f"/{room}/" in file for file in files), room)

    def test_each_defect_has_a_sentence_of_its_own(self):
        said = [mutant.says for mutant in hunt.read_all()]
        self.assertEqual(len(said), len(set(said)))


class Check(FolderCase):
    def test_a_patch_applies_wherever_its_lines_are(self):
        self.assertEqual(self.wrong(PATCH), [])
        mutant = hunt.read(self.root / "forgets.patch")
        self.assertEqual((mutant.name, mutant.says), ("forgets", "A function forgets 0."))
        self.assertEqual(hunt.applied(mutant, SOURCE), "int f(int a) {\n  return a;\n}\n")

    def test_a_patch_whose_lines_have_changed_is_named(self):
        self.file("lib/a.cpp", SOURCE.replace("return 1", "return 2"))
        self.assertIn("lib/a.cpp has what it changes 0 times", self.wrong(PATCH)[0])

    def test_a_patch_that_could_mean_two_places_is_named(self):
        self.file("lib/a.cpp", SOURCE + SOURCE)
        self.assertIn("has what it changes 2 times", self.wrong(PATCH)[0])

    def test_a_patch_of_a_file_that_is_gone_is_named(self):
        (self.root / "lib/a.cpp").unlink()
        self.assertIn("there is no lib/a.cpp", self.wrong(PATCH)[0])

    def test_a_patch_says_what_is_wrong(self):
        self.assertIn("a sentence", self.wrong(PATCH.removeprefix("A function forgets 0.\n"))[0])

    def test_a_mutant_changes_one_file(self):
        self.assertIn("changes one file", self.wrong(PATCH + PATCH.split("\n", 1)[1])[0])

    def test_text_that_is_no_patch_is_named(self):
        self.assertIn("not a unified patch", self.wrong("A function forgets 0.\n")[0])


class FakeTree:
    """Says in each round what it is told to, and notes what is played."""

    def __init__(self, *said, sound=""):
        self.said, self.sound, self.played = list(said), sound, []

    def play(self, arguments, is_sound=False):
        self.played.append(arguments)
        return self.sound if is_sound else self.said.pop(0)


class Hunt(unittest.TestCase):
    NOTHING = "20 seeds from 1, 9 a second, 7 events, 3 states\n"
    FOUND = ("5 seeds from 3, 9 a second, 7 events, 3 states\nFOUND: a wrong reply\nseed 3; the last\n"
             "Again: calls --seed 3 --profile harsh\n")

    def hunt(self, tree, seeds_max=1000):
        return hunt.hunt_built(tree, ["calls", "streams"], seeds_max, 2)

    def test_a_finding_ends_it_with_the_seeds_that_it_took(self):
        tree = FakeTree(self.NOTHING, self.FOUND)
        self.assertEqual(self.hunt(tree), hunt.Outcome("a wrong reply", "calls harsh 3", 26))
        self.assertEqual(tree.played[-1], ["calls", "--seeds", "3..3", "--profile", "harsh"])

    def test_it_ends_after_the_seeds_that_were_asked_for(self):
        self.assertEqual(self.hunt(FakeTree(self.NOTHING, self.NOTHING), 40),
                         hunt.Outcome(seeds=40))

    def test_rounds_have_new_seeds_and_grow(self):
        tree = FakeTree(self.NOTHING, self.NOTHING, self.NOTHING)
        self.hunt(tree, 60)
        ranges = [played[played.index("--seeds") + 1] for played in tree.played]
        self.assertEqual(ranges, ["1..2", "3..6", "7..14"])

    def test_a_scenario_that_fails_without_the_defect_finds_nothing(self):
        tree = FakeTree(self.FOUND, self.NOTHING, sound="FOUND: a wrong reply\n")
        self.assertEqual(self.hunt(tree, 25), hunt.Outcome(seeds=25))
        self.assertEqual(tree.played[-1][0], "streams")

    def test_a_hang_and_a_crash_are_findings(self):
        self.assertEqual(self.hunt(FakeTree("")).text, "it hangs")
        self.assertEqual(self.hunt(FakeTree("abort\n")).text, "it crashes")


if __name__ == "__main__":
    sys.exit(cases.run_unittests("mutants", HERE))
