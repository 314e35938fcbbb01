"""The formats in which float32 numbers are sent, by the core's numbers."""

from __future__ import annotations

from typing import Final

from sirtaki._core import CODECS, REDUCTIONS, feed_back, has_coded_reduction

__all__ = ["FORMATS", "NONE", "REDUCED", "feed_back"]

# What is sent, for users, by the names of the codecs and in the order of their numbers.
FORMATS: Final = CODECS
NONE: Final = 0
# The supported pairs of a codec and a reduction.
REDUCED: Final = frozenset(
    (codec, op)
    for codec in range(len(CODECS))
    for op in REDUCTIONS.values()
    if has_coded_reduction(codec, op)
)
