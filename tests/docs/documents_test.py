#!/usr/bin/env python3
"""What the documents show is compiled and run, or checked otherwise.

    documents_test.py ROOT README_PROGRAM TEMPLATES SIMULATION_PROGRAM LIBCORDMA_C COMPILER...

TEMPLATES are the files with the blocks of C++, joined by commas. SIMULATION_PROGRAM is 'none' where there
is no cordma-sim. COMPILER compiles C, too.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import blocks  # noqa: E402
import cases  # noqa: E402
import commands  # noqa: E402

SOFTVERBS = "subprojects/softverbs"
# The languages of blocks of which each is checked below; all others are listed.
CHECKED = {"cpp", "c", "promql", "sh"}
SCREEN_LINES = 50
UNCHECKED = pathlib.Path(__file__).parent / "unchecked.txt"
# A word of a shell command that begins with one of these is a path of the tree.
TOP_FOLDERS = ("include", "lib", "tests", "tools", "docs", "examples", "bench", "subprojects")
# Commands, and what is wrong in each.
WRONG_COMMANDS = {
    "cordma-perf client HOST --op send --baseline": ["cordma-perf client --baseline"],
    "cordma-perf --local --op send --baseline": [],
    "cordma-perf local --ranks 2 --memory=1G": ["cordma-perf local --ranks"],
    "mpirun -n 8 build/cordma-perf --collectives --tune --depth 2": ["cordma-perf collectives --depth"],
    "cordma-perf server [--port 1] --op read": ["cordma-perf server --op"],
    "cordma-perf --op read": ["cordma-perf without a mode"],
    "cordma-perf --help; cordma-perf": [],
    "cordma-doctor --json \\\n --op | sort --unique": ["cordma-doctor --op"],
    "cordma-doctor --host ::1 && cordma-doctor --serve --host ::1": ["cordma-doctor --host without --serve"],
    "cordma-top 4711 --serve  # --none": ["cordma-top --serve"],
    "softverbs-run --port 1 --chek --off ls --all": ["softverbs-run --chek"],
    "softverbs-run --any-uid cordma-perf server --depth 1": ["cordma-perf server --depth"],
}


def listed(text):
    """{(document, language, number): reason} of unchecked.txt."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {tuple(block.split()): reason.strip() for block, _, reason in (line.partition("|") for line in lines)}


def numbered(root):
    """(document, language, number) of each block; the number is that of its language."""
    for document in blocks.documents(root):
        counts = {}
        for _, language, _ in blocks.fenced(root / document):
            counts[language] = counts.get(language, 0) + 1
            yield document, language, str(counts[language])


def texts(root, language):
    return [text for document in blocks.documents(root)
            for _, text in blocks.blocks_of(root / document, language)]


def folder_of_softverbs(program):
    """Where the libsoftverbs.so lies that a program loads."""
    loaded = subprocess.run([program], text=True, capture_output=True, check=True,
                            env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}).stdout
    return pathlib.Path(re.search(r"libsoftverbs\.so\S* => (\S+)", loaded)[1]).resolve().parent


def run_c(root, program, cordma_c, compiler, text):
    """Compiles a program in C against softverbs, and against the C library if it includes cordma.h, and runs it; it
    ends with 0."""
    library = folder_of_softverbs(program)
    with_cordma = []
    if "<cordma.h>" in text:
        with_cordma = [f"-I{root / 'include'}", "-x", "none", cordma_c, f"-Wl,-rpath,{cordma_c.parent}"]
    options = os.environ.get("ASAN_OPTIONS", "")  # The program leaves what it made to its end.
    with tempfile.TemporaryDirectory() as folder:
        source, built = pathlib.Path(folder, "shown.c"), pathlib.Path(folder, "shown")
        source.write_text(text)
        for command in ([*compiler, "-Wall", "-Wextra", "-Werror", "-x", "c", source, "-o", built,
                         "-Wl,--no-as-needed", f"-I{root / SOFTVERBS / 'include'}", f"-L{library}", "-lsoftverbs", "-libverbs",
                         f"-Wl,-rpath,{library}", *with_cordma], [built]):
            done = subprocess.run(command, text=True, capture_output=True, check=False,
                                  env={**os.environ, "ASAN_OPTIONS": f"{options}:detect_leaks=0"})
            assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stderr}"


def without_numbers(text):
    return re.sub(r"\d+", "N", text)


def unknown_metrics(text, source):
    """Names of metrics that the source does not write."""
    return [name for name in re.findall(r"\bcordma_(\w+)", text) if f'"{name}"' not in source]


def unknown_words(root, text):
    """Paths, options of the build and options of the programs, in their modes, that there are not."""
    of_build = (root / "meson_options.txt").read_text()
    for word in re.findall(r"[^\s\[\]]+", re.sub(r"#[^\n]*", "", text)):
        known = True
        if word.split("/")[0] in TOP_FOLDERS:
            known = (root / word).exists()
        elif match := re.match(r"-D(\w+)=", word):
            known = f"'{match[1]}'" in of_build
        if not known:
            yield word
    yield from commands.unknown_options(root, text)


def unknown_in_tables(text, source):
    """What the rows of tables about metrics begin with, where that is no metric that the source writes."""
    for head, rows in re.findall(r"^(\|.*)\n\|[ |-]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        if "metrics.md" in head:
            yield from (name for name in re.findall(r"^\| `(\w+)`", rows, re.MULTILINE) if f'"{name}"' not in source)


def is_file(folder, word):
    """Whether a folder has a file, or the sources of a part, of that path; or makes a program of it."""
    path, made_by = folder / word, (folder / word).parent / "meson.build"
    return path.exists() or any(path.parent.glob(f"{path.name}.*pp")) or (
        made_by.exists() and f"'{path.name}'" in made_by.read_text())


def unknown_paths(root, document):
    """Paths in the sentences of a document that there are not; `<room>` stands for any."""
    folder = root / (SOFTVERBS if document.startswith(SOFTVERBS) else "")
    for code in commands.inline((root / document).read_text()):
        for word in code.split():
            if word.split("/")[0] in TOP_FOLDERS and "/" in word and "<" not in word and not is_file(folder, word):
                yield word


def main():
    root, program = (pathlib.Path(path) for path in sys.argv[1:3])
    templates = [pathlib.Path(path) for path in sys.argv[3].split(",")]
    simulation, cordma_c, compiler = sys.argv[4], pathlib.Path(sys.argv[5]), sys.argv[6:]
    all_cases = cases.Cases("documents")
    with all_cases.case("every block of C++ in the documents stands in a test"):
        assert not blocks.missing(root, templates), blocks.missing(root, templates)
    with all_cases.case("README's first screen has the two commands and the first program"):
        screen = (root / "README.md").read_text().splitlines()[:SCREEN_LINES]
        lacking = [text for text in ("./dev demo", "./dev test", "co_await conn.write(", "int main() {")
                   if not any(text in line for line in screen)]
        assert not lacking, f"not in the first {SCREEN_LINES} lines: {lacking}"
    with all_cases.case("README's first program prints what README says"):
        (sentence,) = re.findall(r"^It prints ([^.]*)\.", (root / "README.md").read_text(), re.MULTILINE)
        done = subprocess.run([program], text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stderr}"
        assert sorted(done.stdout.splitlines()) == sorted(re.findall("`([^`]*)`", sentence)), done.stdout
    if simulation != "none":
        with all_cases.case("the program of docs/simulation.md finds nothing, and prints what is said there but numbers"):
            (_, said), *_ = blocks.blocks_of(root / "docs/simulation.md", "text")
            done = subprocess.run([simulation, "--seeds", "1..100"], text=True, capture_output=True, check=False)
            assert done.returncode == 0, f"{simulation} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            assert without_numbers(done.stdout.splitlines()[-1]) == without_numbers(said.strip()), done.stdout
    with all_cases.case("every block is checked, or listed with the reason"):
        reasons = listed(UNCHECKED.read_text())
        shown = [block for block in numbered(root) if block[1] not in CHECKED]
        assert set(shown) == set(reasons), set(shown) ^ set(reasons)
        assert all(reasons.values()), reasons
    with all_cases.case("every program in C compiles, and runs on soft0"):
        programs = texts(root, "c")
        assert programs, "none is shown"
        for text in programs:
            run_c(root, program, cordma_c, compiler, text)
    with all_cases.case("queries and tables name metrics that cordma writes"):
        source = (root / "lib/runtime/metrics.cpp").read_text()
        assert unknown_metrics("rate(cordma_no_such_total[1m])", source) == ["no_such_total"]
        table = "| by [metrics](metrics.md) | do |\n| --- | --- |\n| `%s` is not 0 | ask |\n"
        assert list(unknown_in_tables(table % "no_such_total", source)) == ["no_such_total"]
        assert not list(unknown_in_tables(table % "rnr_exceeded_total", source))
        found = [name for document in blocks.documents(root)
                 for name in unknown_in_tables((root / document).read_text(), source)]
        assert not found, found
        for text in texts(root, "promql"):
            assert not unknown_metrics(text, source), unknown_metrics(text, source)
    with all_cases.case("commands of the shell name files and options that there are"):
        bad = "lib/none\ncordma-perf local [--none N] --op -Dnone=1 build/x # lib/nor"
        assert list(unknown_words(root, bad)) == ["lib/none", "-Dnone=1", "cordma-perf local --none"]
        for text in texts(root, "sh"):
            assert not list(unknown_words(root, text)), list(unknown_words(root, text))
    with all_cases.case("an option is known in the modes that have it, and not in others"):
        for bad, found in WRONG_COMMANDS.items():
            assert list(commands.unknown_options(root, bad)) == found, (bad, list(commands.unknown_options(root, bad)))
    with all_cases.case("commands within sentences name options of their program and mode"):
        found = [(document, wrong) for document in blocks.documents(root)
                 for code in commands.inline((root / document).read_text())
                 for wrong in commands.unknown_options(root, code)]
        assert not found, found
    with all_cases.case("sentences name paths that there are"):
        assert is_file(root, "lib/memory/chunk_store") and not is_file(root, "lib/memory/chunk")
        found = [(document, path) for document in blocks.documents(root) for path in unknown_paths(root, document)]
        assert not found, found
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
