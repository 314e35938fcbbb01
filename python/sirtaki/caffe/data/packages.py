"""Packages that only some nets need."""

from __future__ import annotations

import importlib
from typing import Any

from sirtaki.caffe.errors import CaffeError


def needed(module: str, extra: str) -> Any:
    """A module that is imported when first needed.

    Args:
        module: Its name.
        extra: The extra of the package `sirtaki` that installs it.

    Raises:
        CaffeError: It is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CaffeError(
            f"the package {module.partition('.')[0]} is needed: pip install 'sirtaki[{extra}]' "
            f"({error})"
        ) from error
