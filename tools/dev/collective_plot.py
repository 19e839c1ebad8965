"""Figures of collectives as one SVG: a row of panels an operation, a column so many ranks.

Both axes are logarithmic. A line's name stands at its right end.
"""

import html
import math

from . import collective_table

# Widths and heights are of pixels.
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP = 250, 170, 70, 60
NAME_WIDTH, GAP, NAME_HEIGHT = 90, 55, 12
INK, GRID = "#333333", "#e4e4e4"
# The colour of each library that is drawn, and what else its line has.
STYLES = {"cordma": ("#0b57a4", "stroke-width='2.5'"), "gloo": ("#c4511a", ""),
          "mpi": ("#2b8a57", ""), "mpi_softverbs": ("#8a5bb5", ""),
          "raw": ("#777777", "stroke-dasharray='5 3'")}
MICROSECOND = 1e-6


def text(x, y, words, **attributes):
    more = "".join(f" {name.replace('_', '-')}='{value}'" for name, value in attributes.items())
    return f"<text x='{x:.1f}' y='{y:.1f}'{more}>{html.escape(words)}</text>"


def spread(wanted, distance):
    """Returns heights near the wanted ones, in their order and at least `distance` apart."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    placed, heights = [0.0] * len(wanted), []
    for index in order:
        heights.append(max(wanted[index], heights[-1] + distance if heights else -math.inf))
    # All go up again by half of it, so that names stay beside their lines.
    excess = (heights[-1] - wanted[order[-1]]) / 2 if heights else 0
    for index, height in zip(order, heights):
        placed[index] = height - excess
    return placed


def decades(least, most):
    """Returns the exponents of ten that enclose both."""
    return math.floor(math.log10(least)), max(math.ceil(math.log10(most)),
                                              math.floor(math.log10(least)) + 1)


def text_of_decade(exponent):
    """Exponents of microseconds: "10 us", "1 ms", "1 s"."""
    unit, name = ((0, "us"), (3, "ms"), (6, "s"))[max(0, min(2, exponent // 3))]
    return f"{10.0 ** (exponent - unit):g} {name}"


class Panel:
    """One set of axes, whose horizontal one has `marks` (value, text)."""

    def __init__(self, left, top, marks, vertical):
        self.left, self.top, self.marks = left, top, marks
        self.low, self.high = vertical
        values = [math.log2(value) for value, _ in marks]
        self.first, self.width = values[0], max(values[-1] - values[0], 1)

    def x(self, value):
        return self.left + PANEL_WIDTH * (math.log2(value) - self.first) / self.width

    def y(self, microseconds):
        share = (math.log10(microseconds) - self.low) / (self.high - self.low)
        return self.top + PANEL_HEIGHT * (1 - share)

    def axes(self, title):
        yield text(self.left, self.top - 8, title, font_weight="bold")
        for exponent in range(self.low, self.high + 1):
            y = self.y(10.0 ** exponent)
            yield (f"<path d='M{self.left} {y:.1f}h{PANEL_WIDTH}' stroke='{GRID}'/>")
            yield text(self.left - 6, y + 4, text_of_decade(exponent), text_anchor="end")
        for value, words in self.marks:
            yield text(self.x(value), self.top + PANEL_HEIGHT + 16, words, text_anchor="middle")

    def lines(self, libraries, points):
        """Lines through `points`: (value, microseconds) by library."""
        drawn = [one for one in libraries if points.get(one.key)]
        ends = [self.y(max(points[one.key])[1]) for one in drawn]
        for one, height in zip(drawn, spread(ends, NAME_HEIGHT)):
            path = "L".join(f"{self.x(value):.1f} {self.y(time):.1f}"
                            for value, time in sorted(points[one.key]))
            colour, more = STYLES[one.key]
            yield f"<path d='M{path}' fill='none' stroke='{colour}' {more}/>"
            for value, time in points[one.key]:
                yield (f"<circle cx='{self.x(value):.1f}' cy='{self.y(time):.1f}' r='2.2' "
                       f"fill='{colour}'/>")
            yield text(self.x(max(points[one.key])[0]) + 7, height + 4, one.name, fill=colour)


def points_of(rows, value_of):
    points = {}
    for row in rows:
        for key, seconds in row.seconds.items():
            points.setdefault(key, []).append((value_of(row), seconds / MICROSECOND))
    return points


def sizes_of(rows):
    """Marks of every other size."""
    sizes = sorted({row.size_bytes for row in rows})
    return [(size, collective_table.text_of_bytes(size) if number % 2 == 0 else "")
            for number, size in enumerate(sizes)]


def panels(rows):
    """Yields (row, column, title, marks, rows, value of a row) of each panel."""
    layouts = sorted({row.ranks for row in rows})
    operations = list(dict.fromkeys(row.operation for row in rows))
    for line, operation in enumerate(operations):
        of_operation = [row for row in rows if row.operation == operation]
        if not any(row.size_bytes for row in of_operation):
            marks = [(layout, f"{layout} ranks") for layout in layouts]
            yield line, 0, operation, marks, of_operation, lambda row: row.ranks
            continue
        for column, layout in enumerate(layouts):
            chosen = [row for row in of_operation if row.ranks == layout]
            yield (line, column, f"{operation}, {layout} ranks", sizes_of(of_operation), chosen,
                   lambda row: row.size_bytes)


def svg(libraries, figures):
    """Returns the text of the file."""
    drawn = [one for one in libraries if one.key in STYLES]
    rows = collective_table.rows_of(
        [figure for figure in figures if figure["library"] in STYLES])
    body, lines, columns = [], 1, 1
    for line, column, title, marks, chosen, value_of in panels(rows):
        lines, columns = max(lines, line + 1), max(columns, column + 1)
        points = points_of(chosen, value_of)
        times = [time for some in points.values() for _, time in some]
        if not times:
            continue
        panel = Panel(LEFT + column * (PANEL_WIDTH + NAME_WIDTH + LEFT),
                      TOP + line * (PANEL_HEIGHT + GAP), marks, decades(min(times), max(times)))
        body += [*panel.axes(title), *panel.lines(drawn, points)]
    width = columns * (PANEL_WIDTH + NAME_WIDTH + LEFT) + 10
    height = TOP + lines * (PANEL_HEIGHT + GAP)
    head = text(LEFT, 22, "One operation, by the longest buffer", font_size="14")
    return "\n".join([
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"font-family='sans-serif' font-size='11' fill='{INK}'>",
        "<rect width='100%' height='100%' fill='white'/>", head, *body, "</svg>", ""])
