"""The launcher is asked by `sirtaki hang`, `top` and `trace` about the ranks of all hosts."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sirtaki.rendezvous.host.presence import own_folder

_PREFIX = "launcher."
_PATIENCE_SECONDS = 8.0
# As `hang.collect` and `hang.traces` have them.
REPORT = "work"
RATES = "rates"
FIGURES = "figures"
TRACES = ("trace start", "trace stop", "trace take")
# Behind TAKE stands the number of a host: one is asked at a time, so that little is under way.
TAKE = TRACES[-1]
_QUESTION_BYTES = 32
_CREDENTIALS = struct.Struct("3i")


class Asked:
    """A thread that takes questions at a socket in the user's own folder, one at a time.

    Args:
        job: The job's name.
        wake: Is called, in the thread, when there is a question.

    Raises:
        OSError: There is no such folder, or the socket's path is too long.
    """

    def __init__(self, job: str, wake: Callable[[], None]) -> None:
        self.wanted = ""
        self._wake = wake
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._path = own_folder() / f"{_PREFIX}{job}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        self._socket.listen()
        threading.Thread(target=self._serve, name="sirtaki questions", daemon=True).start()

    def answer(self, answers: Sequence[bytes]) -> None:
        """Answer the question `wanted`: lists as JSON has them, one of each host."""
        self.wanted = ""
        lists = [each.strip() for each in answers]
        within = [each[1:-1] for each in lists if each[:1] + each[-1:] == b"[]" and each != b"[]"]
        self._answers.put(b"[" + b",".join(within) + b"]")

    def close(self) -> None:
        """Take no more questions."""
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread's wait
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            with link, contextlib.suppress(OSError, queue.Empty):
                link.settimeout(_PATIENCE_SECONDS)
                question = link.recv(_QUESTION_BYTES).decode(errors="replace")
                if _is_known(question):
                    link.sendall(self._wait_for_answer(question))

    def _wait_for_answer(self, question: str) -> bytes:
        while not self._answers.empty():
            self._answers.get()  # it came too late for an earlier question
        self.wanted = question
        self._wake()
        return self._answers.get(timeout=_PATIENCE_SECONDS)


def _is_known(question: str) -> bool:
    if question in (REPORT, RATES, FIGURES, *TRACES):
        return True
    return host_of(question) is not None


def host_of(question: str) -> int | None:
    """Return the number of the host that a question is for, None of one that is for all."""
    text, _, number = question.rpartition(" ")
    return int(number) if text == TAKE and number.isdecimal() else None


def ask_launcher(job: str, question: str = REPORT) -> list[dict[str, Any]]:
    """Return what the ranks of all hosts tell, if a launcher here can ask them; else nothing.

    Args:
        job: Its name.
        question: `REPORT`, `RATES`, `FIGURES`, one of `TRACES`, or `TAKE` with a number.
    """
    with contextlib.suppress(OSError, ValueError):
        path = str(own_folder() / f"{_PREFIX}{job}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(_PATIENCE_SECONDS)
            link.connect(path)
            link.sendall(question.encode())
            parts = []
            while part := link.recv(1 << 16):
                parts.append(part)
        found: list[dict[str, Any]] = json.loads(b"".join(parts))
        return found
    return []


def launched_here(name: str) -> str:
    """Return the one job whose name begins so and whose launcher is on this host; else ""."""
    found = [job for job in launchers() if job.startswith(name)]
    return found[0] if len(found) == 1 and name else ""


def launchers() -> dict[str, int]:
    """Return the processes of this user's launchers here that can be asked, by job."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for path in own_folder().glob(f"{_PREFIX}*"):
            if pid := _listener(path):
                found[path.name.removeprefix(_PREFIX)] = pid
    return found


def _listener(path: Path) -> int:
    """The launcher that listens there, 0: none; what one that was killed has left is removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_PATIENCE_SECONDS)
        try:
            link.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return 0
        found = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(found)[0])
