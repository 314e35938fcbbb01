"""The stacks that `faulthandler` writes for a process that cannot run Python."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from sirtaki.questions.asking import NoAnswer
from sirtaki.questions.kernel import has_signal
from sirtaki.rendezvous.host.presence import Presence, own_namespace

# The line before the main thread's stack, if that comes first.
_MAIN = "Main thread (most recent call first):"
_LEFT_OUT = "..."
_DUMP_SECONDS = 2.0
# The limit for a dump that keeps growing.
_MOST_DUMP_SECONDS = 10.0
_DUMP_PAUSE = 0.02
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def dump(rank: Presence) -> str:
    """Return the stacks that a process writes on a signal, which needs no lock.

    The main thread's stack comes first, below `_MAIN`, if it could be distinguished.

    Raises:
        NoAnswer: It does not handle the signal, or has not written anything.
    """
    record = rank.record
    if record.namespace != own_namespace():
        raise NoAnswer("runs in another container, where no signal can be sent from here")
    if not record.signal or not has_signal(record.pid, "SigCgt", record.signal):
        raise NoAnswer("awaits no signal for its stacks (SIRTAKI_STACKS_SIGNAL)")
    # A signal that the main thread blocks would be delivered to another one.
    pid, single = record.pid, record.main_signal
    can = single and has_signal(pid, "SigCgt", single) and not has_signal(pid, "SigBlk", single)
    try:
        with Path(record.stacks).open(errors="replace") as file:
            file.seek(0, os.SEEK_END)
            main = _written(file, pid, single).partition("\n")[2] if can else ""
            return (f"{_MAIN}\n{main}\n" if main else "") + _written(file, pid, record.signal)
    except OSError as error:
        raise NoAnswer(f"its stacks cannot be read: {error}") from None


def _written(file: IO[str], pid: int, number: int) -> str:
    """Return what a process writes on a signal."""
    blocked = set(_blocking(pid, number))
    os.kill(pid, number)
    begun = grew = time.monotonic()
    text = ""
    while time.monotonic() < min(grew + _DUMP_SECONDS, begun + _MOST_DUMP_SECONDS):
        time.sleep(_DUMP_PAUSE)
        ended = text and blocked.issuperset(_blocking(pid, number))
        if more := file.read():
            text, grew = text + more, time.monotonic()
        elif ended:
            return text
    if not text:
        raise NoAnswer("wrote no stacks when signalled: it is in the kernel")
    return text


def _blocking(pid: int, number: int) -> Iterator[str]:
    """Yield the threads that block a signal, as one does while it writes its stacks."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if has_signal(f"{pid}/task/{thread.name}", "SigBlk", number):
                yield thread.name


def main_stack(text: str) -> list[list[object]]:
    """Return the frames of the main thread, innermost first, in the format of `questions.place`.

    Args:
        text: The dump: the main thread below `_MAIN`, then all threads from the newest to the
            main one, at most 100.

    Returns:
        An empty list if the main thread is not among them.
    """
    parts = re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)
    first, last = parts[0], parts[-1]
    if not first.startswith(_MAIN) and last.rstrip().endswith(_LEFT_OUT):
        return []
    main = first if first.startswith(_MAIN) else last
    return [
        [file, int(line), name, "", _seems_own(file)] for file, line, name in _FRAME.findall(main)
    ]


def _seems_own(file: str) -> bool:
    """Return whether a file looks like the user's own, as its library folders are unknown."""
    return not re.search(r"/site-packages/|/dist-packages/|/lib/python3\.\d+/|^<frozen", file)
