"""Horovod's names for Sirtaki: `horovod.X` is `sirtaki.X`, the same module under another name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from horovod import _alias
from sirtaki.interface import HOROVOD_VERSION

if TYPE_CHECKING:
    from horovod.runner import run

__version__ = HOROVOD_VERSION

__all__ = ["__version__", "run"]

_alias.install(sys.meta_path)


def __getattr__(name: str) -> object:
    if name == "run":
        from horovod.runner import run

        return run
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
