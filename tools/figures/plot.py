"""Charts as SVG: bars, curves over sizes, and the numbers as a table."""

from __future__ import annotations

import math
from html import escape

from tools.figures.charts import Chart
from tools.figures.svg import LINES, drawing, element, number, text, width_of

WIDTH = 660
BAR, BAR_GAP, GROUP_GAP = 18, 3, 16
LEGEND = 24
HEIGHT = 300
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 4", "12 4")


def draw(chart: Chart, alt: str, style: str = "") -> str:
    return (curves if chart.curves else bars)(chart, alt, style)


def show(value: float) -> str:
    """Three digits, or all there are before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.1e}"


def bars(chart: Chart, alt: str, style: str) -> str:
    series = chart.series
    left = max(width_of(name) for name, _ in chart.rows) + 12
    room = WIDTH - left - 56
    most = max(value for _, numbers in chart.rows for value in numbers.values())
    most = max(most, 1.0) if chart.one else most
    scale = room / most
    parts = legend(series, left) if len(series) > 1 else []
    top = y = LEGEND * legend_rows(series, left) + 4.0 if len(series) > 1 else 18.0
    for name, numbers in chart.rows:
        height = len(numbers) * (BAR + BAR_GAP) - BAR_GAP
        parts.append(text(left - 8, y + height / 2 + 5, name, anchor="end"))
        for each, value in numbers.items():
            line = LINES[series.index(each) % len(LINES)]
            width = max(1.0, value * scale)
            parts.append(
                element("rect", x=left, y=y, width=width, height=BAR, rx=2, class_=f"bar-{line}")
            )
            parts.append(text(left + width + 6, y + 13, show(value), anchor="start"))
            y += BAR + BAR_GAP
        y += GROUP_GAP - BAR_GAP
    bottom = y - GROUP_GAP + 6
    if chart.one:
        x = left + scale
        rule = element(
            "path", d=f"M{x:.1f} {top - 6:.1f}V{bottom:.1f}", class_="arrow", stroke_dasharray="4 3"
        )
        parts.append(rule)
        x = min(x, WIDTH - width_of(chart.one) / 2 - 16)
        parts.append(text(x, bottom + 14, f"1: {chart.one}", "faint"))
        bottom += 16
    x = max(0.0, min(left, WIDTH - width_of(chart.label)))
    parts.append(text(x, bottom + 18, chart.label, "faint", "start"))
    return drawing(WIDTH, bottom + 26, "".join(parts), alt, style)


def curves(chart: Chart, alt: str, style: str) -> str:
    """Both axes are logarithmic."""
    left, right, top = 52, 180, 12
    sizes = [int(size) for size, _ in chart.rows]
    values = [value for _, numbers in chart.rows for value in numbers.values()]
    # What is slower than a tenth of a GB/s is latency, for which the table is better.
    low, high = max(-2, math.floor(math.log10(min(values)))), math.ceil(math.log10(max(values)))
    span = WIDTH - left - right

    def x_of(size: int) -> float:
        first, last = math.log2(sizes[0]), math.log2(sizes[-1])
        return left + span * (math.log2(size) - first) / (last - first)

    def y_of(value: float) -> float:
        part = (max(math.log10(value), low) - low) / (high - low)
        return top + HEIGHT * (1 - part)

    parts = []
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        parts.append(element("path", d=f"M{left} {y:.1f}h{span}", class_="rule"))
        parts.append(text(left - 8, y + 4, number_of(power), "faint", "end"))
    for size in ticks(sizes):
        parts.append(text(x_of(size), top + HEIGHT + 18, bytes_of(size), "faint"))
    labels = []
    for place, name in enumerate(chart.series):
        points = [(int(size), numbers[name]) for size, numbers in chart.rows if name in numbers]
        path = "L".join(f"{x_of(size):.1f} {y_of(value):.1f}" for size, value in points)
        line = LINES[place % len(LINES)]
        parts.append(
            element(
                "path",
                d=f"M{path}",
                class_=f"stroke-{line}",
                stroke_width=2,
                stroke_dasharray=DASHES[place % len(DASHES)],
            )
        )
        labels.append((y_of(points[-1][1]), x_of(points[-1][0]), name, line, place))
    parts += at_their_ends(labels, left + span)
    parts.append(
        text(left, top + HEIGHT + 40, f"{chart.label}; by bytes of the tensor", "faint", "start")
    )
    return drawing(WIDTH, top + HEIGHT + 48, "".join(parts), alt, style)


def at_their_ends(labels: list[tuple[float, float, str, str, int]], edge: float) -> list[str]:
    """Names beside the ends of their curves, moved apart where they would overlap."""
    parts: list[str] = []
    y = -math.inf
    for wanted, x, name, line, place in sorted(labels):
        y = max(wanted, y + 16)
        parts.append(
            element(
                "path",
                d=f"M{x + 3:.1f} {wanted:.1f}L{edge + 12:.1f} {y:.1f}h14",
                class_=f"stroke-{line}",
                stroke_dasharray=DASHES[place % len(DASHES)],
            )
        )
        parts.append(text(edge + 30, y + 4, name, anchor="start"))
    return parts


def ticks(sizes: list[int]) -> list[int]:
    """Every third size, or all where they are few."""
    return sizes if len(sizes) < 6 else sizes[::3]


def legend_places(series: list[str], left: float) -> list[tuple[float, int]]:
    places, x, row = [], 0.0, 0
    for name in series:
        wide = 20 + width_of(name) + 18
        if x and left + x + wide > WIDTH:
            x, row = 0.0, row + 1
        places.append((left + x, row))
        x += wide
    return places


def legend_rows(series: list[str], left: float) -> int:
    return legend_places(series, left)[-1][1] + 1


def legend(series: list[str], left: float) -> list[str]:
    parts = []
    for place, (x, row) in enumerate(legend_places(series, left)):
        line, y = LINES[place % len(LINES)], row * LEGEND + 2
        parts.append(element("rect", x=x, y=y, width=13, height=13, rx=2, class_=f"bar-{line}"))
        parts.append(text(x + 19, y + 11, series[place], anchor="start"))
    return parts


def number_of(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else number_text(10.0**power)


def number_text(value: float) -> str:
    return f"{value:.10f}".rstrip("0")


def bytes_of(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{number(size / unit)} {name}"
    return f"{size} B"


def table(chart: Chart) -> str:
    """The numbers as HTML, for who cannot or need not see the drawing."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ["", *chart.series])
    lines = []
    for name, numbers in chart.rows:
        title = bytes_of(int(name)) if chart.curves else name
        cells = "".join(
            f"<td>{show(numbers[each]) if each in numbers else ''}</td>" for each in chart.series
        )
        lines.append(f'<tr><th scope="row">{escape(title)}</th>{cells}</tr>')
    return (
        f'<div class="table-wrapper"><table class="docutils"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
