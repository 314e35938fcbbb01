"""The handler that XLA calls for every collective of a compiled program."""

from __future__ import annotations

import ctypes
from pathlib import Path

import jax

import sirtaki
from sirtaki import ffi

TARGET = "sirtaki_collective"


def register() -> None:
    """Give the library the engine's functions, and XLA the library's handler."""
    folder = Path(sirtaki.__file__).parent
    library = ctypes.CDLL(str(folder / "libsirtaki_jax.so"))
    library.sirtaki_jax_connect.argtypes = [ctypes.c_void_p]
    library.sirtaki_jax_connect.restype = ctypes.c_char_p
    wrong = library.sirtaki_jax_connect(ffi.address()).decode()
    if wrong:
        raise ImportError(f"{library._name} does not fit to this sirtaki: {wrong}; install it anew")
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.sirtaki_collective), "cpu")
