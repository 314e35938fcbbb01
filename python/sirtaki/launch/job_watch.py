"""Watches a job for hangs: asks its hosts, and reports what it detects."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sirtaki.core.config import stall_seconds
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.environment import base_environment
from sirtaki.launch.processes.events import HostProcesses
from sirtaki.questions.asker import Asker
from sirtaki.questions.launcher import LauncherAnswers
from sirtaki.questions.messages import TRACES, Asked, Question, RankAnswer
from sirtaki.rendezvous.host.presence import job_name
from sirtaki.rendezvous.threads import Lasting
from sirtaki.rendezvous.words import parse_json

if TYPE_CHECKING:
    from sirtaki.hang.watching import Watching

# A round of questions leaves out hosts that have not answered by then.
_PATIENCE_SECONDS = 2.0
# The answer to a request for a trace is longer.
_TRACE_SECONDS = 6.0
_FOR_EVER = 1e9


class JobWatch:
    """The launcher's part in the detection of hangs.

    Args:
        job: The job's name.
        seconds: How long the job may make no progress; 0: for ever.
        say: Prints a report.
    """

    def __init__(self, job: str, seconds: float, say: Callable[[str], object]) -> None:
        self._job = job
        self._seconds = seconds
        self._say = say
        # The job must go on even if the watch fails.
        self._lasting = Lasting("the watch for hangs", say)
        self._asker = Asker()
        self._watching: Watching | None = None
        self._awaited: set[HostProcesses] = set()
        self._number = 0  # of the question, to recognise late answers to earlier ones
        self._here: HostProcesses | None = None
        self._answers: list[RankAnswer] = []
        self._told: list[bytes] = []  # the raw answers, for the client that asked us
        self._until = 0.0
        self._begin_at = time.monotonic() + seconds / 4
        self._asked: LauncherAnswers | None = None
        self._for_asker = False
        self._is_over = False

    def answer_questions(self) -> None:
        """Serve questions of `sirtaki hang`, `top` and `trace` about the ranks of all hosts."""
        try:
            self._asked = LauncherAnswers(self._job, self._asker.wake, self._say)
        except OSError as error:
            self._say(f"`sirtaki hang` and `top` cannot ask this launcher: {error}")

    def fileno(self) -> int:
        """Return the descriptor that is readable when this host's ranks have answered."""
        return self._asker.fileno()

    def due(self) -> list[float]:
        """Return when (time.monotonic()) `look` has to be called."""
        if self._awaited:
            return [self._until]
        if self._wanted:
            return [0.0]
        if self._seconds <= 0:
            return []
        return [self._begin_at if self._watching is None else self._watching.due]

    def look(self, hosts: Sequence[HostProcesses]) -> None:
        """Ask the hosts if it is time to, or go on with the answers that came in time."""
        now = time.monotonic()
        due = self.due()
        if not hosts or not due or now < due[0]:
            return
        with self._lasting:
            if self._awaited:
                self._conclude(now)
            elif self._wanted:
                self._answer(hosts, self._wanted, now)
            else:
                self._poll(hosts, now)

    def _poll(self, hosts: Sequence[HostProcesses], now: float) -> None:
        if self._watching is None:
            self._begin_at = now + _PATIENCE_SECONDS  # in case no descriptor is free for the import
            from sirtaki.hang.watching import Watching  # most jobs end before they need it

            self._watching = Watching(self._job, self._seconds, now)
        self._watching.postpone(now)
        self._ask(hosts, self._watching.question, now)

    def _answer(self, hosts: Sequence[HostProcesses], wanted: Asked, now: float) -> None:
        """Pass a client's question on to all hosts, or to the one that it names."""
        chosen = hosts if wanted.host is None else hosts[wanted.host : wanted.host + 1]
        if not chosen and self._asked is not None:
            self._asked.refuse(f"the job has {len(hosts)} hosts")
            return
        self._for_asker = True
        self._ask(chosen, wanted.question, now)
        if wanted.question in TRACES:
            self._until = now + _TRACE_SECONDS

    def last_look(self, hosts: Sequence[HostProcesses]) -> None:
        """Ask the hosts after a failure; `seen` is true when all have answered."""
        self._seconds, self._for_asker, self._is_over = 0.0, False, True
        self.close_questions()
        with self._lasting:
            self._ask(hosts, Question.RECORDS, time.monotonic())

    @property
    def seen(self) -> bool:
        """Whether no answer is outstanding."""
        return not self._awaited

    @property
    def answers(self) -> list[RankAnswer]:
        """The ranks' answers to `last_look`."""
        return self._answers if self._is_over else []

    def _ask(self, hosts: Sequence[HostProcesses], question: Question, now: float) -> None:
        self._awaited, self._answers, self._told = set(hosts), [], []
        self._until = now + _PATIENCE_SECONDS
        self._number += 1
        for host in hosts:
            if not host.ask(self._job, question, self._number):
                self._here = host
                self._asker.ask(self._job, question, self._number)

    def take_here(self) -> None:
        """Receive the answers of this host."""
        for number, answer in self._asker.take():
            if answer and self._here is not None:
                self.take(self._here, number, answer)

    def take(self, host: HostProcesses, number: int, answer: bytes) -> None:
        """Receive a host's answer to the question of that number; a late one is dropped."""
        if number != self._number or host not in self._awaited:
            return
        self._awaited.remove(host)
        if self._for_asker:
            self._told.append(answer)
        else:
            with contextlib.suppress(ValueError):
                self._answers += parse_json(answer)
        if not self._awaited and (self._seconds > 0 or self._for_asker):
            with self._lasting:
                self._conclude(time.monotonic())

    @property
    def _wanted(self) -> Asked | None:
        return None if self._asked is None else self._asked.wanted

    def _conclude(self, now: float) -> None:
        self._awaited = set()
        if self._for_asker and self._asked is not None:
            self._for_asker = False
            self._asked.answer(self._told)
            return
        if self._watching is not None and (text := self._watching.take(self._answers, now)):
            self._say(text)

    def close(self) -> None:
        """Stop watching."""
        self.close_questions()
        self._asker.close()

    def close_questions(self) -> None:
        """Stop serving questions."""
        if self._asked is not None:
            self._asked.close()
            self._asked = None


def watch_of(settings: Settings, store: str, say: Callable[[str], object]) -> JobWatch:
    """Return the watch for a job whose ranks meet at a store."""
    ours = {**settings.variables, **settings.forwarded}
    try:
        seconds = stall_seconds(base_environment(os.environ, ours))
    except ValueError:
        seconds = 0.0  # the ranks will report the error
    alone = len(settings.slots) == 1  # an elastic job has none
    watch = JobWatch(job_name(store), 0.0 if alone or seconds >= _FOR_EVER else seconds, say)
    if len({slot.host for slot in settings.slots}) != 1:
        watch.answer_questions()
    return watch
