"""A net as an SVG picture, with its own layout: Graphviz is not needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

_LINE, _LETTER, _PAD = 13.0, 6.1, 8.0
_BETWEEN_RANKS, _BETWEEN_BOXES, _MARGIN = 34.0, 16.0, 12.0
_SWEEPS = 8
_IN_PLACE = "#dfe7f2"

Point = tuple[float, float]


@dataclass
class _Box:
    """A layer, and below it the layers that change its top in place."""

    parts: list[tuple[str, str]]  # text and colour
    rank: int
    before: list[tuple[_Box, str]]  # the boxes it reads from, and the blobs
    after: list[_Box] = field(default_factory=list)
    at: float = 0.0  # its middle across the ranks
    start: float = 0.0  # its start along the ranks

    @property
    def size(self) -> tuple[float, float]:
        """Return the width and height."""
        lines = [line for text, _ in self.parts for line in text.split("\n")]
        longest = max(len(line) for line in lines)
        height = len(lines) * _LINE + len(self.parts) * _PAD
        return longest * _LETTER + 2 * _PAD, height


def svg_of(
    net: Any, rankdir: str, label: Callable[[Any], str], colour: Callable[[Any], str]
) -> str:
    """Return a net as SVG.

    Args:
        net: The NetParameter.
        rankdir: The direction: LR, RL, TB or BT.
        label: Returns the text of a layer.
        colour: Returns the colour of a layer.
    """
    boxes = _boxes(net, label, colour)
    if not boxes:
        return _document(str(net.name), 0, 0, [])
    flat = rankdir in ("LR", "RL")
    ranks = [[b for b in boxes if b.rank == r] for r in range(max(b.rank for b in boxes) + 1)]
    _place(ranks, 1 if flat else 0)
    length = _stack(ranks, 0 if flat else 1)
    low = min(b.at - b.size[1 if flat else 0] / 2 for b in boxes)
    high = max(b.at + b.size[1 if flat else 0] / 2 for b in boxes)
    view = _View(flat, rankdir in ("RL", "BT"), length, low - _MARGIN)
    shapes = [view.edge(box, source, blob, ranks) for box in boxes for source, blob in box.before]
    shapes += [shape for box in boxes for shape in view.box(box)]
    across, along = high - low + 2 * _MARGIN + view.widest, length + 2 * _MARGIN
    return _document(str(net.name), *((along, across) if flat else (across, along)), shapes)


def _boxes(net: Any, label: Callable[[Any], str], colour: Callable[[Any], str]) -> list[_Box]:
    boxes: list[_Box] = []
    makers: dict[str, list[_Box]] = {}
    for layer in net.layer:
        bottoms, tops = list(dict.fromkeys(layer.bottom)), list(dict.fromkeys(layer.top))
        known = [(maker, name) for name in bottoms for maker in makers.get(name, [])]
        if known and bottoms == tops and len({id(maker) for maker, _ in known}) == 1:
            known[0][0].parts.append((f"{layer.name} ({layer.type})", _IN_PLACE))
            continue
        rank = max((maker.rank + 1 for maker, _ in known), default=0)
        box = _Box([(label(layer), colour(layer))], rank, known)
        for maker, _ in known:
            maker.after.append(box)
        for top in tops:
            # Layers of several phases make one blob; a reader of it may make another of that name.
            others = [] if top in bottoms else makers.get(top, [])
            makers[top] = [*others, box]
        boxes.append(box)
    return boxes


def _place(ranks: Sequence[list[_Box]], axis: int) -> None:
    """Place each box across the ranks near its neighbours, without overlap."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for rank in ranks if down else reversed(ranks):
            wished = []
            for number, box in enumerate(rank):
                near = [maker for maker, _ in box.before] if down else box.after
                mean = sum(b.at for b in near) / len(near) if near else box.at
                wished.append((mean, number, box))
            if sweep or down:
                wished.sort(key=lambda each: each[:2])
            rank[:] = [box for _, _, box in wished]
            end = None
            for mean, _, box in wished:
                half = box.size[axis] / 2
                box.at = mean if end is None else max(mean, end + half)
                end = box.at + half + _BETWEEN_BOXES
            shift = sum(mean - box.at for mean, _, box in wished) / len(wished)
            for box in rank:
                box.at += shift


def _stack(ranks: Sequence[list[_Box]], axis: int) -> float:
    """Place the ranks after each other; return the total length."""
    start = 0.0
    for rank in ranks:
        longest = max(box.size[axis] for box in rank)
        for box in rank:
            box.start = start + (longest - box.size[axis]) / 2
        start += longest + _BETWEEN_RANKS
    return start - _BETWEEN_RANKS


class _View:
    """Conversion of positions across and along the ranks to positions in the picture.

    Args:
        flat: Ranks are side by side, not one below the other.
        turned: Whether the direction is reversed.
        length: The length of all ranks.
        low: The start of the picture across the ranks.
    """

    def __init__(self, flat: bool, turned: bool, length: float, low: float) -> None:
        self._flat, self._turned, self._length, self._low = flat, turned, length, low
        self._along, self._across = (0, 1) if flat else (1, 0)
        self.widest = 0.0  # how far edges extend beyond the boxes

    def _point(self, across: float, along: float) -> Point:
        along = (self._length - along if self._turned else along) + _MARGIN
        across -= self._low
        return (along, across) if self._flat else (across, along)

    def edge(self, box: _Box, source: _Box, blob: str, ranks: Sequence[list[_Box]]) -> str:
        """Return a line from one box to another, around those in between."""
        begin, end = source.start + source.size[self._along], box.start
        points = [self._point(source.at, begin), self._point(box.at, end)]
        between = [b for rank in ranks[source.rank + 1 : box.rank] for b in rank]
        far = self._beyond(between, *sorted((source.at, box.at)))
        bend = (end - begin) / 2 if not between else _BETWEEN_RANKS
        if far is not None:
            edge = max(b.at + b.size[self._across] / 2 for rank in ranks for b in rank)
            self.widest = max(self.widest, far - edge)
            middle = [self._point(far, begin + bend), self._point(far, end - bend)]
            (a, b), (c, d) = points, middle
            first = self._point(source.at, begin + bend), self._point(far, begin)
            last = self._point(far, end), self._point(box.at, end - bend)
            path = f"M{_at(a)} C{_at(first[0])} {_at(first[1])} {_at(c)} L{_at(d)} "
            path += f"C{_at(last[0])} {_at(last[1])} {_at(b)}"
        else:
            ways = self._point(source.at, begin + bend), self._point(box.at, end - bend)
            path = f"M{_at(points[0])} C{_at(ways[0])} {_at(ways[1])} {_at(points[1])}"
        return f'<path class="edge" d="{path}"><title>{escape(blob)}</title></path>'

    def _beyond(self, boxes: Sequence[_Box], low: float, high: float) -> float | None:
        """Return where a line passes boxes between low and high; None: there are none."""
        sides = [(b.at - b.size[self._across] / 2, b.at + b.size[self._across] / 2) for b in boxes]
        far: float | None = None
        while hit := [end for start, end in sides if start < high + 4 and end > low - 4]:
            if far is not None and max(hit) < far:
                break
            far = high = max(hit) + _BETWEEN_BOXES / 2
        return far

    def box(self, box: _Box) -> list[str]:
        """Return its parts, one below the other."""
        width, height = box.size
        start = self._point(box.at, box.start + (box.size[self._along] if self._turned else 0))
        x, y = (start[0], start[1] - height / 2) if self._flat else (start[0] - width / 2, start[1])
        shapes = []
        for text, colour in box.parts:
            lines = text.split("\n")
            tall = len(lines) * _LINE + _PAD
            shapes.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{tall:.1f}" '
                f'fill="{colour}"/>'
            )
            for number, line in enumerate(lines):
                place = f'x="{x + width / 2:.1f}" y="{y + (number + 1) * _LINE:.1f}"'
                shapes.append(f"<text {place}>{escape(line)}</text>")
            y += tall
        return shapes


def _at(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def _document(name: str, width: float, height: float, shapes: Sequence[str]) -> str:
    sizes = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    style = (
        "text{font:11px sans-serif;text-anchor:middle;fill:#10151c}rect{stroke:#445}"
        ".edge{fill:none;stroke:#556;stroke-width:1.2;marker-end:url(#tip)}"
    )
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#556"/></marker>'
    )
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {sizes}>\n<title>{escape(name)}</title>\n'
        f"<style>{style}</style>\n<defs>{tip}</defs>\n"
        f'<rect width="100%" height="100%" fill="#fff" style="stroke:none"/>\n{body}\n</svg>\n'
    )
