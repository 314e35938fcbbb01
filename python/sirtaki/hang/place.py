"""Where the main thread of this process is, for the report of a hang."""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
import threading
from pathlib import Path
from types import FrameType

_MOST_FRAMES = 60
_MOST_TEXT = 200
# The numbers of the system calls that a thread sleeps in, by what it waits for there.
_READ = {"x86_64": 0, "aarch64": 63}
_CALLS = {
    "x86_64": {
        "read": (0, 7, 23, 45, 47, 232, 270, 271, 281),
        "lock": (202,),
        "child": (61, 247),
        "file lock": (72, 73),
        "sleep": (35, 230),
    },
    "aarch64": {
        "read": (63, 22, 72, 73, 207, 212),
        "lock": (98,),
        "child": (95, 260),
        "file lock": (25, 32),
        "sleep": (101, 115),
    },
}
_DEBUGGERS = ("pdb.py", "bdb.py", "debugpy", "pydevd")


def place() -> dict[str, object]:
    """Return where the main thread is.

    Returns:
        ``stack``: of each frame, innermost first, its file, line, function, source text, and
        whether it is the user's own code; ``handles``: the exception that is being handled, or "";
        ``debugger``: which one the thread is in, or ""; ``call``: what it waits for in the kernel:
        "input" (a line on standard input), "read" (data, of a file or the network), "lock" (a lock
        or another thread), "child" (another process), "file lock", "sleep", or "".
    """
    thread = threading.main_thread().ident or 0
    frame = sys._current_frames().get(thread)
    stack = [] if frame is None else _stack(frame)
    return {
        "stack": stack,
        "handles": _handled(thread),
        "debugger": next((name for each in stack if (name := _debugger(str(each[0])))), ""),
        "call": _call(),
    }


def _stack(frame: FrameType) -> list[list[object]]:
    found: list[list[object]] = []
    others = _folders_of_others()
    at: FrameType | None = frame
    while at is not None and len(found) < _MOST_FRAMES:
        file, line = at.f_code.co_filename, at.f_lineno
        text = linecache.getline(file, line, at.f_globals).strip()[:_MOST_TEXT]
        found.append([file, line, at.f_code.co_name, text, _is_own(file, others)])
        at = at.f_back
    return found


def _folders_of_others() -> tuple[str, ...]:
    """The standard library, and what is installed beside it."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parents[1])}
    return tuple(f"{folder}{os.sep}" for folder in found)


def _is_own(file: str, others: tuple[str, ...]) -> bool:
    return not file.startswith((*others, "<frozen"))


def _handled(thread: int) -> str:
    """What an `except` clause of the thread is dealing with right now."""
    now = sys._current_exceptions().get(thread)
    error = now[1] if isinstance(now, tuple) else now
    if error is None:
        return ""
    return f"{type(error).__name__}: {error}".split("\n")[0][:_MOST_TEXT].removesuffix(": ")


def _debugger(file: str) -> str:
    return next((name for name in _DEBUGGERS if name in file), "").removesuffix(".py")


def _call() -> str:
    """What the kernel has the main thread wait for."""
    try:
        words = Path(f"/proc/self/task/{os.getpid()}/syscall").read_text().split()
        number, first = int(words[0]), int(words[1], 16)
    except (OSError, ValueError, IndexError):
        return ""
    machine = os.uname().machine
    if number == _READ.get(machine) and first == 0:
        return "input"
    calls = _CALLS.get(machine, {})
    return next((name for name, numbers in calls.items() if number in numbers), "")
