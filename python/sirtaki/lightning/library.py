"""Lightning under either of its names; a program uses one."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

# Trainers of pytorch_lightning accept strategies from that package only.
_SEPARATE = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules


def trainer_module(name: str) -> ModuleType:
    """Import a module of Lightning's trainer, such as `strategies`."""
    return _import("pytorch_lightning" if _SEPARATE else "lightning.pytorch", name)


def fabric_module(name: str) -> ModuleType:
    """Import a module of Fabric, such as `strategies`."""
    return _import("lightning_fabric" if _SEPARATE else "lightning.fabric", name)


def _import(package: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"sirtaki.lightning needs Lightning, and there is no {error.name}: "
            "pip install 'sirtaki[lightning]'",
            name=error.name,
        ) from None
