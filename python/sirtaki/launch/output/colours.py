"""Colours on a terminal."""

from __future__ import annotations

import os
from typing import TextIO

# Neighbours differ; red and yellow mean trouble.
_OF_RANKS = (36, 35, 34, 32, 96, 95, 94, 92)
_OF_FINDINGS = {True: 32, False: 33}


def takes_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal with colours, and its user wants them (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def in_colour_of_rank(rank: int, text: str) -> str:
    """Return the text in the colour of a rank."""
    return _coloured(_OF_RANKS[rank % len(_OF_RANKS)], text)


def in_colour_of_finding(works: bool, text: str) -> str:
    """Return the text in green where something works, in yellow where not."""
    return _coloured(_OF_FINDINGS[works], text)


def _coloured(number: int, text: str) -> str:
    return f"\x1b[{number}m{text}\x1b[0m"
