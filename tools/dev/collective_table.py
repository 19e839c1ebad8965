"""Figures of collectives as a table, with the bars that cordma is to reach."""

import dataclasses
import statistics

UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


class Row:
    """One operation of one size among so many ranks: the seconds by library."""

    def __init__(self, operation, size_bytes, ranks):
        self.operation, self.size_bytes, self.ranks = operation, size_bytes, ranks
        self.seconds, self.rounds = {}, {}

    def add(self, figure):
        self.seconds[figure["library"]] = figure["seconds"]
        self.rounds[figure["library"]] = figure["rounds"]

    def ratio(self, of, to):
        """Returns a library's time beside another's; None where one is missing. The median over
        rounds, because processors may be near each other in one and far in the next."""
        if of not in self.rounds or to not in self.rounds:
            return None
        return statistics.median(one / other for one, other
                                 in zip(self.rounds[of], self.rounds[to]))


@dataclasses.dataclass(frozen=True)
class Bar:
    """The least that a library takes of cordma's time, in the rows that are covered."""

    library: str
    least: float
    text: str
    covers: object  # covers(row)


BARS = (
    Bar("gloo", 3.0, "Gloo / cordma, up to 64 KiB", lambda row: row.size_bytes <= 64 << 10),
    Bar("gloo", 1.5, "Gloo / cordma, above 64 KiB", lambda row: row.size_bytes > 64 << 10),
    Bar("raw", 0.7, "bound / cordma, all_reduce and all_gather of 1 MiB and more",
        lambda row: row.operation in ("all_reduce", "all_gather") and row.size_bytes >= 1 << 20),
    Bar("raw", 0.5, "bound / cordma, barrier of 4",
        lambda row: row.operation == "barrier" and row.ranks == 4),
)


def rows_of(figures):
    """Returns rows, in the order in which figures of them first came."""
    rows = {}
    for figure in figures:
        key = figure["operation"], figure["bytes"], figure["ranks"]
        rows.setdefault(key, Row(*key)).add(figure)
    return list(rows.values())


def text_of_bytes(size_bytes):
    if not size_bytes:
        return "-"
    return next(f"{size_bytes // unit} {name}" for unit, name in UNITS if size_bytes >= unit)


def text_of_time(seconds):
    """Microseconds with three digits."""
    microseconds = seconds * 1e6
    digits = 2 if microseconds < 10 else 1 if microseconds < 100 else 0
    return f"{microseconds:.{digits}f}"


def text_of_ratio(row, library):
    """The ratio to cordma's time; one that misses its bar shows the bar, too."""
    ratio = row.ratio(library, "cordma")
    if ratio is None:
        return ""
    missed = [bar for bar in BARS
              if bar.library == library and bar.covers(row) and ratio < bar.least]
    return f"{ratio:.2f} < {missed[0].least:g}" if missed else f"{ratio:.2f}"


def text_of_lead(row):
    """How many times as long cordma takes as Open MPI, where Open MPI is faster."""
    lead = row.ratio("cordma", "mpi")
    return f"{lead:.2f}" if lead is not None and lead > 1 else ""


def cells(row, libraries, absent):
    times = [text_of_time(row.seconds[one.key]) if one.key in row.seconds
             else "absent" if one.key in absent else "" for one in libraries]
    return [row.operation, text_of_bytes(row.size_bytes), str(row.ranks), *times,
            text_of_ratio(row, "gloo"), text_of_ratio(row, "raw"), text_of_lead(row)]


def summary(rows):
    """Yields how many rows reach each bar."""
    for bar in BARS:
        ratios = [row.ratio(bar.library, "cordma") for row in rows if bar.covers(row)]
        ratios = [ratio for ratio in ratios if ratio is not None]
        reached = sum(ratio >= bar.least for ratio in ratios)
        yield f"{bar.text}: at least {bar.least:g} in {reached} of {len(ratios)} rows"


def lines(libraries, absent, figures):
    """Yields the table, in microseconds, and how many rows reach each bar. `absent` has the keys of
    libraries that are not installed."""
    rows = rows_of(figures)
    table = [["operation", "bytes", "ranks", *(one.name for one in libraries),
              "Gloo/cordma", "bound/cordma", "cordma/Open MPI"],
             *(cells(row, libraries, absent) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for one in table:
        yield "  ".join([one[0].ljust(widths[0]),
                         *map(str.rjust, one[1:], widths[1:])]).rstrip()
    yield ""
    yield from summary(rows)
