#!/usr/bin/env python3
"""A newcomer's walk: what README, site and examples say is done with nothing but the packages.

    newcomer.py DOCUMENTS [SITE]     folders of cordma-doc: README.md, docs, examples; the site's pages
"""

import html
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

HERE = pathlib.Path(__file__).absolute().parent
sys.path[1:1] = [str(HERE.parent / "support"), str(HERE.parent / "docs")]
import blocks  # noqa: E402
import cases  # noqa: E402
from guide_test import LISTENING, Process, check_server  # noqa: E402

LIMIT_S = 300
# The project around README's lines for CMake.
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(newcomer CXX)
find_package(softverbs CONFIG REQUIRED)
add_executable(program program.cpp)
"""
WITH_SOFT0 = "target_link_libraries(program PRIVATE softverbs::softverbs)\n"
# Servers, and how many clients each waits for.
CLIENTS = {"06_remote_memory": 1, "07_shared_counter": 3, "08_rpc_echo": 1, "09_key_value": 2, "c_all_to_all": 2,
           "c_callbacks": 1}
RANKS = ("13_ring_hello", "14_histogram", "15_training")


def shell(command, folder):
    """What a command prints, as typed in a shell."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    assert done.returncode == 0, f"{command}\nended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def line_with(document, text):
    """The line of a document's shell blocks that has a text, without its comment."""
    lines = [line for _, block in blocks.blocks_of(document, "sh") for line in block.splitlines() if text in line]
    assert lines, f"{document} has no command with {text}"
    return lines[0].partition("  #")[0]


def check_readme(run, documents, folder):
    readme = documents / "README.md"
    (_, program), *_ = blocks.blocks_of(readme)
    (_, project), *_ = blocks.blocks_of(readme, "cmake")
    promised = sorted(re.findall(r"`((?:server|client): the word \w+ \d+)`", readme.read_text()))
    assert len(promised) == 2, promised
    (folder / "program.cpp").write_text(program)
    with run.case("the program of README's first screen prints what README says, by pkg-config"):
        shell("g++ -std=c++20 program.cpp -o program $(pkg-config --cflags --libs cordma softverbs)", folder)
        assert sorted(shell("./program", folder).splitlines()) == promised
    with run.case("README's lines for CMake find the library"):
        assert "cordma::cordma" in project, project
        (folder / "CMakeLists.txt").write_text(PROJECT + project + WITH_SOFT0)
        shell("cmake -S . -B by_cmake -G Ninja && cmake --build by_cmake", folder)
        assert sorted(shell("by_cmake/program", folder).splitlines()) == promised


def check_start(run, documents, folder):
    start = documents / "docs/guide/start.md"
    (_, program), *_ = blocks.blocks_of(start)
    (_, said), *_ = blocks.blocks_of(start, "text")
    with run.case("the two processes of the start page print what it says"):
        (folder / "hello.cpp").write_text(program)
        shell(line_with(start, "g++ "), folder)
        hello = folder / "hello"
        with Process(hello) as server, Process(hello, server.line_with(LISTENING)) as client:
            printed = client.ended() + server.ended().partition("\n")[2]
        assert sorted(printed.splitlines()) == sorted(said.splitlines()), printed


def check_ledger(run, documents, folder):
    page = documents / "docs/guide/server.md"
    with run.case("the joined program of the server page has the page's blocks, and compiles with the packages"):
        joined = shutil.copy(documents / "examples/ledger.cpp", folder)
        rest = pathlib.Path(joined).read_text()
        for line, block in blocks.blocks_of(page):
            _, found, rest = rest.partition(block)
            assert found, f"{joined} lacks the block at line {line} of {page}"
        shell(line_with(page, "g++ "), folder)
    check_server(run, folder / "ledger")


def check_packages_page(run, documents, folder):
    page = documents / "docs/packages.md"
    with run.case("the commands for after the installation work"):
        for text in ("cordma-doctor ", "cordma-perf ", "softverbs-run ", "cp -r ", "g++ -std", "processes ./06"):
            shell(line_with(page, text), folder)


def how_to_run(name, examples):
    """What an example's first comment says, for examples that wait for others by the scripts beside them."""
    together = f"bash '{examples}/processes'"
    if name in CLIENTS:
        return f"{together} ./{name} '' {CLIENTS[name]}"
    if name in RANKS:
        return f"bash '{examples}/ranks' 3 ./{name}"
    if name == "10_file_transfer":
        return f"seq 100000 >sent && mkdir got && cd got && {together} ../{name} '' 1 ../sent && cmp sent ../sent"
    if name == "17_tracing":
        return f"{together} --both spans.jsonl ./{name} && grep -q traceId spans.jsonl"
    if name == "18_metrics":
        page = "http://127.0.0.1:9464/metrics"
        return f"mkfifo said; ./{name} >said & read -r _ <said; cordma-top --once {page} && kill -INT $! && wait $!"
    return f"./{name}"


def check_examples(run, documents, folder):
    examples = documents / "examples"
    for path in sorted([*examples.glob("[0-9]*.cpp"), *examples.glob("c_*.c")]):
        compiler, package = ("gcc -std=c11", "cordma-c") if path.suffix == ".c" else ("g++ -std=c++20", "cordma")
        with run.case(f"example {path.stem} compiles with the packages, and runs"):
            shell(f"{compiler} '{path}' -o {path.stem} $(pkg-config --cflags --libs {package} softverbs)", folder)
            shell(how_to_run(path.stem, examples), folder)


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("href", "src") and value]


def pages_from(first):
    """All pages that links lead to, from the first one on. A link to no file ends the walk."""
    reached, open_pages = {first}, [first]
    while open_pages:
        page = open_pages.pop()
        links = Links()
        links.feed(page.read_text())
        for link in links.found:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or not parts.path:
                continue
            target = (page.parent / urllib.parse.unquote(parts.path)).resolve()
            assert target.is_file(), f"{page} leads to {link}, which is no file"
            if target.suffix == ".html" and target not in reached:
                reached.add(target)
                open_pages.append(target)
    return reached


def check_site(run, documents, site):
    with run.case("from the site's first page links lead to all its pages, and to nothing that is not there"):
        reached = pages_from((site / "index.html").resolve())
        missed = {path.resolve() for path in site.rglob("*.html")} - reached
        assert not missed, sorted(missed)[:10]
    with run.case("the site's start page has the program of the document"):
        (_, program), *_ = blocks.blocks_of(documents / "docs/guide/start.md")
        text = html.unescape(re.sub(r"<[^>]+>", "", (site / "docs/guide/start.html").read_text()))
        assert program.strip() in text


def check_tools(run, documents):
    with run.case("the tools that the documents name are installed, each with its man page"):
        for page in sorted((documents / "docs/man").glob("*.md")):
            name = page.stem.partition(".")[0]
            program = shutil.which(name)
            assert program, f"no {name}"
            pages = pathlib.Path(program).parents[1] / "share/man/man1"
            assert list(pages.glob(f"{page.stem}*")), f"no {page.stem} in {pages}"
            shell(f"{name} --help", "/")


def main():
    documents, *site = map(pathlib.Path, sys.argv[1:])
    run = cases.Cases("newcomer")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check_readme(run, documents, folder)
        check_start(run, documents, folder)
        check_ledger(run, documents, folder)
        check_packages_page(run, documents, folder)
        check_examples(run, documents, folder)
    check_tools(run, documents)
    for one in site:
        check_site(run, documents, one)
    return run.status()


if __name__ == "__main__":
    sys.exit(main())
