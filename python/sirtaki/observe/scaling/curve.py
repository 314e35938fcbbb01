"""A script's speed over the number of ranks, as a table in a terminal and as a plot."""

from __future__ import annotations

from collections.abc import Sequence

from sirtaki.observe.scaling.causes import Point, verdict
from sirtaki.rendezvous.words import aligned

_HEADINGS = ("RANKS", "TIME", "SPEED-UP", "EFFICIENCY")
_NARROWEST_BAR = 10
_BAR, _IDEAL = "#", "|"


def table(points: Sequence[Point], width: int) -> list[str]:
    """Return lines with the figures of each number of ranks and, if it fits, a bar.

    The bar is the speed-up, and the mark at or after its end the speed-up without losses.
    """
    rows = [
        _HEADINGS,
        *(
            (
                str(point.ranks),
                _time(point.seconds),
                "-" if point.speed_up is None else f"{point.speed_up:.2f}",
                "-" if point.efficiency is None else f"{point.efficiency:.0%}",
            )
            for point in points
        ),
    ]
    lines = aligned(rows)
    room = width - len(lines[0]) - 3
    if room < _NARROWEST_BAR:
        return lines
    most = max(max(point.speed_up or 0.0, _ideal(point, points)) for point in points)
    bars = [_bar(point.speed_up or 0.0, _ideal(point, points), most, room) for point in points]
    return [lines[0], *(f"{line}  {bar}" for line, bar in zip(lines[1:], bars, strict=True))]


def _ideal(point: Point, points: Sequence[Point]) -> float:
    return point.ranks / points[0].ranks


def _bar(value: float, ideal: float, most: float, room: int) -> str:
    full, mark = round(room * value / most), round(room * ideal / most)
    return (_BAR * full).ljust(mark) + _IDEAL


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def reasons(points: Sequence[Point]) -> list[str]:
    """Return lines that explain what limits each number of ranks, and what to do."""
    lines = []
    for point in points:
        if point.doubt:
            continue
        lines.append(f"{point.ranks} rank{'s' if point.ranks > 1 else ''}: {verdict(point)}")
        for cause in point.causes:
            lines += [f"  {cause.name}: {cause.what}", f"    fix: {cause.fix}"]
    return lines


def draw(points: Sequence[Point], path: str) -> None:
    """Draw the speed-up, and the composition of a step at each number of ranks.

    Args:
        points: One for each number of ranks.
        path: The file; its extension selects the format.

    Raises:
        ValueError: matplotlib does not support the extension.
    """
    # Here, because the import takes as long as everything else.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    ranks = [point.ranks for point in points]
    left.plot(ranks, [_ideal(point, points) for point in points], "--", label="without losses")
    known = [(point.ranks, point.speed_up) for point in points if point.speed_up is not None]
    left.plot(*zip(*known, strict=True), marker="o", label="measured")
    left.set(xlabel="ranks", ylabel="speed-up", xticks=ranks, ylim=(0, None))
    left.legend()
    names = sorted({cause.name for point in points for cause in point.causes})
    places = range(len(points))
    below = [0.0] * len(points)
    for name in names:
        shares = [_share(point, name) for point in points]
        right.bar(places, shares, bottom=below, label=name)
        below = [sum(pair) for pair in zip(below, shares, strict=True)]
    right.set(xlabel="ranks", ylabel="share of a step", xticks=places, ylim=(0, 1))
    right.set_xticklabels(ranks)
    if names:
        right.legend()
    figure.savefig(path)


def _share(point: Point, name: str) -> float:
    return next((cause.share for cause in point.causes if cause.name == name), 0.0)
