"""The process of a guardian. It starts while the launcher is still parsing its flags."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_PROGRAM = Path(__file__).parents[1] / "guardian.py"


class GuardianProcess:
    """A guardian that waits for its job on `control`, and ends if that is closed first.

    See `guarding.watch`.
    """

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.program = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )


_ahead: list[GuardianProcess] = []


@contextlib.contextmanager
def guardian_ahead() -> Iterator[None]:
    """Start a guardian ahead, for the first caller of `take_guardian`."""
    with contextlib.suppress(OSError):  # `take_guardian` tries again, and raises
        _ahead.append(GuardianProcess())
    try:
        yield
    finally:
        drop_guardian()


def take_guardian() -> GuardianProcess:
    """Return the guardian that was started ahead, or a new one."""
    return _ahead.pop() if _ahead and _ahead[0].program.poll() is None else GuardianProcess()


def drop_guardian() -> None:
    """End the guardian that was started ahead, because nobody will use it."""
    while _ahead:
        guardian = _ahead.pop()
        guardian.control.close()
        guardian.program.wait()
