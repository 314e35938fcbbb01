"""Processes that leave: after a signal to them or the launcher, or by an error of their program."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sirtaki.launch.errors import REQUEUE
from sirtaki.rendezvous.world.elastic import Raised, Training

# A scheduler's signal does not reach all processes of a job at the same time.
_SETTLE_SECONDS = 0.3
# The exit code of all processes, by signal; after a warning signal the job continues later.
CODES: dict[int, int] = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGUSR1: REQUEUE}


@dataclass
class Farewell:
    """All processes must leave. until: when the rest are ended. left: how many have left."""

    signal: int
    until: float
    left: int = 0

    @property
    def code(self) -> int:
        """The exit code of the processes, and then of the launcher."""
        return CODES[self.signal]


class Departures:
    """Which processes train, so that they can leave between two steps, and which asked to leave."""

    def __init__(self) -> None:
        self._training: dict[int, tuple[int, ...]] = {}
        self._asked: dict[int, int] = {}
        self.settles_at: float | None = None

    @property
    def has_trained(self) -> bool:
        """Whether any process has begun to train."""
        return bool(self._training)

    def take(self, said: Training) -> None:
        """Record that a process has begun to train."""
        self._training[said.id] = tuple(said.signals)

    def ask(self, process_id: int, number: int, now: float) -> None:
        """Record that a process received a signal, or must leave as if it had."""
        self._asked.setdefault(process_id, number)
        if self.settles_at is None:
            self.settles_at = now + _SETTLE_SECONDS

    def has_asked(self, process_id: int) -> bool:
        """Return whether a process leaves because of a signal."""
        return process_id in self._asked

    def settled(self, now: float) -> bool:
        """Return True, once, when the processes that asked must leave."""
        if self.settles_at is None or now < self.settles_at:
            return False
        self.settles_at = None
        return True

    def can_all(self, members: Collection[int], number: int) -> bool:
        """Return whether a signal makes all members leave by themselves."""
        return bool(members) and all(number in self._training.get(id, ()) for id in members)

    def of_all(self, members: Iterable[int]) -> int | None:
        """Return the signal that makes all members leave, None unless all leave."""
        numbers = {self._asked.get(member) for member in members}
        if not numbers or None in numbers:
            return None
        return signal.SIGTERM if signal.SIGTERM in numbers else signal.SIGUSR1


class ProgramErrors:
    """The exceptions that the processes' training functions have raised."""

    def __init__(self) -> None:
        self._raised: dict[int, Raised] = {}
        self._counted: list[tuple[Raised, str]] = []

    def take(self, raised: Raised) -> None:
        """Record the exception that ends a process."""
        self._raised[raised.id] = raised

    def forget(self, process_id: int) -> None:
        """Forget a process's exception: the process goes on."""
        self._raised.pop(process_id, None)

    def of(self, process_id: int) -> Raised | None:
        """Return the exception that a process reported."""
        return self._raised.get(process_id)

    def ended(self, process_id: int, host: str, hosts: Collection[str]) -> str:
        """Return why the error that ended a process is the program's, "" if it is not.

        hosts: those with processes of the job, including this process's.
        """
        raised = self._raised.get(process_id)
        if raised is None:
            return ""
        same = [(other, where) for other, where in self._counted if other.text == raised.text]
        self._counted.append((raised, host))
        if any(other.step == raised.step for other, _ in same):
            return f"the same error came twice after {raised.step} commits: {raised.text}"
        seen = {where for _, where in same} | {host}
        if len(seen) > 1 and seen >= set(hosts):
            return f"the same error came on every host: {raised.text}"
        return ""
