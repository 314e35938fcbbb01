"""Keeps freed memory in the C library for the next gradients.

By default glibc returns large blocks to the kernel as soon as they are freed. The kernel then
clears new pages for the gradients of every step.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from typing import Any

from sirtaki.core.config import Config

# Constants of <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
_NEVER = -1
_FEW_CPUS = 8
# Of <dlfcn.h>.
_RTLD_DL_SYMENT = 1


class _Symbol(ctypes.Structure):
    """The result of `dladdr`."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _Entry(ctypes.Structure):
    """A row of a file's table of symbols, as `dladdr1` returns it."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("kind", ctypes.c_uint8),
        ("visibility", ctypes.c_uint8),
        ("section", ctypes.c_uint16),
    )


class _Loaded(ctypes.Structure):
    """The beginning of what `dl_iterate_phdr` passes."""

    _fields_ = (("base", ctypes.c_void_p), ("file", ctypes.c_char_p))


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)


def keep(config: Config) -> None:
    """Make the C library keep memory freed from now on, unless there is a reason not to."""
    if why_left_alone(config) is not None:
        return
    library = _c_library()
    # Blocks with mappings of their own are unmapped when freed; the heap holds blocks of any size.
    # A higher M_MMAP_THRESHOLD would do the same, but older versions refuse one above 32 MiB.
    library.mallopt(_M_MMAP_MAX, 0)
    library.mallopt(_M_TRIM_THRESHOLD, _NEVER)
    # Only the first arena keeps everything. The arenas of threads, where XLA and TensorFlow
    # allocate, consist of 64 MiB heaps that are unmapped when empty; larger blocks are mapped
    # despite M_MMAP_MAX. With many threads, separate arenas matter more.
    if len(os.sched_getaffinity(0)) <= _FEW_CPUS:
        library.mallopt(_M_ARENA_MAX, 1)


def why_left_alone(config: Config) -> str | None:
    """Return why `keep` does nothing; None if it acts."""
    if not config.keep_memory:
        return "SIRTAKI_KEEP_MEMORY=0"
    if config.malloc_settings:
        return f"{', '.join(config.malloc_settings)} in the environment"
    return _other_allocator()


@functools.cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@functools.cache
def _other_allocator() -> str | None:
    """Return the allocator that replaces glibc's in this process, as a reason, or None."""
    if sys.platform != "linux":
        return "the C library, which is not glibc"
    library = _c_library()
    if not hasattr(library, "gnu_get_libc_version"):
        return "the C library, which is not glibc"
    allocator = _allocator(library)
    if allocator != _file_with(library, "gnu_get_libc_version"):
        return f"malloc, which is that of {allocator}"
    return None


def _allocator(library: ctypes.CDLL) -> str:
    """Return the file that has this process's `malloc`."""
    found, entry = _symbol(library, "malloc")
    # A program at a fixed address, such as Debian's Python, gives each function that it calls an
    # address of its own; the function is that of the first file that defines it.
    if entry and not entry[0].section:
        for file in _loaded_files(library):
            with contextlib.suppress(OSError, AttributeError):  # the kernel's own has none
                loaded = ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
                if _file_with(loaded, "malloc") == file:
                    return file
    return os.fsdecode(found.file or b"an unknown file")


def _loaded_files(library: ctypes.CDLL) -> list[str]:
    """Return the libraries of this process, in the order in which names are looked up."""
    files: list[str] = []

    def visit(loaded: Any, _size: int, _data: object) -> int:
        files.append(os.fsdecode(loaded[0].file))
        return 0

    library.dl_iterate_phdr(_Visit(visit), None)
    return [file for file in files if file]


def _file_with(library: ctypes.CDLL, function: str) -> str:
    """Return the file of the function to which this name resolves in a library and its needs."""
    return os.fsdecode(_symbol(library, function)[0].file or b"an unknown file")


def _symbol(library: ctypes.CDLL, function: str) -> tuple[_Symbol, Any]:
    """Return where the function is, and its row in the table of that file."""
    found, entry = _Symbol(), ctypes.POINTER(_Entry)()
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p)
    _c_library().dladdr1(address, ctypes.byref(found), ctypes.byref(entry), _RTLD_DL_SYMENT)
    return found, entry
