"""Running programs with the shared heap preloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from sirtaki.core.world.shared_heap import LIBRARY
from tests.single.launching import LIMIT

_OURS = ("LD_PRELOAD", "SIRTAKI_", "HOROVOD_", "MALLOC_", "GLIBC_TUNABLES")
# What programs begin with: the C library's functions, and what is where.
_PRELUDE = """
import ctypes, os, sys
from sirtaki import _core
libc = ctypes.CDLL(None, use_errno=True)
P, N = ctypes.c_void_p, ctypes.c_size_t
MIB = 1 << 20
def function(name, result, *arguments):
    found = getattr(libc, name)
    found.restype, found.argtypes = result, arguments
    return found
malloc = function("malloc", P, N)
calloc = function("calloc", P, N, N)
realloc = function("realloc", P, P, N)
reallocarray = function("reallocarray", P, P, N, N)
posix_memalign = function("posix_memalign", ctypes.c_int, ctypes.POINTER(P), N, N)
aligned_alloc = function("aligned_alloc", P, N, N)
memalign = function("memalign", P, N, N)
valloc = function("valloc", P, N)
usable = function("malloc_usable_size", N, P)
free = function("free", None, P)
def data(bytes):
    return aligned_alloc(64, bytes)
def shared(address):
    return _core.heap_holds(address, 1)
def figures():
    return _core.heap_figures()
"""


def run_heap(
    code: str,
    preload: str = str(LIBRARY),
    prepare: Callable[[], None] | None = None,
    **variables: str,
) -> str:
    """Run a program with the heap preloaded; return what it printed. It must end well.

    prepare: called in the new process before the program. variables: more of its environment.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + code],
        env={**kept, "OMP_NUM_THREADS": "1", "LD_PRELOAD": preload, **variables},
        preexec_fn=prepare,
        capture_output=True,
        text=True,
        timeout=LIMIT * 2,
        check=False,
    )
    assert done.stderr == "", done.stderr
    assert done.returncode == 0
    return done.stdout.strip()
