"""The place of this process's main thread, for the report of a hang."""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

_MOST_FRAMES = 60
_MOST_TEXT = 200
# The numbers of system calls that a thread sleeps in, by what it waits for.
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
# Calls that may wait for descriptors and for nothing but time, such as `time.sleep` of Python 3.10,
# and which of their arguments is the number of descriptors.
_COUNTED = {"x86_64": {7: 1, 23: 0, 270: 0, 271: 1}, "aarch64": {72: 0, 73: 1}}
# The index, in a frame of `place`, of the flag for the user's own code.
_OWN = 4
_DEBUGGERS = ("pdb.py", "bdb.py", "debugpy", "pydevd")


def place() -> dict[str, object]:
    """Return where the main thread is.

    Returns:
        ``stack``: for each frame, innermost first, its file, line, function, source text, and
        whether it is the user's own code; ``handles``: the exception being handled, or "";
        ``debugger``: the one that the thread is in, or ""; ``call``: its wait in the kernel:
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


class OwnLine:
    """Finds the main thread's line in the user's code, at a few microseconds per call."""

    def __init__(self) -> None:
        self._thread = threading.main_thread().ident or 0
        self._others = _folders_of_others()

    def now(self) -> str:
        """Return the line in the format of `own_line`."""
        at = sys._current_frames().get(self._thread)
        while at is not None and not _is_own(at.f_code.co_filename, self._others):
            at = at.f_back
        return "" if at is None else _line(*_described(at))


def own_line(stack: Sequence[Sequence[object]]) -> str:
    """Return the innermost line of the user's own code, such as `train.py:9 in load: read()`.

    Args:
        stack: As `place` returns it.

    Returns:
        "" if none of it is the user's.
    """
    own = next((frame for frame in stack if frame[_OWN]), None)
    return "" if own is None else _line(*own[:_OWN])


def _line(file: object, line: object, function: object, text: object) -> str:
    return f"{Path(str(file)).name}:{line} in {function}" + (f": {text}" if text else "")


def _described(frame: FrameType) -> tuple[str, int, str, str]:
    code, line = frame.f_code, frame.f_lineno
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()[:_MOST_TEXT]
    return code.co_filename, line, code.co_name, text


def _stack(frame: FrameType) -> list[list[object]]:
    found: list[list[object]] = []
    others = _folders_of_others()
    at: FrameType | None = frame
    while at is not None and len(found) < _MOST_FRAMES:
        found.append([*_described(at), _is_own(at.f_code.co_filename, others)])
        at = at.f_back
    return found


def _folders_of_others() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parents[1])}
    return tuple(f"{folder}{os.sep}" for folder in found)


def _is_own(file: str, others: tuple[str, ...]) -> bool:
    return not file.startswith((*others, "<frozen"))


def _handled(thread: int) -> str:
    """Return the exception that an `except` clause of the thread is handling."""
    now = sys._current_exceptions().get(thread)
    error = now[1] if isinstance(now, tuple) else now
    if error is None:
        return ""
    return f"{type(error).__name__}: {error}".split("\n")[0][:_MOST_TEXT].removesuffix(": ")


def _debugger(file: str) -> str:
    return next((name for name in _DEBUGGERS if name in file), "").removesuffix(".py")


def _call() -> str:
    """Return what the main thread waits for in the kernel."""
    try:
        words = Path(f"/proc/self/task/{os.getpid()}/syscall").read_text().split()
        number, *arguments = int(words[0]), *(int(word, 16) for word in words[1:3])
    except (OSError, ValueError, IndexError):
        return ""
    machine = os.uname().machine
    if number == _READ.get(machine) and arguments[0] == 0:
        return "input"
    count = _COUNTED.get(machine, {}).get(number)
    if count is not None and arguments[count] == 0:
        return "sleep"
    calls = _CALLS.get(machine, {})
    return next((name for name, numbers in calls.items() if number in numbers), "")
