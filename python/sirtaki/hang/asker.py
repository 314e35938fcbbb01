"""Asks the ranks of a job on this host in the background of a loop that waits on descriptors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

from sirtaki.rendezvous.network.inbox import Inbox

_MOST_BYTES = 32 << 20


class Asker:
    """`fileno` is readable when `take` has an answer."""

    def __init__(self) -> None:
        self._answers: Inbox[bytes] = Inbox()

    def fileno(self) -> int:
        """Return what is readable when `take` has an answer."""
        return self._answers.fileno()

    def ask(self, job: str, question: str) -> None:
        """Ask; see `collect`."""
        threading.Thread(
            target=self._ask, args=(job, question), name="sirtaki asks ranks", daemon=True
        ).start()

    def _ask(self, job: str, question: str) -> None:
        # Most jobs are over before they are asked.
        from sirtaki.hang.collect import collect
        from sirtaki.hang.traces import START, STOP, TAKE, ask_to_trace

        look = ask_to_trace if question in (START, STOP, TAKE) else collect
        try:
            answer = json.dumps(look(job, question)).encode()
        except Exception:  # whatever it is, the job must go on
            answer = b"[]"
        self._answers.put(answer if len(answer) <= _MOST_BYTES else b"[]")

    def wake(self) -> None:
        """Let the loop look around; `take` yields b"" then."""
        self._answers.put(b"")

    def take(self) -> Iterator[bytes]:
        """Yield the answers that have come, each of all ranks, as JSON."""
        return self._answers.take()

    def close(self) -> None:
        """Do not wait for answers any more."""
        self._answers.close()
