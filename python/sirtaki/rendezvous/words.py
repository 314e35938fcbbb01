"""Parsing of words and JSON, and formatting of numbers and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

_TRUE = frozenset(("1", "true", "yes", "on"))
_FALSE = frozenset(("0", "false", "no", "off"))
_SHARED_HEAP = (
    "SIRTAKI_SHARED_HEAP",
    "HOROVOD_SHARED_HEAP",
    "SIRTAKI_HEAP_KEEP",
    "SIRTAKI_HEAP_SPAN",
)
NO_SHARED_HEAP = (
    "there is no shared heap any more; leave it out, and allocate what the ranks of a host are to "
    "share with sirtaki.empty() or sirtaki.torch.empty()"
)


def truth(text: str) -> bool | None:
    """Return the truth value of a word, in upper or lower case; None for other words."""
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def refuse_shared_heap(environ: Mapping[str, str]) -> None:
    """Raise ValueError if a variable of ``--shared-heap``, a former flag, is set."""
    for name in _SHARED_HEAP:
        if environ.get(name):
            raise ValueError(f"{name}={environ[name]} is refused: {NO_SHARED_HEAP}")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of another process or file. ValueError: it is invalid, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def printable(text: str) -> str:
    """Replace control characters in a line of a file or another process for the terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)


def write_numbers(numbers: Iterable[int]) -> str:
    """Format numbers in their order, with consecutive ones as ranges: "0-3,8"."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def aligned(rows: Sequence[Sequence[str]], left: bool = False) -> list[str]:
    """Return the rows of a table as lines, with columns aligned right, or left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    side = str.ljust if left else str.rjust
    return ["  ".join(map(side, row, widths)).rstrip() for row in rows]
