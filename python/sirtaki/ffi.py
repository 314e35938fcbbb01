"""The engine's operations for libraries in other languages; see cpp/ffi/sirtaki.h.

A library receives the address of a function table from Python by any route, and finds the world of
``init()`` through it. It needs no linking and no Python of its own.
"""

from __future__ import annotations

from pathlib import Path

from sirtaki import _core


def address() -> int:
    """Return the address of the `sirtaki_table`, for `ctypes` (as a ``c_void_p``)."""
    return _core.ffi_address()


def capsule() -> object:
    """Return the table as a ``PyCapsule`` with the name ``sirtaki.ffi``."""
    return _core.ffi_capsule()


def include_folder() -> str:
    """Return the folder of ``sirtaki.h``, for a compiler's ``-I``."""
    return str(Path(__file__).with_name("include"))
