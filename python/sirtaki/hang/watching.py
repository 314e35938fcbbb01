"""Watches for hangs: when to ask ranks, what their answers mean, and a watch without a launcher."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable

from sirtaki.hang.analysis import analyse
from sirtaki.hang.answers import Job, compare, job_of
from sirtaki.hang.report import report
from sirtaki.questions.collect import collect
from sirtaki.questions.messages import Question, RankAnswer
from sirtaki.rendezvous.threads import Lasting, start_thread

_MOST_PAUSE = 2.5
_LEAST_BETWEEN = 0.5
# An operation submitted by one rank only holds up no rank that does not wait for it.
_FORGOTTEN = 6


class Watching:
    """Detects a hang: no progress for a while, and two equal samples of all ranks.

    Args:
        job: Its name, for the report.
        seconds: How long the job may make no progress.
        now: The time, always on the caller's clock.
    """

    def __init__(self, job: str, seconds: float, now: float) -> None:
        self._job = job
        self._seconds = seconds
        self._pause = min(seconds / 4, _MOST_PAUSE)
        self._earlier: tuple[Job, float] | None = None
        self._reported_at: float | None = None
        self.question = Question.POLL
        self.due = now + self._pause

    def postpone(self, now: float) -> None:
        """Ask again only after a pause."""
        self.due = now + self._pause

    def take(self, answers: Iterable[RankAnswer], now: float) -> str:
        """Process the answers of all hosts to `question`; return the text to print, usually ""."""
        self.postpone(now)
        found = job_of(answers)
        forgotten = found.oldest >= _FORGOTTEN * self._seconds
        stuck = found.oldest if forgotten else found.stuck
        if stuck < self._seconds / 2:
            self.question, self._earlier = Question.POLL, None
            return self._goes_on(now)
        if self._reported_at is not None:
            return ""
        if self.question == Question.POLL:
            self.question, self.due = Question.REPORT, now
            return ""
        earlier, self._earlier = self._earlier, (found, now)
        if earlier is None or (earlier[0].fingerprint != found.fingerprint and not forgotten):
            between = min(_LEAST_BETWEEN, self._pause)
            self.due = now + max(self._seconds - stuck, between)
            return ""
        if stuck < self._seconds:
            self._earlier = earlier
            self.due = now + self._seconds - stuck
            return ""
        compare(earlier[0], found, now - earlier[1])
        diagnosis = analyse(found)
        self.question, self._earlier = Question.POLL, None
        if not diagnosis.missed:
            return ""
        self._reported_at = now - stuck
        return report(diagnosis, self._job)

    def _goes_on(self, now: float) -> str:
        since, self._reported_at = self._reported_at, None
        return "" if since is None else f"the job goes on, after {now - since:.0f} s"


class OwnWatch:
    """Watches a job that another launcher started, in a thread of each host's lowest rank.

    It prints the report of a hang on standard error.

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
