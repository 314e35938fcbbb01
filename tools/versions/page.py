"""The page of what was tried: rows that a new result replaces."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

_HEAD = "| Package | Version | Python | Tests at two ranks | Date |\n|---|---|---|---|---|\n"
_ROW = re.compile(r"^\| ([^|]+) \| (\d[^|]*) \| (\d\.\d+) \| ([^|]+) \| ([\d-]+) \|$")
_LACKING = re.compile(r"^- (Python \d\.\d+: |Only the pinned version was run: ).*\n", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """What became of a version of a package on a Python."""

    title: str
    version: str
    python: str
    result: str
    date: str

    def line(self) -> str:
        """Return the row as the page has it."""
        cells = (self.title, self.version, self.python, self.result, self.date)
        return f"| {' | '.join(cells)} |\n"

    def place(self) -> tuple[object, ...]:
        """Return what rows of a package are sorted by and told apart by."""
        return _numbers(self.version), self.version, _numbers(self.python)


def updated(page: str, results: Iterable[Row], titles: list[str], pythons: list[str]) -> str:
    """Return the page with results in it.

    Args:
        page: Its text.
        results: The new rows, which replace those of the same package, version and Python.
        titles: The packages in their order; the page says which of them no row has.
        pythons: All that the package supports; the page says which of them no row has.
    """
    before, head, table = page.partition(_HEAD)
    if not head:
        raise ValueError("the page has no table of versions")
    lines = table.splitlines(keepends=True)
    old = list(itertools.takewhile(lambda line: line.startswith("|"), lines))
    rows = {
        (row.title, row.place()): row
        for row in (*(Row(*_cells(line.rstrip())) for line in old), *results)
    }
    order = sorted(rows, key=lambda key: (titles.index(key[0]), key[1]))
    new = "".join(rows[key].line() for key in order)
    tried = {row.python for row in rows.values()}
    lacking = "".join(
        f"- Python {python}: the machine of the tests has none.\n"
        for python in pythons
        if python not in tried
    )
    if missing := [
        title for title in dict.fromkeys(titles) if all(title != r.title for r in rows.values())
    ]:
        lacking += f"- Only the pinned version was run: {', '.join(missing)}.\n"
    start, heading, rest = "".join(lines[len(old) :]).partition("## Not tried\n\n")
    return f"{before}{head}{new}{start}{heading}{lacking}{_LACKING.sub('', rest)}"


def _cells(line: str) -> tuple[str, ...]:
    found = _ROW.match(line)
    if found is None:
        raise ValueError(f"no row of the table of versions: {line}")
    return found.groups()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
