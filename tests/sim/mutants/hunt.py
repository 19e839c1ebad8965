#!/usr/bin/env python3
"""Mutants: small defects, each a patch in this folder, which the simulation has to find.

    hunt.py check                       each patch applies to the tree, and to one place in it
    hunt.py hunt [NAME...] [OPTION...]  builds each mutant, and plays scenarios until one finds it
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAM = "tests/sim/scenarios/cordma-sim-scenarios"
# Few files are compiled together: a mutant changes one of them. The number of the library's files
# is no multiple of the size: Meson 1.0 then asks for one object too many.
CONFIGURATION = ("--unity", "on", "--unity-size", "5", "-Doptimization=1", "-Dwarning_level=0",
                 "-Dbench=false", "-Dexamples=false", "-Dtools=false")
LINKER = "-Dcpp_link_args=-fuse-ld=lld"
# Seeds of each scenario and profile in the first round. Each further round has twice as many.
FIRST_ROUND = 2
# A round in which no process ends for so long counts as one that hangs.
ROUND_SECONDS_MAX = 1800
FOUND = re.compile(r"^FOUND: (.*)$", re.MULTILINE)
AGAIN = re.compile(r"^Again: (\S+) --seed (\d+) --profile (\S+)$", re.MULTILINE)
SEEDS = re.compile(r"^(\d+) seeds from ", re.MULTILINE)


class Unusable(Exception):
    """A mutant that is no patch, or does not apply."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    says: str  # The defect, in one sentence.
    file: str
    edits: tuple  # Pairs of an old and a new text.


def read(patch):
    """Reads a patch whose first line is a sentence. Line numbers mean nothing: texts tell places."""
    says, *lines = patch.read_text(encoding="utf-8").splitlines(keepends=True)
    if not re.fullmatch(r"[A-Z].*\.", says.strip()):
        raise Unusable(f"{patch.name}: the first line is to be a sentence that says what is wrong")
    file, edits = None, []
    for line in lines:
        if line.startswith("+++ b/"):
            if file is not None:
                raise Unusable(f"{patch.name}: a mutant changes one file")
            file = line.removeprefix("+++ b/").strip()
        elif line.startswith("@@"):
            edits.append(["", ""])
        elif edits and line[0] in " -+":
            edits[-1][0] += line[1:] if line[0] in " -" else ""
            edits[-1][1] += line[1:] if line[0] in " +" else ""
    if file is None or not edits:
        raise Unusable(f"{patch.name}: not a unified patch of a file")
    return Mutant(patch.stem, says.strip(), file, tuple(map(tuple, edits)))


def read_all(folder=HERE):
    return [read(patch) for patch in sorted(folder.glob("*.patch"))]


def applied(mutant, text):
    """Returns a file's text with the defect. Each old text is there exactly once."""
    for old, new in mutant.edits:
        if (count := text.count(old)) != 1:
            raise Unusable(f"{mutant.name}: {mutant.file} has what it changes {count} times: "
                           "write the patch anew")
        text = text.replace(old, new)
    return text


def check(root=ROOT, folder=HERE):
    """Returns what is wrong with the mutants, a line each."""
    wrong = []
    for patch in sorted(folder.glob("*.patch")):
        try:
            mutant = read(patch)
            path = root / mutant.file
            if not path.is_file():
                raise Unusable(f"{mutant.name}: there is no {mutant.file}")
            applied(mutant, path.read_text(encoding="utf-8"))
        except Unusable as error:
            wrong.append(str(error))
    return wrong


class Tree:
    """A copy of the project with a build folder of its own."""

    def __init__(self, folder):
        self.root = folder / "tree"
        self._sound = folder / "sound"
        self._environment = {**os.environ, "CCACHE_BASEDIR": str(self.root),
                             "CCACHE_NOHASHDIR": "1", "CCACHE_DEPEND": "1"}

    def prepare(self):
        """Copies what has changed, and builds the scenarios without a defect."""
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard"],
                                cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            self._copy(ROOT / name, self.root / name)
        if not (self.root / "build/build.ninja").is_file():
            linker = [LINKER] if shutil.which("ld.lld") else []
            subprocess.run(["meson", "setup", "build", *CONFIGURATION, *linker],
                           cwd=self.root, env=self._environment, check=True,
                           stdout=subprocess.DEVNULL)
        if why := self.build():
            sys.exit(f"the tree does not build:\n{why}")
        self.keep_sound()

    def keep_sound(self):
        """Keeps the program without a defect, with its libraries where it looks for them."""
        built = self.root / "build"
        for file in (built / PROGRAM, *built.rglob("*.so*")):
            if file.is_file():
                self._copy(file, self._sound / file.relative_to(built))

    @staticmethod
    def _copy(source, to):
        if not source.is_file() or (to.is_file() and to.read_bytes() == source.read_bytes()):
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, to)

    def build(self):
        """Returns what the build says if it fails."""
        done = subprocess.run(["ninja", "-C", "build", PROGRAM], cwd=self.root,
                              env=self._environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode else ""

    def play(self, arguments, is_sound=False):
        """Returns what the scenarios say, and an empty text if they hang."""
        program = (self._sound if is_sound else self.root / "build") / PROGRAM
        try:
            done = subprocess.run([str(program), "--no-shrink", *arguments], cwd=self.root,
                                  capture_output=True, text=True, errors="replace", check=False,
                                  timeout=ROUND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return ""
        if done.returncode == 2:
            sys.exit(done.stderr)
        return done.stdout + done.stderr

    def scenarios(self):
        listed = self.play(["--help"]).split("Scenarios:\n")[1]
        return [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]


@dataclasses.dataclass
class Outcome:
    text: str = ""  # The first line of the finding; empty: none.
    by: str = ""
    seeds: int = 0  # With the one that has found it.


def hunt_built(tree, scenarios, seeds_max, jobs):
    """Plays rounds of seeds until one finds the defect, or as many were played in all."""
    outcome, first, count, left = Outcome(), 1, FIRST_ROUND, list(scenarios)
    while outcome.seeds < seeds_max:
        said = tree.play([*left, "--seeds", f"{first}..{first + count - 1}", "--jobs", str(jobs)])
        if not said:
            return Outcome("it hangs", f"{' '.join(left)}, seeds from {first}", outcome.seeds)
        played = SEEDS.findall(said)
        outcome.seeds += int(played[-1]) if played else 0
        found, again = FOUND.search(said), AGAIN.search(said)
        if found and again:
            name, seed, profile = again.groups()
            # Earlier seeds of the round are played, too: a seed may depend on them.
            repeated = [name, "--seeds", f"{first}..{seed}", "--profile", profile]
            if not FOUND.search(tree.play(repeated, True)):
                return Outcome(found[1], f"{name} {profile} {seed}", outcome.seeds + 1)
            print(f"{name} finds something in seed {seed}, {profile}, without a defect",
                  file=sys.stderr)
            left.remove(name)
            if left:
                continue
        elif not played:
            return Outcome("it crashes", f"seeds from {first}", outcome.seeds)
        first, count, left = first + count, 2 * count, list(scenarios)
    return outcome


def hunt(asked):
    known = {mutant.name: mutant for mutant in read_all()}
    if unknown := set(asked.names) - set(known):
        sys.exit(f"no mutant {', '.join(sorted(unknown))}")
    tree = Tree(asked.scratch.resolve())
    tree.prepare()
    scenarios = asked.scenario or tree.scenarios()
    print("| mutant | found by | seeds | finding | seconds: build, hunt |\n| --- | --- | --- | --- | --- |")
    missed = 0
    for name in asked.names or known:
        mutant = known[name]
        path = tree.root / mutant.file
        sound = path.read_text(encoding="utf-8")
        began = time.monotonic()
        try:
            path.write_text(applied(mutant, sound), encoding="utf-8")
            if why := tree.build():
                print(f"{name} does not build:\n{why}", file=sys.stderr)
                missed += 1
                continue
            built = time.monotonic()
            outcome = hunt_built(tree, scenarios, asked.seeds, asked.jobs)
        finally:
            path.write_text(sound, encoding="utf-8")
        missed += not outcome.text
        text = outcome.text.replace("|", "/")[:110] or "none"
        print(f"| {name} | {outcome.by or 'nobody'} | {outcome.seeds} | {text} "
              f"| {built - began:.0f}, {time.monotonic() - built:.0f} |", flush=True)
    return 1 if missed else 0


def arguments(given):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="each patch applies to the tree, and to one place in it")
    hunting = commands.add_parser("hunt", help="builds mutants, and plays scenarios on them")
    hunting.add_argument("names", nargs="*", metavar="NAME", help="mutants (default: all)")
    hunting.add_argument("--seeds", type=int, default=100_000,
                         help="seeds in all for a mutant, at most (default: %(default)s)")
    hunting.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    hunting.add_argument("--scenario", action="append", help="plays this one only (may be repeated)")
    hunting.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build-mutants",
                         help="folder for a copy of the tree (default: %(default)s)")
    return parser.parse_args(given)


def main(given):
    asked = arguments(given)
    if asked.command == "hunt":
        return hunt(asked)
    wrong = check()
    print("".join(f"{line}\n" for line in wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
