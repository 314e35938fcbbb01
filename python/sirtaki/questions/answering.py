"""Answers a rank's questions from its user's other programs, whatever its threads are doing.

A thread sleeps until a program connects to a socket in the user's folder. The thread cannot run
while another one holds the GIL in C code; then a signal makes the process write its stacks.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping

from sirtaki.questions import kernel
from sirtaki.questions.messages import Asked, Question, write_answer, write_refusal
from sirtaki.questions.serving import QuestionServer
from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.host.presence import Presence, Record, own_boot, own_namespace, prepare
from sirtaki.rendezvous.threads import Lasting, Living
from sirtaki.rendezvous.trust.auth import own_identity

_PATIENCE_SECONDS = 5.0


class Answering:
    """Lets this user's programs find and ask a rank until it is closed.

    Args:
        record: Describes to other programs where this rank is.
        answers: The function that answers each question; a thread calls it.

    Raises:
        OSError: There is no private folder for the socket, the socket's path is too long, or no
            thread can be started.
    """

    def __init__(self, record: Record, answers: Mapping[Question, Callable[[], object]]) -> None:
        self._answers = answers
        self._owner = os.getpid()
        self._presence: Presence = prepare(record)
        lasting = Lasting("the thread that answers questions")
        with contextlib.ExitStack() as failed:
            failed.callback(self._presence.remove)
            self._server = QuestionServer(
                self._presence.socket, self._answer, _PATIENCE_SECONDS, lasting
            )
            failed.callback(self._server.close)
            self._presence.announce()
            failed.pop_all()
        _open.add(self)

    def close(self) -> None:
        """Stop answering; in a forked child leave the parent's thread alone."""
        _open.discard(self)
        self._answers = {}  # they hold the world
        if os.getpid() == self._owner:
            self._presence.remove()
            self._server.close()
        else:
            self._server.forget()

    def _answer(self, asked: Asked) -> bytes:
        function = self._answers.get(asked.question)
        if function is None:
            return write_refusal(f"no rank answers {asked.question.value!r}")
        return write_answer(json.dumps(function()).encode())


_open: Living[Answering] = Living()


def answers() -> bool:
    """Return whether this process answers questions."""
    return any(True for _ in _open)


def _leave_to_parent() -> None:
    """Close the sockets in a forked child, where no thread would answer."""
    for answering in _open:
        answering.close()
    _Dump.descriptor = -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def answer_for(
    job: str,
    rank: int,
    hostnames: list[str],
    stacks_signal: int,
    process_id: int,
    more: Mapping[Question, Callable[[], object]],
) -> Answering:
    """Answer questions about a rank.

    Args:
        job: The job's name, the same for all ranks of the world.
        rank: The number of this rank.
        hostnames: The name of each rank's host.
        stacks_signal: The signal that writes the stacks when Python cannot run; 0: none.
        process_id: The starter's number of this process.
        more: Functions for more questions.

    Raises:
        OSError: As `Answering` does.
    """
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
        boot=own_boot(),
        id=process_id,
        main_signal=_Dump.main_signal,
    )
    own = {
        Question.STACKS: stacks,
        Question.VERSIONS: versions,
        Question.MEMORY: memory,
        Question.PLACE: place,
    }
    return Answering(record, {**own, **more})


@functools.cache
def say_unasked(why: str) -> None:
    """Print, once, that nobody can ask this process."""
    text = f"`sirtaki ps` and the reports of hangs do not find the ranks here: {why}"
    with contextlib.suppress(OSError, ValueError):
        print(f"sirtaki: {text}", file=sys.stderr, flush=True)


class _Dump:
    """The memory file into which this process writes its stacks on a signal."""

    descriptor = -1
    main_signal = 0


def _write_stacks_on(number: int) -> str:
    """Have a signal write the stacks of all threads; return the file's path, "" for none."""
    if number == 0:
        return ""
    if _Dump.descriptor < 0:
        if signal.getsignal(number) is not signal.SIG_DFL:
            return ""  # the program handles it
        _Dump.descriptor = memory_file.create("sirtaki-stacks")
        faulthandler.register(number, file=_Dump.descriptor, all_threads=True)
        # faulthandler stops after 100 threads, and the main one comes last.
        if number > signal.SIGRTMIN and signal.getsignal(number - 1) is signal.SIG_DFL:
            _Dump.main_signal = number - 1
            faulthandler.register(number - 1, file=_Dump.descriptor, all_threads=False)
    return f"/proc/{os.getpid()}/fd/{_Dump.descriptor}"


def stacks() -> list[dict[str, object]]:
    """Return the Python stack of each thread: ``thread``, and ``stack`` as lines."""
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
    """Return where the main thread is; see `sirtaki.questions.place`."""
    from sirtaki.questions.place import place  # hardly any process needs it

    return place()


def versions() -> dict[str, str]:
    """Return the versions of Python and of imported packages."""
    from sirtaki.frameworks import frameworks  # hardly any process needs it

    found = {"sirtaki": own_identity().version, "python": sys.version.split()[0]}
    for module in frameworks():
        version = getattr(sys.modules.get(module), "__version__", None)
        if version is not None:
            found[module] = str(version)
    return found


def memory() -> dict[str, int]:
    """Return this process's memory in bytes: ``resident``, and its peak."""
    status = kernel.status("self")
    names = {"resident": "VmRSS", "peak": "VmHWM"}
    return {name: int(status[field].split()[0]) << 10 for name, field in names.items()}
