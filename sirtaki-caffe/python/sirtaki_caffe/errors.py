"""Errors of Caffe's files and nets."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CaffeError(RuntimeError):
    """A file or a net that cannot be used; the message names the file and line, or the layer."""


class BlobError(CaffeError, ValueError):
    """A BlobProto whose numbers do not fill its shape; a ValueError as in pycaffe."""


class FieldError(CaffeError):
    """A field of a solver with an invalid value.

    Args:
        field: The name of the field.
        text: The message, which names the field.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class LayerError(CaffeError):
    """A layer that cannot be built or run.

    Args:
        layer: The name of the layer.
        kind: The type of the layer, for example `Convolution`.
        why: The problem and its remedy, in one sentence.
    """

    def __init__(self, layer: str, kind: str, why: str) -> None:
        super().__init__(f"layer '{layer}' ({kind}): {why}")
        self.layer = layer
        self.kind = kind


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of a message, "; did you mean 'ReLU'?", or "" without a similar name."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean '{by_lower[near[0]]}'?" if near else ""
