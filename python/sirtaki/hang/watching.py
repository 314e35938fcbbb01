"""When ranks are asked, and when what they tell is a hang: no clock and no process is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sirtaki.hang.analysis import analyse
from sirtaki.hang.answers import Job, compare, job_of
from sirtaki.hang.collect import POLL, REPORT
from sirtaki.hang.report import report

_MOST_PAUSE = 2.5
_LEAST_BETWEEN = 0.5
# An operation that one rank alone has asked for holds up nobody who does not wait for it.
_FORGOTTEN = 6


class Watching:
    """Decides on a hang: nothing has moved for a while, and two looks at all ranks find the same.

    Args:
        job: Its name, for the report.
        seconds: How long nothing may move.
        now: The time, here as everywhere on a clock of the caller's.
    """

    def __init__(self, job: str, seconds: float, now: float) -> None:
        self._job = job
        self._seconds = seconds
        self._pause = min(seconds / 4, _MOST_PAUSE)
        self._earlier: tuple[Job, float] | None = None
        self._reported_at: float | None = None
        self.question = POLL
        self.due = now + self._pause

    def take(self, answers: Iterable[Mapping[str, Any]], now: float) -> str:
        """Take the answers of all hosts to `question`; return what is to be printed, mostly ""."""
        found = job_of(answers)
        self.due = now + self._pause
        forgotten = found.oldest >= _FORGOTTEN * self._seconds
        stuck = found.oldest if forgotten else found.stuck
        if stuck < self._seconds / 2:
            self.question, self._earlier = POLL, None
            return self._goes_on(now)
        if self._reported_at is not None:
            return ""
        if self.question == POLL:
            self.question, self.due = REPORT, now
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
        self.question, self._earlier = POLL, None
        if not diagnosis.missed:
            return ""
        self._reported_at = now - stuck
        return report(diagnosis, self._job)

    def _goes_on(self, now: float) -> str:
        since, self._reported_at = self._reported_at, None
        return "" if since is None else f"the job goes on, after {now - since:.0f} s"
