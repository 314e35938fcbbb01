"""Watches a job that another launcher started, in a thread of each host's lowest rank."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

from sirtaki.hang.watching import Watching
from sirtaki.questions.collect import collect
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.lasting import Lasting, start_thread


class OwnWatch:
    """Prints the report of a hang on standard error.

    Args:
        job: The job's name.
        seconds: How long the job may make no progress.

    Raises:
        OSError: No thread can be started.
    """

    def __init__(self, job: str, seconds: float) -> None:
        self._job = job
        self._watching = Watching(job, seconds, time.monotonic())
        self._end = threading.Event()
        self._lasting = Lasting("the watch for hangs")
        self._thread = start_thread(self._watch, "sirtaki watch")

    def end(self) -> None:
        """Stop watching."""
        self._end.set()

    def _watch(self) -> None:
        watching = self._watching
        while not self._end.wait(max(0.0, watching.due - time.monotonic())):
            with self._lasting:
                self._look()

    def _look(self) -> None:
        watching, now = self._watching, time.monotonic()
        watching.postpone(now)  # in case of an error below
        polls = watching.question is Question.POLL
        answers = collect(self._job, Question.POLL if polls else Question.FAR)
        text = watching.take(answers, time.monotonic())
        if text:
            with contextlib.suppress(OSError, ValueError):
                print(f"sirtaki: {text}", file=sys.stderr, flush=True)
