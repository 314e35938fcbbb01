"""The processes of this host as the kernel reports them, and the workers among them.

The module imports no more than the guardian does; see there.
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
_SHELLS = (b"sh", b"bash", b"dash", b"ash", b"busybox", b"ksh", b"mksh", b"zsh", b"fish", b"tcsh")
_CHECKPOINT_AT, _CHECKPOINT_BYTES = 16, 4096
# The interval of checks on workers that may not be stopped for long; shorter for short limits.
LOOK_SECONDS = 0.5


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def adopt_orphans() -> None:
    """Become the parent of orphans among the descendants of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stat(pid: int | str) -> tuple[bytes, int]:
    """Return a process's state letter, empty when it is gone, and its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # The command in parentheses may contain any character.
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return b"", 0
    return state, int(parent)


def children_of_all() -> dict[int, list[int]]:
    """Return the children of each process that has any, without zombies."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - without importing pathlib
        if entry.isdigit():
            state, parent = _stat(entry)
            if state not in (b"Z", b""):
                children.setdefault(parent, []).append(int(entry))
    return children


def _below(
    root: int, children: dict[int, list[int]], ends: Callable[[int], bool] = lambda _: False
) -> list[int]:
    """Return the processes from `root` down, but not below one where `ends`."""
    found: list[int] = [root]
    for pid in found:
        if not ends(pid):
            found += children.get(pid, [])
    return found


def descendants(root: int) -> list[int]:
    """Return all processes below `root`, without zombies."""
    return _below(root, children_of_all())[1:]


def pass_on(number: int, root: int) -> None:
    """Send a signal to the outermost processes from `root` down that handle it, else to `root`.

    A shell around a script would die of a signal that the script handles, and the helpers that a
    script has started inherit its handlers.
    """
    found: list[int] = []

    def takes(pid: int) -> bool:
        if awaits(pid, number, (b"SigCgt:", b"SigBlk:")):
            found.append(pid)
        return pid in found

    _below(root, children_of_all(), takes)
    for pid in found or [root]:
        send(os.kill, pid, number)


def asked_first(number: int, root: int, children: dict[int, list[int]]) -> tuple[list[int], bool]:
    """Return the processes from `root` down to end first, and whether one can save its state.

    A process that handles the signal may need its helpers, such as a data loader's workers, to save
    its state, so they end later. So do processes above that only wait for it, as shells do, except
    on SIGINT, which a terminal sends to them as well.
    """
    catches = awaits(root, number, (b"SigCgt:",))
    if catches and not (number == signal.SIGINT and _is_shell(root)):
        return [root], True
    below, saves = [root], False
    for child in children.get(root, ()):
        found, can_save = asked_first(number, child, children)
        below += found
        saves |= can_save
    if not saves or number == signal.SIGINT:
        return below, saves
    if _threads(root) == 1:
        return [pid for pid in below if pid != root], True
    # A program that does not save its state: the order of its helpers does not matter.
    return _below(root, children), False


class Tolerate:
    """A copy of `contextlib.suppress`, whose module would add 3 ms to each start."""

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
    """A running worker. heartbeat: see `sirtaki.core.heartbeat`; None if it is not watched."""

    def __init__(self, rank: int, heartbeat: int | None) -> None:
        self.rank = rank
        self.heartbeat = heartbeat
        self._beat = bytes(BEAT_BYTES)
        self.silent = 0.0

    def look(self, pid: int, passed: float) -> None:
        """Update for how long it has been stopped or its engine silent."""
        beat = bytes(BEAT_BYTES)
        if self.heartbeat is not None:
            beat = os.pread(self.heartbeat, BEAT_BYTES, 0)
        beats = beat != self._beat or not any(beat)
        self._beat = beat
        self.silent = 0.0 if beats and _stat(pid)[0] != b"T" else self.silent + passed

    def mark_ending(self) -> None:
        """Mark in its heartbeat that the next signal means its end."""
        if self.heartbeat is not None:
            os.pwrite(self.heartbeat, b"\1", BEAT_BYTES)

    def checkpoint(self) -> str:
        """Return its note of its last checkpoint, "" for none."""
        if self.heartbeat is None:
            return ""
        return os.pread(self.heartbeat, _CHECKPOINT_BYTES, _CHECKPOINT_AT).decode(errors="replace")

    def forget(self) -> None:
        """Close the heartbeat of a worker that has ended."""
        if self.heartbeat is not None:
            os.close(self.heartbeat)


def tell_everybody(text: str) -> None:
    """Write a message to standard error, if somebody reads it, and to the system's log."""
    import syslog

    syslog.openlog("sirtaki", syslog.LOG_PID)
    syslog.syslog(syslog.LOG_ERR, text)
    errors = select.poll()
    errors.register(2, select.POLLOUT)
    # Nobody may read them any more: do not block.
    if errors.poll(0):
        with Tolerate(OSError):
            os.write(2, f"sirtaki: {text}\n".encode())


def is_traced(root: int) -> bool:
    """Return whether a debugger holds a process, or one below it."""
    return any(_stat(pid)[0] == b"t" for pid in (root, *descendants(root)))


def _is_shell(pid: int) -> bool:
    """Return whether it is a shell: shells catch SIGINT only to end after their command."""
    return any(line.rpartition(b"\t")[2] in _SHELLS for line in _status(pid)[:1])


def _threads(pid: int) -> int:
    return sum(int(line[8:]) for line in _status(pid) if line.startswith(b"Threads:"))


def _status(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            return file.read().splitlines()
    except OSError:
        return []


def awaits(pid: int, number: int, masks: tuple[bytes, ...]) -> bool:
    """Return whether a signal is in one of the masks: SigCgt (handled), SigBlk (blocked)."""
    found = [int(line[7:], 16) for line in _status(pid) if line.startswith(masks)]
    return any(mask >> (number - 1) & 1 for mask in found)
