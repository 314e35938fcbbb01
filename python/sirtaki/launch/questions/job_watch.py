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
from sirtaki.rendezvous.host.presence import job_name

if TYPE_CHECKING:
    from sirtaki.hang.watching import Watching

# As `hang.collect` has it.
RECORDS = "records"
# Hosts that have not answered by then are left out of this look.
_PATIENCE_SECONDS = 2.0
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
        self._until = 0.0
        self._begin_at = time.monotonic() + seconds / 4

    def fileno(self) -> int:
        """Return what is readable when the ranks of this host have answered."""
        return self._asker.reader.fileno()

    def due(self) -> list[float]:
        """When (time.monotonic()) `look` is to be called."""
        if self._awaited:
            return [self._until]
        if self._seconds <= 0:
            return []
        return [self._begin_at if self._watching is None else self._watching.due]

    def look(self, hosts: Sequence[HostProcesses]) -> None:
        """Ask the hosts when it is time to, or do with the answers that have come in time."""
        now = time.monotonic()
        if not hosts or self._seconds <= 0 or any(now < due for due in self.due()):
            return
        if self._awaited:
            self._conclude(now)
            return
        if self._watching is None:
            from sirtaki.hang.watching import Watching  # most jobs are over before that

            self._watching = Watching(self._job, self._seconds, now)
            self._watching.due = now
        self._ask(hosts, self._watching.question, now)

    def last_look(self, hosts: Sequence[HostProcesses]) -> None:
        """Ask the hosts, after a failure, for all that can be known; `seen` says when it is."""
        self._seconds = 0.0
        self._ask(hosts, RECORDS, time.monotonic())

    @property
    def seen(self) -> bool:
        """Whether nothing is left to be heard of."""
        return not self._awaited

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What the ranks have told at last."""
        return self._answers

    def _ask(self, hosts: Sequence[HostProcesses], question: str, now: float) -> None:
        self._awaited, self._answers = set(hosts), []
        self._until = now + _PATIENCE_SECONDS
        for host in hosts:
            if not host.ask(self._job, question):
                self._here = host
                self._asker.ask(self._job, question)

    def take_here(self) -> None:
        """Take the answer of this host."""
        answer = self._asker.take()
        if self._here is not None:
            self.take(self._here, answer)

    def take(self, host: HostProcesses, answer: bytes) -> None:
        """Take the answer of a host; of one that is late nothing."""
        if host not in self._awaited:
            return
        self._awaited.remove(host)
        with contextlib.suppress(ValueError):
            self._answers += json.loads(answer)
        if not self._awaited and self._seconds > 0:
            self._conclude(time.monotonic())

    def _conclude(self, now: float) -> None:
        assert self._watching is not None
        self._awaited = set()
        try:
            text = self._watching.take(self._answers, now)
        except Exception as error:  # whatever it is, the job must go on
            self._watching.due = _FOR_EVER
            text = f"nobody watches for hangs any more: {error!r}"
        if text:
            self._say(text)

    def close(self) -> None:
        """Stop watching."""
        self._asker.close()


def watch_of(settings: Settings, store: str, say: Callable[[str], object]) -> JobWatch:
    """Return what watches a job whose ranks meet at a store."""
    alone = settings.elastic is None and len(settings.slots) == 1
    ours = {**settings.variables, **settings.forwarded}
    try:
        seconds = stall_seconds(base_environment(os.environ, ours))
    except ValueError:
        seconds = 0.0  # the ranks will say what is wrong
    return JobWatch(job_name(store), 0.0 if alone or seconds >= _FOR_EVER else seconds, say)
