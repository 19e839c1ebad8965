#!/usr/bin/env python3
"""Draws the pictures of docs/guide from the texts beside them: `pictures.py FOLDER` writes NAME.svg for each NAME.txt.

The first line of a text is the kind of its picture; lines that begin with # are comments.

    sequence                          boxes
    lane a | Program                  box a | 0 0 | Program
    lane b | Device                   box b | 0 2 | Device, / with its queues
    a -> b | post                     frame 0 0 1 3 | one host
    b --> a | CQE (a dashed arrow)    arrow a b | doorbell
    at a | a note on one lane         dashed b a | CQE
    all | a note across the lanes

A box has its row and column in a grid, where a cell may be empty; a frame its first row and column, and how many
of each. ` / ` begins a new line of a box's text.
"""

import html
import pathlib
import sys

# Widths and heights are of pixels.
INK, PALE, PAPER, BOX, NOTE = "#222222", "#8a8a8a", "#f7f7f4", "#ffffff", "#fdf3d0"
FONT, LINE, CHARACTER, BOLD, MARGIN = 12, 15, 6.4, 1.15, 20
LANE_HEIGHT, STEP = 30, 36
CELL_WIDTH, CELL_HEIGHT, CELL_GAP = 164, 58, 34


class BadPicture(Exception):
    """A line of a text that no picture has."""


def text(x, y, words, **attributes):
    more = "".join(f" {name.replace('_', '-')}='{value}'" for name, value in attributes.items())
    return f"<text x='{x:g}' y='{y:g}'{more}>{html.escape(words)}</text>"


def rectangle(x, y, width, height, fill, **attributes):
    more = "".join(f" {name.replace('_', '-')}='{value}'" for name, value in attributes.items())
    return f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='4' fill='{fill}'{more}/>"


def arrow(begin, end, is_dashed):
    dashes = " stroke-dasharray='5 4'" if is_dashed else ""
    return (f"<path d='M{begin[0]:g} {begin[1]:g}L{end[0]:g} {end[1]:g}' stroke='{INK}' fill='none'{dashes} "
            "marker-end='url(#head)'/>")


def width_of(words):
    return CHARACTER * len(words) + 14


def document(width, height, title, body):
    return "\n".join([
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:g}' height='{height:g}' "
        f"viewBox='0 0 {width:g} {height:g}' role='img' font-family='sans-serif' font-size='{FONT}' fill='{INK}'>",
        f"<title>{html.escape(title)}</title>",
        "<defs><marker id='head' markerWidth='9' markerHeight='8' refX='8' refY='4' orient='auto'>"
        f"<path d='M0 0L9 4L0 8z' fill='{INK}'/></marker></defs>",
        f"<rect width='100%' height='100%' rx='6' fill='{PAPER}'/>", *body, "</svg>", ""])


def statements(lines):
    """Yields (words of the head, text) of each line: `head | text`."""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            head, _, rest = line.partition("|")
            yield head.split(), rest.strip()


def sequence(name, lines):
    lanes, steps = {}, []
    for head, words in statements(lines):
        if head[0] == "lane":
            lanes[head[1]] = words
        elif head[0] in ("at", "all"):
            steps.append((head[0], head[-1], None, words))
        elif len(head) == 3 and head[1] in ("->", "-->") and {head[0], head[2]} <= set(lanes):
            steps.append((head[1], head[0], head[2], words))
        else:
            raise BadPicture(f"{name}: {' '.join(head)} | {words}")
    # Lanes stand so far apart that each text between two of them has room.
    keys = list(lanes)
    distance = max([150, *(BOLD * width_of(words) + 10 for words in lanes.values()),
                    *(width_of(words) / abs(keys.index(begin) - keys.index(end))
                      for kind, begin, end, words in steps if end)])
    across = max([0, *(width_of(words) for kind, _, _, words in steps if kind == "all")])
    edge = max(BOLD * width_of(words) / 2 for words in [lanes[keys[0]], lanes[keys[-1]],
               *(words for kind, lane, _, words in steps if kind == "at" and lane in (keys[0], keys[-1]))])
    left = MARGIN + max(edge, (across - distance * (len(lanes) - 1)) / 2)
    x = {key: left + distance * number for number, key in enumerate(keys)}
    top, bottom = MARGIN + LANE_HEIGHT, MARGIN + LANE_HEIGHT + STEP * len(steps) + 14
    width = 2 * left + distance * (len(lanes) - 1)
    body = []
    for key, words in lanes.items():
        wide = BOLD * width_of(words)
        body += [f"<path d='M{x[key]:g} {top:g}V{bottom:g}' stroke='{PALE}'/>",
                 rectangle(x[key] - wide / 2, MARGIN, wide, LANE_HEIGHT, BOX, stroke=INK),
                 text(x[key], MARGIN + 19, words, text_anchor="middle", font_weight="bold")]
    for number, (kind, begin, end, words) in enumerate(steps):
        y = top + STEP * (number + 1) - 6
        if kind in ("at", "all"):
            wide = width_of(words)
            middle = x[begin] if kind == "at" else width / 2
            body += [rectangle(middle - wide / 2, y - 15, wide, 22, NOTE, stroke=PALE),
                     text(middle, y, words, text_anchor="middle")]
        else:
            body += [arrow((x[begin], y), (x[end], y), kind == "-->"),
                     text((x[begin] + x[end]) / 2, y - 5, words, text_anchor="middle")]
    return document(width, bottom + MARGIN, name, body)


def border(box, towards):
    """The point where the line from a box's middle to another box's leaves the first box."""
    x, y = box[0] + CELL_WIDTH / 2, box[1] + CELL_HEIGHT / 2
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min((CELL_WIDTH / 2) / abs(dx) if dx else 1e9, (CELL_HEIGHT / 2) / abs(dy) if dy else 1e9)
    return round(x + dx * scale, 1), round(y + dy * scale, 1)


def boxes(name, lines):
    gap = max([70, *(width_of(words) for head, words in statements(lines) if head[0] in ("arrow", "dashed"))])
    across, down = CELL_WIDTH + gap, CELL_HEIGHT + CELL_GAP
    placed, body, frames, right, low = {}, [], [], 0, 0
    for head, words in statements(lines):
        if head[0] == "box":
            row, column = (int(number) for number in words.partition("|")[0].split())
            x, y = 2 * MARGIN + across * column, 2 * MARGIN + down * row
            placed[head[1]] = (x, y)
            right, low = max(right, x + CELL_WIDTH), max(low, y + CELL_HEIGHT)
            shown = words.partition("|")[2].strip().split(" / ")
            body.append(rectangle(x, y, CELL_WIDTH, CELL_HEIGHT, BOX, stroke=INK))
            first = y + CELL_HEIGHT / 2 + 4 - LINE * (len(shown) - 1) / 2
            for number, line in enumerate(shown):
                weight = {"font_weight": "bold"} if number == 0 else {}
                body.append(text(x + CELL_WIDTH / 2, first + LINE * number, line, text_anchor="middle", **weight))
        elif head[0] == "frame":
            row, column, rows, columns = (int(number) for number in head[1:])
            x, y = MARGIN + 4 + across * column, MARGIN - 2 + down * row
            frames += [rectangle(x, y, across * (columns - 1) + CELL_WIDTH + 32, down * (rows - 1) + CELL_HEIGHT + 30,
                                 "none", stroke=PALE, stroke_dasharray="3 3"),
                       text(x + 8, y + 14, words, font_size=11, fill="#555555")]
        elif head[0] in ("arrow", "dashed") and {head[1], head[2]} <= set(placed):
            begin, end = placed[head[1]], placed[head[2]]
            if begin[1] == end[1]:  # Two arrows between neighbours do not lie on each other.
                begin, end = ((x, y + (-9 if begin[0] < end[0] else 9)) for x, y in (begin, end))
            first, last = border(begin, end), border(end, begin)
            body.append(arrow(first, last, head[0] == "dashed"))
            under = 4 if begin[0] > end[0] and begin[1] == end[1] else 0
            anchor = "middle" if begin[0] != end[0] else "start"
            body.append(text((first[0] + last[0]) / 2 + (6 if anchor == "start" else 0),
                             (first[1] + last[1]) / 2 + (-5 if not under else 14) + (9 if anchor == "start" else 0),
                             words, text_anchor=anchor, font_size=11, stroke=PAPER, stroke_width=4,
                             paint_order="stroke"))
        else:
            raise BadPicture(f"{name}: {' '.join(head)} | {words}")
    return document(right + 2 * MARGIN, low + 2 * MARGIN, name, frames + body)


def svg(name, words):
    """The picture of a text."""
    kind, *lines = [line for line in words.splitlines() if line and not line.startswith("#")]
    if kind not in ("sequence", "boxes"):
        raise BadPicture(f"{name}: no kind of picture: {kind}")
    return {"sequence": sequence, "boxes": boxes}[kind](name, lines)


def drawn(folder):
    """(file, picture) of each text of a folder."""
    for source in sorted(pathlib.Path(folder).glob("*.txt")):
        yield source.with_suffix(".svg"), svg(source.stem, source.read_text())


if __name__ == "__main__":
    for file, picture in drawn(sys.argv[1]):
        file.write_text(picture)
