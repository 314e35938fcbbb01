"""Packages that only some nets need."""

from __future__ import annotations

import importlib
from typing import Any

from sirtaki_caffe.errors import CaffeError

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
