"""Keeps freed memory in the C library for the next gradients.

By default glibc returns large blocks to the kernel as soon as they are freed. The kernel then
clears new pages for the gradients of every step.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

from sirtaki.core.config import Config

# Constants of <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
_NEVER = -1
_FEW_CPUS = 8


class _Symbol(ctypes.Structure):
    """The result of `dladdr`."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


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
    allocator = _file_with(library, "malloc")
    if allocator != _file_with(library, "gnu_get_libc_version"):
        return f"malloc, which is that of {allocator}"
    return None


def _file_with(library: ctypes.CDLL, function: str) -> str:
    """Return the file of the function to which this name resolves in the whole process."""
    found = _Symbol()
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p)
    library.dladdr(address, ctypes.byref(found))
    return os.fsdecode(found.file or b"an unknown file")
