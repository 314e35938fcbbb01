"""Packages that only some nets need."""

from __future__ import annotations

import importlib
from typing import Any

from sirtaki_caffe.errors import CaffeError

# What pip calls packages of another name.
_DISTRIBUTIONS = {"PIL": "pillow"}


def needed(module: str) -> Any:
    """A module that is imported when first needed.

    Args:
        module: Its name.

    Raises:
        CaffeError: It is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CaffeError(
            f"the package {package} is needed: pip install "
            f"{_DISTRIBUTIONS.get(package, package)} ({error})"
        ) from error
