"""The formats in which float32 numbers are sent, by the core's numbers."""

from __future__ import annotations

from typing import Final

from sirtaki._core import CODECS, REDUCTIONS, feed_back, has_coded_reduction

__all__ = ["NONE", "NUMBERS", "REDUCED", "feed_back"]

NUMBERS: Final = CODECS
NONE: Final = CODECS["none"]
# The supported pairs of a codec and a reduction.
REDUCED: Final = frozenset(
    (codec, op)
    for codec in CODECS.values()
    for op in REDUCTIONS.values()
    if has_coded_reduction(codec, op)
)
