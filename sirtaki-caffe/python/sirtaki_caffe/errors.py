"""Errors of Caffe's files and nets, and of packages that only some nets need."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any


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


# Packages with another name in pip.
_DISTRIBUTIONS = {"PIL": "pillow"}


def needed(module: str) -> Any:
    """Return a module, imported on first use.

    Args:
        module: The name of the module.

    Raises:
        CaffeError: It is not installed; the message contains the command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CaffeError(
            f"the package {package} is needed: pip install "
            f"{_DISTRIBUTIONS.get(package, package)} ({error})"
        ) from error
