"""How launcher and ranks read words and write numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

_TRUE = frozenset(("1", "true", "yes", "on"))
_FALSE = frozenset(("0", "false", "no", "off"))


def truth(text: str) -> bool | None:
    """Return what a word says, in any case; None when it is no such word."""
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def heap_mode(text: str) -> str | None:
    """Return what SIRTAKI_SHARED_HEAP says: ``on``, ``off``, ``auto``, or None for nothing.

    Raises:
        ValueError: It says something else.
    """
    word = text.strip().lower()
    said = truth(word)
    if said is None and word not in ("", "auto"):
        raise ValueError(f"SIRTAKI_SHARED_HEAP={text!r} must be 1, 0 or auto")
    return (word or None) if said is None else "on" if said else "off"


def write_numbers(numbers: Iterable[int]) -> str:
    """Write numbers in their order, and consecutive ones as a range: "0-3,8"."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
