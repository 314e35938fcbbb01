"""The hosts and processes that a job waits for at its start, with their deadlines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from sirtaki.launch.errors import FAILED
from sirtaki.launch.processes.events import Event, HostProcesses

# How long other hosts may still report why they refuse the job, after the first has.
_LAST_CALL_SECONDS = 1.0
ABSENT_SECONDS = 2.0


class Awaited:
    """Hosts that have not answered and processes that have not started.

    seconds: for all processes to start. absent: the hosts. refusals: why some refuse the job.
    processes: those that have not started.
    """

    def __init__(self, hosts: Sequence[HostProcesses], seconds: float) -> None:
        self._seconds = seconds
        self._start_by = time.monotonic() + seconds
        self._name_at: float | None = None
        self.absent: list[HostProcesses] = []
        self.refusals: dict[str, Event] = {}
        self.processes = {process.id for host in hosts for process in host.planned}

    def expect(self, hosts: Iterable[HostProcesses]) -> None:
        """Wait for these hosts from now on."""
        self.absent += hosts
        self._name_at = time.monotonic() + ABSENT_SECONDS

    def extend(self, seconds: float) -> None:
        """Extend the deadline by time in which nobody could answer."""
        self._start_by += seconds

    def deadlines(self, ending: bool) -> list[float]:
        """Return the deadlines of those that are awaited. ending: whether the job ends."""
        found = [self._start_by] if self.processes and not ending else []
        return [*found, self._name_at] if self.absent and self._name_at is not None else found

    def refuse(self, host: HostProcesses, event: Event) -> None:
        """Record why a host refuses the job."""
        self.refusals[host.host] = event
        if host in self.absent:
            self.absent.remove(host)
        # Others may refuse for the same reason; a list of all is more useful than the first.
        soon = time.monotonic() + _LAST_CALL_SECONDS if self.absent else 0.0
        self._start_by = min(self._start_by, soon)

    def named(self, now: float) -> str:
        """Return, once, a message with the hosts that take long to answer; else ""."""
        if self._name_at is None or now <= self._name_at:
            return ""
        self._name_at = None
        names = ", ".join(host.host for host in self.absent)
        return names and f"waiting for host{'s' if len(self.absent) > 1 else ''} {names} ..."

    def given_up(self, now: float) -> tuple[str, int] | None:
        """Return the message and exit code after the deadline or a refusal, else None."""
        if not self.processes or now <= self._start_by:
            return None
        if self.refusals:
            reasons = [f"host {host}: {event.text}" for host, event in self.refusals.items()]
            return "\n".join(reasons), max(event.code for event in self.refusals.values())
        late = f"within {self._seconds:g} s (--start-timeout)"
        if self.absent:
            names = ", ".join(host.host for host in self.absent)
            return f"no answer from {names} {late}", FAILED
        return f"rank {min(self.processes)} did not start {late}", FAILED
