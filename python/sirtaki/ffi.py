"""The engine's operations for libraries in other languages: cpp/ffi/sirtaki.h describes them.

A library is handed the address of a table of functions, by whatever way Python reaches it, and
finds the world of ``init()`` through it. It links nothing and needs no Python of its own.
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
