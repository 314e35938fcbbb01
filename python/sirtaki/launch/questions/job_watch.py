"""Watches a job of ours for hangs: asks its hosts, and returns what is to be printed."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sirtaki.core.config import stall_seconds
from sirtaki.hang.asker import Asker
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.hosts.environment import base_environment
from sirtaki.launch.processes.events import HostProcesses
from sirtaki.launch.questions.asked import TAKE, TRACES, Asked, host_of
from sirtaki.rendezvous.host.presence import job_name

if TYPE_CHECKING:
    from sirtaki.hang.watching import Watching

# As `hang.collect` has it.
RECORDS = "records"
# Hosts that have not answered by then are left out of this look.
_PATIENCE_SECONDS = 2.0
# Of a trace a host has more to tell.
_TRACE_SECONDS = 6.0
_NO_SUCH_HOST = b'[{"over":true}]'
_THAT_HOST = b'[{"over":false}]'
_FOR_EVER = 1e9


class JobWatch:
    """The launcher's part in finding hangs.

    Args:
        job: The job's name.
        seconds: How long nothing may move; 0: for ever.
        say: Prints a report.
    """

    def __init__(self, job: str, seconds: float, say: Callable[[str], object]) -> None:
        self._job = job
        self._seconds = seconds
        self._say = say
        self._asker = Asker()
        self._watching: Watching | None = None
        self._awaited: set[HostProcesses] = set()
        self._here: HostProcesses | None = None
        self._answers: list[dict[str, Any]] = []
        self._told: list[bytes] = []  # the same for who asks us, as it came
        self._until = 0.0
        self._begin_at = time.monotonic() + seconds / 4
        self._asked: Asked | None = None
        self._for_asker = False
        self._is_over = False

    def answer_questions(self) -> None:
        """Let `sirtaki hang`, `top` and `trace` ask us about the ranks of all hosts."""
        with contextlib.suppress(OSError):
            self._asked = Asked(self._job, self._asker.wake)

    def fileno(self) -> int:
        """Return what is readable when the ranks of this host have answered."""
        return self._asker.fileno()

    def due(self) -> list[float]:
        """When (time.monotonic()) `look` is to be called."""
        if self._awaited:
            return [self._until]
        if self._wanted:
            return [0.0]
        if self._seconds <= 0:
            return []
        return [self._begin_at if self._watching is None else self._watching.due]

    def look(self, hosts: Sequence[HostProcesses]) -> None:
        """Ask the hosts when it is time to, or do with the answers that have come in time."""
        now = time.monotonic()
        due = self.due()
        if not hosts or not due or now < due[0]:
            return
        if self._awaited:
            self._conclude(now)
            return
        if self._wanted:
            self._answer(hosts, self._wanted, now)
            return
        if self._watching is None:
            from sirtaki.hang.watching import Watching  # most jobs are over before that

            self._watching = Watching(self._job, self._seconds, now)
            self._watching.due = now
        self._ask(hosts, self._watching.question, now)

    def _answer(self, hosts: Sequence[HostProcesses], question: str, now: float) -> None:
        """Ask for who asks us: all hosts, or the one that the question names."""
        number = host_of(question)
        assert self._asked is not None
        if number is not None and number >= len(hosts):
            self._asked.answer([_NO_SUCH_HOST])
            return
        self._for_asker = True
        if number is None:
            self._ask(hosts, question, now)
        else:
            self._ask([hosts[number]], TAKE, now)
            self._told = [_THAT_HOST]
        if number is not None or question in TRACES:
            self._until = now + _TRACE_SECONDS

    def last_look(self, hosts: Sequence[HostProcesses]) -> None:
        """Ask the hosts, after a failure, for all that can be known; `seen` says when it is."""
        self._seconds, self._for_asker, self._is_over = 0.0, False, True
        self.close_questions()
        self._ask(hosts, RECORDS, time.monotonic())

    @property
    def seen(self) -> bool:
        """Whether nothing is left to be heard of."""
        return not self._awaited

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What the ranks have told at the last look."""
        return self._answers if self._is_over else []

    def _ask(self, hosts: Sequence[HostProcesses], question: str, now: float) -> None:
        self._awaited, self._answers, self._told = set(hosts), [], []
        self._until = now + _PATIENCE_SECONDS
        for host in hosts:
            if not host.ask(self._job, question):
                self._here = host
                self._asker.ask(self._job, question)

    def take_here(self) -> None:
        """Take the answers of this host."""
        for answer in self._asker.take():
            if answer and self._here is not None:
                self.take(self._here, answer)

    def take(self, host: HostProcesses, answer: bytes) -> None:
        """Take the answer of a host; of one that is late nothing."""
        if host not in self._awaited:
            return
        self._awaited.remove(host)
        if self._for_asker:
            self._told.append(answer)
        else:
            with contextlib.suppress(ValueError):
                self._answers += json.loads(answer)
        if not self._awaited and (self._seconds > 0 or self._for_asker):
            self._conclude(time.monotonic())

    @property
    def _wanted(self) -> str:
        return "" if self._asked is None else self._asked.wanted

    def _conclude(self, now: float) -> None:
        self._awaited = set()
        if self._for_asker and self._asked is not None:
            self._for_asker = False
            self._asked.answer(self._told)
            return
        assert self._watching is not None
        try:
            text = self._watching.take(self._answers, now)
        except Exception as error:  # whatever it is, the job must go on
            self._watching.due = _FOR_EVER
            text = f"nobody watches for hangs any more: {error!r}"
        if text:
            self._say(text)

    def close(self) -> None:
        """Stop watching."""
        self.close_questions()
        self._asker.close()

    def close_questions(self) -> None:
        """Answer nobody any more."""
        if self._asked is not None:
            self._asked.close()
            self._asked = None


def watch_of(settings: Settings, store: str, say: Callable[[str], object]) -> JobWatch:
    """Return what watches a job whose ranks meet at a store."""
    alone = settings.elastic is None and len(settings.slots) == 1
    ours = {**settings.variables, **settings.forwarded}
    try:
        seconds = stall_seconds(base_environment(os.environ, ours))
    except ValueError:
        seconds = 0.0  # the ranks will say what is wrong
    watch = JobWatch(job_name(store), 0.0 if alone or seconds >= _FOR_EVER else seconds, say)
    if settings.elastic is not None or len({slot.host for slot in settings.slots}) > 1:
        watch.answer_questions()
    return watch
