"""The launcher's answers to questions about the ranks of all hosts."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from sirtaki.questions.asking import LAUNCHER_SECONDS, launcher_socket
from sirtaki.questions.messages import TRACES, Asked, Question, write_answer, write_refusal
from sirtaki.questions.serving import QuestionServer
from sirtaki.rendezvous.threads import Lasting

_KNOWN = (Question.REPORT, Question.RATES, Question.FIGURES, *TRACES)


class LauncherAnswers:
    """Receives questions in a thread; the launcher's loop answers them after asking its hosts.

    wanted: the question that waits for an answer.

    Args:
        job: The job's name.
        wake: Called, in the thread, when there is a question.
        say: Called once with an error after which the thread goes on.

    Raises:
        OSError: There is no folder for the socket, its path is too long, or no thread can be
            started.
    """

    def __init__(
        self, job: str, wake: Callable[[], None], say: Callable[[str], object] | None = None
    ) -> None:
        self.wanted: Asked | None = None
        self._wake = wake
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._path = launcher_socket(job)
        self._path.unlink(missing_ok=True)
        lasting = Lasting("the thread that takes questions", say)
        try:
            self._server = QuestionServer(
                str(self._path), self._wait_for_answer, LAUNCHER_SECONDS, lasting
            )
        except OSError:
            self._path.unlink(missing_ok=True)
            raise

    def answer(self, answers: Sequence[bytes]) -> None:
        """Answer the question `wanted` with JSON lists, one per host."""
        lists = [each.strip() for each in answers]
        within = [each[1:-1] for each in lists if each[:1] + each[-1:] == b"[]" and each != b"[]"]
        self._send(write_answer(b"[" + b",".join(within) + b"]"))

    def refuse(self, why: str) -> None:
        """Answer the question `wanted` with an error."""
        self._send(write_refusal(why))

    def _send(self, reply: bytes) -> None:
        self.wanted = None
        self._answers.put(reply)

    def close(self) -> None:
        """Stop receiving questions."""
        self._path.unlink(missing_ok=True)
        self._server.close()

    def _wait_for_answer(self, asked: Asked) -> bytes:
        if asked.question not in _KNOWN:
            return write_refusal(f"ask the ranks themselves for {asked.question.value}")
        while not self._answers.empty():
            self._answers.get()  # a late answer to an earlier question
        self.wanted = asked
        self._wake()
        try:
            return self._answers.get(timeout=LAUNCHER_SECONDS)
        except queue.Empty:
            return write_refusal(f"the hosts have not answered within {LAUNCHER_SECONDS:g} s")
