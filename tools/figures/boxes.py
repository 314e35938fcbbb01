"""Boxes and arrows, drawn from text.

    box script 0 0 22 5 a "your script|import horovod.torch"
    box engine 0 9 22 5 plain engine
    arrow script engine "gradients"
    note 12 8 "a text anywhere"

Numbers are steps of a grid of ten pixels: left, top, width, height. A bar divides lines of text.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from tools.figures.svg import FILLS, drawing, element, rectangle, text

GRID = 10
LINE = 17


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2


def draw(source: str, alt: str) -> str:
    boxes: dict[str, Box] = {}
    shapes, arrows = [], []
    right = bottom = 0.0
    for line in source.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        kind, *rest = words
        if kind == "box":
            name, *numbers, fill, label = rest
            box = boxes[name] = Box(*(float(number) * GRID for number in numbers))
            right, bottom = max(right, box.x + box.width), max(bottom, box.y + box.height)
            shapes.append(box_of(box, fill, label))
        elif kind == "note":
            x, y, label = float(rest[0]) * GRID, float(rest[1]) * GRID, rest[2]
            shapes.append(text(x, y, label, "faint"))
            right, bottom = max(right, x), max(bottom, y)
        elif kind in ("arrow", "both"):
            label = rest[2] if len(rest) > 2 else ""
            arrows.append(arrow_of(boxes[rest[0]], boxes[rest[1]], label, kind == "both"))
        else:
            raise ValueError(f"a figure has box, arrow, both and note, not {kind!r}")
    return drawing(right + 2, bottom + 4, "".join(arrows + shapes), alt)


def box_of(box: Box, fill: str, label: str) -> str:
    if fill not in FILLS:
        raise ValueError(f"a box is filled with one of {', '.join(FILLS)}, not {fill!r}")
    x, y = box.middle
    lines = label.split("|")
    first = y + 5 - LINE * (len(lines) - 1) / 2
    return rectangle(box.x + 1, box.y + 1, box.width - 1, box.height - 1, f"fill-{fill}", 6) + (
        "".join(
            text(x, first + LINE * place, words, "strong" if place == 0 else "faint")
            for place, words in enumerate(lines)
        )
    )


def arrow_of(start: Box, end: Box, label: str, both: bool) -> str:
    """From the side of one box to the facing side of the other."""
    (x0, y0), (x1, y1) = start.middle, end.middle
    gap_x = max(start.x, end.x) - min(start.x + start.width, end.x + end.width)
    if gap_x > 0:
        sign = 1 if x1 > x0 else -1
        x0 += sign * start.width / 2
        x1 -= sign * end.width / 2
        y0 = y1 = overlap(start.y, start.height, end.y, end.height)
        place = ((x0 + x1) / 2, y0 - 6, "middle")
    else:
        sign = 1 if y1 > y0 else -1
        y0 += sign * start.height / 2
        y1 -= sign * end.height / 2
        x0 = x1 = overlap(start.x, start.width, end.x, end.width)
        place = (x0 + 8, (y0 + y1) / 2 + 4, "start")
    drawn = element("path", d=f"M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}", class_="arrow")
    drawn += head(x0, y0, x1, y1)
    if both:
        drawn += head(x1, y1, x0, y0)
    return drawn + (text(place[0], place[1], label, "faint", place[2]) if label else "")


def overlap(a: float, a_size: float, b: float, b_size: float) -> float:
    """The middle of what two sides have in common, or of all where they have nothing."""
    return (max(a, b) + min(a + a_size, b + b_size)) / 2


def head(x0: float, y0: float, x1: float, y1: float) -> str:
    sign_x, sign_y = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    back_x, back_y = x1 - 8 * sign_x, y1 - 8 * sign_y
    wing_x, wing_y = 4 * (sign_y != 0), 4 * (sign_x != 0)
    return element(
        "path",
        d=f"M{x1:.0f} {y1:.0f}L{back_x - wing_x:.0f} {back_y - wing_y:.0f}"
        f"L{back_x + wing_x:.0f} {back_y + wing_y:.0f}z",
        class_="head",
    )
