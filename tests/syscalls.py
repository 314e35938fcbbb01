"""Counts the system calls of a thread of another process, by ptrace: no program is needed."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections import Counter

_SEIZE, _INTERRUPT, _SYSCALL, _DETACH, _INFO = 0x4206, 0x4207, 24, 17, 0x420E
_MARK_SYSCALLS = 1
_SIGTRAP = 5
_ENTRY = 1
_ALL_CHILDREN = 0x40000000
_INFO_BYTES = 88
# Those that a waiting thread makes, by their numbers; we interrupt some, which then start again.
NAMES = {
    "x86_64": {202: "futex", 219: "futex", 24: "sched_yield"},
    "aarch64": {98: "futex", 128: "futex", 124: "sched_yield"},
}


class _Libc:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.restype = ctypes.c_long
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def _ptrace(request: int, thread: int, address: int = 0, data: object = 0) -> int:
    done = int(_Libc.ptrace(request, thread, address, data))
    if done < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return done


def system_calls(thread: int, seconds: float) -> Counter[str]:
    """Return which system calls a thread begins within some seconds, and how often.

    Args:
        thread: Its number; it goes on as before afterwards.
        seconds: How long to look.
    """
    names = NAMES.get(platform.machine(), {})
    found: Counter[str] = Counter()
    info = ctypes.create_string_buffer(_INFO_BYTES)
    _ptrace(_SEIZE, thread, 0, _MARK_SYSCALLS)
    _ptrace(_INTERRUPT, thread)
    until = time.monotonic() + seconds
    while True:
        _, status = os.waitpid(thread, _ALL_CHILDREN)
        if not os.WIFSTOPPED(status):
            raise ProcessLookupError(f"thread {thread} has ended")
        stop, event = os.WSTOPSIG(status), status >> 16
        if stop == _SIGTRAP | 0x80:
            _ptrace(_INFO, thread, _INFO_BYTES, ctypes.addressof(info))
            if info.raw[0] == _ENTRY:
                number = int.from_bytes(info.raw[24:32], "little")
                found[names.get(number, str(number))] += 1
        passed_on = 0 if event or stop in (_SIGTRAP, _SIGTRAP | 0x80) else stop
        if time.monotonic() >= until:
            _ptrace(_DETACH, thread, 0, passed_on)
            return found
        _ptrace(_SYSCALL, thread, 0, passed_on)
