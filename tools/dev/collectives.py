"""`./dev bench collectives`: cordma's collectives beside those of others, and beside raw verbs."""

import contextlib
import json
import pathlib
import statistics
import sys
import tempfile

from . import collective_plot, collective_table, libraries, ranks

LAYOUTS = (2, 4, 8)
SIZES = (8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)
BLOCK_BYTES_MIN = 8  # Of a rank, where an operation divides its buffer.
ROUNDS, ROUNDS_OF_LONG, ROUND_SECONDS = 7, 5, 0.02


def cases(size):
    """Yields (operation, bytes of the longest buffer) for so many ranks."""
    for operation in libraries.OPERATIONS:
        if operation == "barrier":
            yield operation, 0
            continue
        is_whole = operation in ("broadcast", "all_reduce")
        for size_bytes in SIZES:
            if is_whole or size_bytes >= BLOCK_BYTES_MIN * size:
                yield operation, size_bytes


def count_of_round(one, name, size_bytes):
    """Returns how many operations take a round, by trying ever more; None: they do no such one."""
    count = 1
    while (seconds := one.order(name, size_bytes, count)) is not None:
        fitting = max(1, round(ROUND_SECONDS / max(seconds, 1e-9)))
        if fitting <= 2 * count:
            return fitting
        count = min(fitting, 10 * count)
    return None


def measure_case(running, operation, size_bytes):
    """Returns figures. The rounds of all libraries alternate."""
    counts = {(one, name): count_of_round(one, name, size_bytes)
              for one in running for name in one.library.names(operation)}
    rounds = {each: [] for each, count in counts.items() if count is not None}
    for number in range(ROUNDS):
        for (one, name), taken in rounds.items():
            if counts[one, name] == 1 and number >= ROUNDS_OF_LONG:
                continue
            seconds = one.order(name, size_bytes, counts[one, name])
            if seconds is not None:
                taken.append(seconds)
    fastest = {}
    for (one, name), taken in rounds.items():
        if not taken:
            continue
        figure = {"library": one.library.key, "operation": operation, "bytes": size_bytes,
                  "ranks": one.size, "seconds": statistics.median(taken), "rounds": taken,
                  "algorithm": name}
        before = fastest.get(one)
        if before is None or figure["seconds"] < before["seconds"]:
            fastest[one] = figure
    return list(fastest.values())


def measure_layout(project, present, size):
    """Returns the figures of so many ranks, and the ranks that were lost."""
    figures = []
    with contextlib.ExitStack() as all_ranks:
        folder = all_ranks.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        running = [all_ranks.enter_context(ranks.Ranks(project, library, size))
                   for library in present]
        for one in running:
            one.start(folder)
        for operation, size_bytes in cases(size):
            figures += measure_case(running, operation, size_bytes)
    return figures, [one for one in running if one.lost_at]


def bench(project, device, json_file):
    """Returns the exit status. Libraries that are not installed are absent, which is no failure."""
    known = libraries.all_of(project, device)
    present = [library for library in known if library.is_here(project)]
    figures, status = [], 0
    for size in LAYOUTS:
        print(f"{size} ranks ...", file=sys.stderr)
        more, lost = measure_layout(project, present, size)
        figures += more
        for one in lost:
            print(f"dev: {one.library.name}, {size} ranks: lost at '{one.lost_at}'",
                  file=sys.stderr)
            status = 1
    absent = {library.key for library in known} - {library.key for library in present}
    print(*collective_table.lines(known, absent, figures), sep="\n")
    text = json.dumps(figures, indent=1) + "\n"
    for path in filter(None, (project.root / "build/bench-collectives.json", json_file)):
        pathlib.Path(path).write_text(text, encoding="utf-8")
    plot = project.root / "build/bench-collectives.svg"
    plot.write_text(collective_plot.svg(known, figures), encoding="utf-8")
    print(f"plot: {plot}")
    return status
