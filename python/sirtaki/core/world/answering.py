"""A rank answers questions of its user's other programs, whatever its own threads are doing.

A thread sleeps until a program connects to a socket in the user's folder. It cannot run while
another thread is in C code that holds the interpreter's lock; then a signal writes the stacks.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.host.presence import Presence, Record, own_namespace, prepare
from sirtaki.rendezvous.trust.auth import own_identity

_PATIENCE_SECONDS = 5.0
_ENDING_SECONDS = 1.0
_QUESTION_BYTES = 64
_CREDENTIALS = struct.Struct("3i")
_FRAMEWORKS = ("numpy", "torch", "tensorflow", "keras", "jax")


class Answering:
    """A thread that answers the questions of this user's programs until it is closed.

    Args:
        record: Tells other programs where this rank is.
        answers: The function that answers each question; the thread calls it.

    Raises:
        OSError: There is no folder for the socket that is this user's alone.
    """

    def __init__(self, record: Record, answers: Mapping[str, Callable[[], object]]) -> None:
        self._answers = answers
        self._owner = os.getpid()
        self._presence: Presence = prepare(record)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self._presence.socket)
        self._socket.listen()
        self._presence.announce()
        _open.add(self)
        self._thread = threading.Thread(target=self._serve, name="sirtaki questions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; in a forked child leave the parent's thread alone."""
        _open.discard(self)
        if os.getpid() == self._owner:
            self._presence.remove()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread's wait
            self._thread.join(_ENDING_SECONDS)  # else the interpreter's end finds what it holds
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            with link, contextlib.suppress(OSError):
                link.settimeout(_PATIENCE_SECONDS)
                self._answer(link)

    def _answer(self, link: socket.socket) -> None:
        credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(credentials)
        if user not in (0, os.geteuid()):
            return
        question = link.recv(_QUESTION_BYTES).decode(errors="replace").strip()
        if not question:
            return  # somebody wanted to know whether we live
        answer: Any
        try:
            answer = {"answer": self._answers[question]()}
        except KeyError:
            answer = {"error": f"unknown question {question!r}: another version of sirtaki?"}
        except Exception as error:  # whatever it is, the one who asks should read it
            answer = {"error": f"{type(error).__name__}: {error}"}
        link.sendall(json.dumps(answer).encode())


_open: weakref.WeakSet[Answering] = weakref.WeakSet()


def answers() -> bool:
    """Tell whether this process answers questions."""
    return bool(_open)


def _leave_to_parent() -> None:
    """Close the sockets in a forked child, where no thread would answer."""
    for answering in list(_open):
        answering.close()
    _Dump.descriptor = -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def answer_for(
    job: str,
    rank: int,
    hostnames: list[str],
    stacks_signal: int,
    more: Mapping[str, Callable[[], object]],
) -> Answering | None:
    """Answer questions about a rank; return None if there is no folder for the socket.

    Args:
        job: The job's name, the same for all ranks of the world.
        rank: The number of this rank.
        hostnames: The name of each rank's host.
        stacks_signal: The signal that writes the stacks when Python cannot run; 0: none.
        more: What else answers questions.
    """
    with contextlib.suppress(OSError):
        dump = _write_stacks_on(stacks_signal)
        record = Record(
            job=job,
            rank=rank,
            pid=os.getpid(),
            command=sys.orig_argv,
            hostnames=hostnames,
            started=time.time(),
            stacks=dump,
            signal=stacks_signal if dump else 0,
            namespace=own_namespace(),
        )
        own = {"stacks": stacks, "versions": versions, "memory": memory, "place": place}
        return Answering(record, {**own, **more})
    return None


class _Dump:
    """The file in memory into which this process writes its stacks when it gets a signal."""

    descriptor = -1


def _write_stacks_on(number: int) -> str:
    """Have a signal write the stacks of all threads; return the file's path, "" for none."""
    if number == 0:
        return ""
    if _Dump.descriptor < 0:
        if signal.getsignal(number) is not signal.SIG_DFL:
            return ""  # it is the program's
        _Dump.descriptor = memory_file.create("sirtaki-stacks")
        faulthandler.register(number, file=_Dump.descriptor, all_threads=True)
    return f"/proc/{os.getpid()}/fd/{_Dump.descriptor}"


def stacks() -> list[dict[str, object]]:
    """Return the Python stacks of all threads: of each ``thread``, and ``stack`` as lines."""
    import traceback  # hardly any process needs it

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    return [
        {
            "thread": names.get(number, f"thread {number}"),
            "stack": "".join(traceback.format_stack(frame)).splitlines(),
        }
        for number, frame in sys._current_frames().items()
        if number != own
    ]


def place() -> dict[str, object]:
    """Return where the main thread is; see `sirtaki.hang.place`."""
    from sirtaki.hang.place import place  # hardly any process needs it

    return place()


def versions() -> dict[str, str]:
    """Return the versions of Python and of what this process has imported."""
    found = {"sirtaki": own_identity().version, "python": sys.version.split()[0]}
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def memory() -> dict[str, int]:
    """Return this process's memory in bytes: ``resident``, and the most that has been."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    names = {"resident": "VmRSS", "peak": "VmHWM"}
    return {name: int(status[field].split()[0]) << 10 for name, field in names.items()}
