"""Curves over iterations as an SVG picture, without matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Curve = tuple[list[int], list[float]]
Panel = Sequence[tuple[str, Curve]]

_WIDTH, _HEIGHT = 900.0, 300.0  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 78.0, 16.0, 14.0, 30.0
_COLOURS = ("#1f5fbf", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#00798c", "#8c564b", "#555")
_TICKS = 5


def svg_of(panels: Mapping[str, Panel]) -> str:
    """Return panels drawn below each other, with a common axis of iterations.

    Args:
        panels: The curves of each panel, by name; NaNs are omitted.
    """
    every = [i for panel in panels.values() for _, (iterations, _) in panel for i in iterations]
    span = (float(min(every)), float(max(every)))
    height = _HEIGHT * len(panels) + _BOTTOM / 2
    shapes = []
    for place, (name, panel) in enumerate(panels.items()):
        shapes += _panel(name, panel, span, place * _HEIGHT)
    style = (
        "text{font:12px sans-serif;fill:#10151c}.grid{stroke:#ccd}"
        ".curve{fill:none;stroke-width:1.6}"
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" '
        f'width="{_WIDTH:.0f}" height="{height:.0f}">\n<style>{style}</style>\n'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(shapes) + "\n"
        f'<text x="{_WIDTH / 2:.0f}" y="{height - 4:.0f}" text-anchor="middle">iteration</text>\n'
        "</svg>\n"
    )


def _panel(name: str, panel: Panel, span: tuple[float, float], top: float) -> list[str]:
    values = [v for _, (_, curve) in panel for v in curve if math.isfinite(v)] or [0.0]
    across, up = _Axis(*span), _Axis(min(values), max(values))
    box = (_LEFT, _WIDTH - _RIGHT, top + _HEIGHT - _BOTTOM, top + _TOP)
    left, right, low, high = box
    shapes = []
    for tick in across.ticks:
        x = across.at(tick, left, right)
        shapes.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{low}" y2="{high}"/>')
        shapes.append(f'<text x="{x:.1f}" y="{low + 16}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks:
        y = up.at(tick, low, high)
        shapes.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        shapes.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    middle = (low + high) / 2
    turned = f'x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})"'
    shapes.append(f"<text {turned}>{escape(name)}</text>")
    for number, (label, curve) in enumerate(panel):
        colour = _COLOURS[number % len(_COLOURS)]
        shapes += _curve(curve, colour, (across, left, right), (up, low, high))
        y = high + 16 + 16 * number
        shapes.append(
            f'<rect x="{right - 14}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        )
        shapes.append(f'<text x="{right - 20}" y="{y}" text-anchor="end">{escape(label)}</text>')
    return shapes


class _Axis:
    """An axis from a minimum to a maximum, with round numbers in between."""

    def __init__(self, least: float, most: float) -> None:
        if least == most:
            room = abs(least) / 2 or 1.0
            least, most = least - room, most + room
        self._least, self._most = least, most
        rough = (most - least) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.999)
        first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
        self.ticks = [round(number * step, 12) for number in range(first, last + 1)]

    def at(self, value: float, start: float, end: float) -> float:
        """Return the position of a value between two positions in the picture."""
        return start + (value - self._least) / (self._most - self._least) * (end - start)


def _curve(
    curve: Curve, colour: str, x: tuple[_Axis, float, float], y: tuple[_Axis, float, float]
) -> list[str]:
    """Return lines between neighbours, dots if there are few, and gaps where there is no number."""
    runs: list[list[tuple[float, float]]] = [[]]
    for iteration, value in zip(*curve, strict=True):
        if math.isfinite(value):
            runs[-1].append((x[0].at(iteration, *x[1:]), y[0].at(value, *y[1:])))
        else:
            runs.append([])
    shapes = []
    for run in filter(None, runs):
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in run)
        shapes.append(f'<path class="curve" stroke="{colour}" d="M{path}"/>')
    points = [point for run in runs for point in run]
    if len(points) < 50:
        dot = f'r="2.5" fill="{colour}"'
        shapes += [f'<circle cx="{a:.1f}" cy="{b:.1f}" {dot}/>' for a, b in points]
    return shapes
