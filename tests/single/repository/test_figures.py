"""Figures say what their text says, and charts show the numbers of the results."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Tree

import pytest

from tests import needs
from tests.pages import ROOT
from tools.figures import boxes, exchange, plot, svg, terminal
from tools.figures.charts import CHARTS

SPACE = "{http://www.w3.org/2000/svg}"
EXCHANGE = """
sum    | before | after
rank 0 | a      | a+b
rank 1 | .      | a+b
"""


def words(drawn: str) -> list[str]:
    return [each.text or "" for each in Tree.fromstring(drawn).iter(f"{SPACE}text")]


def classes(drawn: str, element: str) -> list[str]:
    return [each.get("class", "") for each in Tree.fromstring(drawn).iter(f"{SPACE}{element}")]


def test_an_exchange_shows_headings_ranks_and_cells() -> None:
    drawn = exchange.draw(EXCHANGE, "what it shows")
    assert sorted(words(drawn)) == sorted(
        ["sum", "before", "after", "rank 0", "rank 1", "a", "a+b", "a+b"]
    )
    assert classes(drawn, "rect") == ["fill-a", "fill-plain", "fill-sum", "fill-sum"]


def test_a_drawing_tells_screen_readers_what_it_shows() -> None:
    root = Tree.fromstring(exchange.draw(EXCHANGE, "a <sum> & more"))
    assert root.get("role") == "img"
    assert root.findtext(f"{SPACE}title") == "a <sum> & more"


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="as many columns"):
        exchange.draw("x | before\nrank 0 | a | b", "")


def test_boxes_are_joined_at_the_sides_that_face_each_other() -> None:
    drawn = boxes.draw('box x 0 0 4 4 a "X|below"\nbox y 8 0 4 4 b Y\narrow x y go', "")
    assert sorted(words(drawn)) == ["X", "Y", "below", "go"]
    (line, _) = Tree.fromstring(drawn).iter(f"{SPACE}path")
    assert line.get("d") == "M40 20L80 20"


@pytest.mark.parametrize("line", ["circle x 0 0 1 1 a X", "box x 0 0 1 1 pink X"])
def test_a_line_that_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not '"):
        boxes.draw(line, "")


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_shows_every_number_and_where_it_comes_from(name: str) -> None:
    chart = CHARTS[name]()
    numbers = [value for _, row in chart.rows for value in row.values()]
    assert numbers
    table = plot.table(chart)
    assert all(f"<td>{plot.show(value)}</td>" in table for value in numbers)
    assert chart.source["command"] in chart.origin
    assert chart.source["machine"]["cpu"] in chart.origin
    drawn = plot.draw(chart, "what it shows")
    assert set(chart.series) <= set(words(drawn)) or len(chart.series) == 1
    if not chart.curves:
        assert {plot.show(value) for value in numbers} <= set(words(drawn))


def test_a_chart_has_lines_for_all_that_is_compared() -> None:
    for name, make in CHARTS.items():
        assert len(make().series) <= len(svg.LINES), name


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted([luminance(one), luminance(other)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [svg.LIGHT, svg.DARK], ids=["light", "dark"])
def test_letters_can_be_read_on_every_fill(theme: dict[str, str]) -> None:
    for fill in (*svg.FILLS, "paper"):
        assert contrast(theme["ink"], theme[fill]) >= 4.5, fill
        assert contrast(theme["faint"], theme[fill]) >= 4.5, fill
    for line in svg.LINES:
        assert contrast(theme[line], theme["paper"]) >= 3, line


def rows(drawn: str) -> list[str]:
    """The lines of the animated terminal; a long one fills several rows."""
    groups = Tree.fromstring(drawn).iter(f"{SPACE}g")
    wrapped = ("\n".join(each.text or "" for each in group) for group in groups)
    return [each.replace(f"\n{terminal.INDENT}", " ") for each in wrapped]


def test_the_terminal_shows_its_lines_in_turn_and_pauses_are_shortened() -> None:
    long = "x " * 60 + "y"
    scenes = [[terminal.Line(0, "$ go"), terminal.Line(9, long)], [terminal.Line(0, "$ on")]]
    drawn = terminal.draw(scenes)
    assert rows(drawn) == ["$ go", long, "$ on"]
    delays = [each.get("style") for each in Tree.fromstring(drawn).iter(f"{SPACE}g")]
    assert delays == [f"animation-delay:{seconds}s" for seconds in ("0.00", "1.50", "3.00")]
    assert "prefers-reduced-motion" in drawn


@pytest.mark.job
@pytest.mark.slow
def test_the_terminal_of_the_readme_shows_what_is_printed_today() -> None:
    needs.package("torch")

    # Others depend on the machine, or on where a process is when another is lost.
    lasting = ("$ sirtaki", "stalled: ", "  likely cause: ", "  more: ", "world ", "process ")

    def kinds(lines: list[str]) -> set[str]:
        shown = (line for line in lines if line.startswith(lasting))
        return {re.sub(r"[0-9a-f]{8}|\d+", "#", line) for line in shown}

    printed = [line.words for scene in terminal.record_all() for line in scene]
    assert len(kinds(printed)) >= len(lasting)
    assert kinds(rows(terminal.FILE.read_text())) == kinds(printed)


# Numbers, but for sizes and rates, which say what was measured.
FIGURE = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)(?! ?(?:[GMK]i?B|[GM]bit|million|bytes))\b")


@pytest.mark.parametrize(
    ("name", "text"),
    re.findall(
        r"^```\{chart\} (\S+)\n:alt: (.*)$",
        (ROOT / "docs/design/benchmarks.md").read_text(),
        re.MULTILINE,
    ),
)
def test_the_text_beside_a_chart_has_its_numbers(name: str, text: str) -> None:
    chart = CHARTS[name]()
    if chart.curves:
        return
    shown = [value for _, numbers in chart.rows for value in numbers.values()]
    cases = " ".join(case for case, _ in chart.rows)
    for figure in FIGURE.findall(text):
        decimals = len(figure.partition(".")[2])
        known = {f"{value:.{decimals}f}" for value in shown}
        assert figure in known or re.search(rf"\b{figure}\b", cases), f"{name}: {figure}"
