"""What ranks hold before and after a step, drawn from a table of text.

           | before   | after
    rank 0 | a0 a1    | a0+b0
    rank 1 | b0 b1    | a1+b1

A letter chooses the colour of a cell, a sum has one of its own, and `.` is an empty cell.
"""

from __future__ import annotations

from tools.figures.svg import drawing, element, rectangle, text, width_of

ROW, GAP, CELL, PAD, TOP = 34, 34, 26, 10, 26


def fill_of(cell: str) -> str:
    if cell == ".":
        return "plain"
    if "+" in cell or cell[0] in "Σ":
        return "sum"
    return cell[0].lower() if cell[0].lower() in "abcd" else "plain"


def read(source: str) -> tuple[list[str], list[tuple[str, list[list[str]]]]]:
    """The headings, that of the names first, and each row's name and cells by column."""
    lines = [line.split("|") for line in source.strip("\n").splitlines() if line.strip()]
    if len(lines) < 2 or len({len(line) for line in lines}) != 1:
        raise ValueError("an exchange has a line of headings, and rows of as many columns")
    headings = [part.strip() for part in lines[0]]
    rows = [(line[0].strip(), [part.split() for part in line[1:]]) for line in lines[1:]]
    return headings, rows


def draw(source: str, alt: str) -> str:
    headings, rows = read(source)
    title, *headings = headings
    names = max(width_of(name) for name in [title, *(name for name, _ in rows)]) + PAD
    parts = []
    left = names + PAD
    for column, heading in enumerate(headings):
        cells = [row[1][column] for row in rows]
        width = max([CELL, *(width_of(cell) + PAD for row in cells for cell in row)])
        count = max(map(len, cells))
        whole = max(width * count, width_of(heading))
        if column:
            middle = TOP + ROW * len(rows) / 2
            parts.append(arrow(left - GAP + 6, left - 8, middle))
        parts.append(text(left + whole / 2, 16, heading, "faint"))
        for index, row in enumerate(cells):
            top = TOP + ROW * index
            for place, cell in enumerate(row):
                x = left + (whole - width * count) / 2 + place * width
                parts.append(rectangle(x, top, width - 2, CELL, f"fill-{fill_of(cell)}"))
                if cell != ".":
                    parts.append(text(x + width / 2 - 1, top + 18, cell))
        left += whole + GAP
    parts.append(text(0, 16, title, "faint", "start"))
    for index, (name, _) in enumerate(rows):
        parts.append(text(0, TOP + ROW * index + 18, name, "strong", "start"))
    return drawing(left - GAP + 2, TOP + ROW * len(rows), "".join(parts), alt)


def arrow(x: float, end: float, y: float) -> str:
    return element("path", d=f"M{x:.0f} {y:.0f}H{end - 5:.0f}", class_="arrow") + element(
        "path", d=f"M{end - 7:.0f} {y - 4:.0f}l7 4l-7 4z", class_="head"
    )
