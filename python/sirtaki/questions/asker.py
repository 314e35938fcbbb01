"""Asks the ranks of a job on this host in the background, for a loop that polls descriptors."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sirtaki.questions.messages import TRACES, Question
from sirtaki.rendezvous.threads import Inbox, start_thread

_MOST_BYTES = 32 << 20
_NOTHING = b"[]"


class Asker:
    """Asks in threads; `fileno` is readable when `take` has an answer."""

    def __init__(self) -> None:
        self._answers: Inbox[tuple[int, bytes]] = Inbox()

    def fileno(self) -> int:
        """Return the descriptor that is readable when `take` has an answer."""
        return self._answers.fileno()

    def ask(self, job: str, question: Question, number: int) -> None:
        """Ask; see `collect`. If no thread can be started, no answer comes this time.

        Args:
            job: Its name.
            question: What to ask.
            number: Returned with the answer, because answers may come in another order.
        """
        try:
            start_thread(self._ask, "sirtaki asks ranks", (job, question, number))
        except OSError:
            self._answers.put((number, _NOTHING))

    def _ask(self, job: str, question: Question, number: int) -> None:
        try:
            # Most jobs end before they are asked.
            from sirtaki.questions.collect import ask_to_trace, collect

            look = ask_to_trace if question in TRACES else collect
            answer = json.dumps(look(job, question)).encode()
        except Exception:  # the job must go on after any error
            answer = _NOTHING
        self._answers.put((number, answer if len(answer) <= _MOST_BYTES else _NOTHING))

    def wake(self) -> None:
        """Wake the loop; `take` then yields b""."""
        self._answers.put((0, b""))

    def take(self) -> Iterator[tuple[int, bytes]]:
        """Yield available answers with their numbers; each is JSON and of all ranks."""
        return self._answers.take()

    def close(self) -> None:
        """Stop waiting for answers."""
        self._answers.close()
