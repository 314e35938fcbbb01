"""The processes of this host as the kernel tells of them, and the workers among them.

Imports no more than the guardian does; see there.
"""

from __future__ import annotations

import ctypes
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    import _signal as signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
BEAT_BYTES = 8
_CHECKPOINT_AT, _CHECKPOINT_BYTES = 16, 4096
# How often workers are looked at that may not be stopped for long; more often for a short time.
LOOK_SECONDS = 0.5


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def adopt_orphans() -> None:
    """Become the parent of what processes below this one leave behind."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the thread ends that has started this process."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stat(pid: int | str) -> tuple[bytes, int]:
    """The kernel's letter for what a process does, nothing when it is gone, and its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # The command in parentheses may itself contain any character.
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return b"", 0
    return state, int(parent)


def _below(root: int, ends: Callable[[int], bool]) -> list[int]:
    """The processes from `root` down, none below one that ends the search; zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - without importing pathlib
        if entry.isdigit():
            state, parent = _stat(entry)
            if state not in (b"Z", b""):
                children.setdefault(parent, []).append(int(entry))
    found: list[int] = [root]
    for pid in found:
        if not ends(pid):
            found += children.get(pid, [])
    return found


def descendants(root: int) -> list[int]:
    """All processes below `root`, zombies left out."""
    return _below(root, lambda _: False)[1:]


def pass_on(number: int, root: int) -> None:
    """Send a signal to the outermost processes from `root` down that await it, else to `root`.

    A shell around a script would die of what the script awaits, and the helpers that a script has
    started inherit its handlers.
    """
    found: list[int] = []

    def takes(pid: int) -> bool:
        if awaits(pid, number, (b"SigCgt:", b"SigBlk:")):
            found.append(pid)
        return pid in found

    _below(root, takes)
    for pid in found or [root]:
        send(os.kill, pid, number)


class Tolerate:
    """What `contextlib.suppress` is, whose module costs each start 3 ms."""

    def __init__(self, *errors: type[OSError]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


def send(kill: Callable[[int, int], None], target: int, number: int) -> None:
    """Signal a process or, with `os.killpg`, a group, unless it is gone or another user's."""
    with Tolerate(ProcessLookupError, PermissionError):
        kill(target, number)


class Worker:
    """A running worker. heartbeat: see `sirtaki.core.heartbeat`; None where nobody minds."""

    def __init__(self, rank: int, heartbeat: int | None) -> None:
        self.rank = rank
        self.heartbeat = heartbeat
        self._beat = bytes(BEAT_BYTES)
        self.silent = 0.0

    def look(self, pid: int, passed: float) -> None:
        """Count for how long it has been stopped or its engine silent."""
        beat = bytes(BEAT_BYTES)
        if self.heartbeat is not None:
            beat = os.pread(self.heartbeat, BEAT_BYTES, 0)
        beats = beat != self._beat or not any(beat)
        self._beat = beat
        self.silent = 0.0 if beats and _stat(pid)[0] != b"T" else self.silent + passed

    def mark_ending(self) -> None:
        """Let it know that the signal it gets is to end it."""
        if self.heartbeat is not None:
            os.pwrite(self.heartbeat, b"\1", BEAT_BYTES)

    def checkpoint(self) -> str:
        """Return what it has noted of its last checkpoint, "" for nothing."""
        if self.heartbeat is None:
            return ""
        return os.pread(self.heartbeat, _CHECKPOINT_BYTES, _CHECKPOINT_AT).decode(errors="replace")

    def forget(self) -> None:
        """It has ended."""
        if self.heartbeat is not None:
            os.close(self.heartbeat)


def tell_everybody(text: str) -> None:
    """Say something to who still reads our errors, and to the system's log."""
    import syslog

    syslog.openlog("sirtaki", syslog.LOG_PID)
    syslog.syslog(syslog.LOG_ERR, text)
    errors = select.poll()
    errors.register(2, select.POLLOUT)
    # Where nobody reads them any more they must not hold us up.
    if errors.poll(0):
        with Tolerate(OSError):
            os.write(2, f"sirtaki: {text}\n".encode())


def is_traced(root: int) -> bool:
    """Whether a debugger holds a process, or one below it."""
    return any(_stat(pid)[0] == b"t" for pid in (root, *descendants(root)))


def awaits(pid: int, number: int, masks: tuple[bytes, ...]) -> bool:
    """Whether a signal is in one of a process's masks: SigCgt: has a handler, SigBlk: blocked."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            lines = file.read().splitlines()
    except OSError:
        return False
    found = [int(line[7:], 16) for line in lines if line.startswith(masks)]
    return any(mask >> (number - 1) & 1 for mask in found)
