"""Horovod's names for Sirtaki: `horovod.X` is the same module as `sirtaki.X`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from horovod import _alias
from sirtaki.interface import HOROVOD_VERSION, second_owner_of_horovod

if TYPE_CHECKING:
    from horovod.runner import run

__version__ = HOROVOD_VERSION

__all__ = ["__version__", "run"]

_advice = second_owner_of_horovod(Path(__file__).parents[1])
if _advice is not None:
    warnings.warn(_advice, RuntimeWarning, stacklevel=2)

_alias.install(sys.meta_path)


def __getattr__(name: str) -> object:
    if name == "run":
        from horovod.runner import run

        return run
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
