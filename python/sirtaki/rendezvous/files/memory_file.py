"""Memory files and their seals, even if Python was built with an older C library.

Such a Python lacks `os.memfd_create`, although the kernel and the C library at run time have it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket

with contextlib.suppress(ImportError):  # a world of one rank needs none of this
    import fcntl

# Linux's numbers, because the modules of such a Python lack the names.
SEAL, SHRINK, GROW, WRITE = 1, 2, 4, 8
_ADD_SEALS, _GET_SEALS = 1033, 1034
_CLOSE_ON_EXEC, _ALLOW_SEALING = 1, 2
_SYSCALLS = {
    "x86_64": 319,
    "aarch64": 279,
    "riscv64": 279,
    "loongarch64": 279,
    "ppc64le": 360,
    "s390x": 350,
}


def create(name: str, sealable: bool = False) -> int:
    """Create an empty memory file that is closed on exec.

    Args:
        name: Shown in /proc; need not be unique.
        sealable: Whether `add_seals` may be called.

    Returns:
        Its descriptor, which the caller closes.

    Raises:
        OSError: The kernel cannot create it.
    """
    flags = _CLOSE_ON_EXEC | (_ALLOW_SEALING if sealable else 0)
    try:
        if hasattr(os, "memfd_create"):
            return os.memfd_create(name, flags)
        return _by_c_library(name.encode(), flags)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        raise OSError(
            errno.ENOSYS,
            f"the kernel of {socket.gethostname()} ({os.uname().release}) makes no files in memory "
            "(memfd_create), by which ranks share data: use Linux 3.17 or newer",
        ) from None


def add_seals(file: int, seals: int) -> None:
    """Add permanent seals, such as `SHRINK | GROW`. Raises OSError."""
    fcntl.fcntl(file, _ADD_SEALS, seals)


def seals_of(file: int) -> int:
    """Return the seals of a file. Raises OSError for one that cannot have any."""
    return fcntl.fcntl(file, _GET_SEALS)


def _by_c_library(name: bytes, flags: int) -> int:
    # Here, because hardly any process needs it.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "memfd_create", None)
    if function is not None:
        file = function(name, ctypes.c_uint(flags))
    else:
        number = _SYSCALLS.get(os.uname().machine)
        if number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        file = library.syscall(ctypes.c_long(number), name, ctypes.c_uint(flags))
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(file)
