"""Processes that leave because they, or the launcher, have got a signal."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable

from sirtaki.launch.errors import REQUEUE
from sirtaki.records import dataclass
from sirtaki.rendezvous.world.elastic import Training

# What a scheduler signals to all processes of a job does not come at once.
_SETTLE_SECONDS = 0.3
# With which exit code all leave: a warning means that the job is to go on later.
CODES: dict[int, int] = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGUSR1: REQUEUE}


@dataclass
class Farewell:
    """All processes are to leave. until: when those that have not are ended. left: how many did."""

    signal: int
    until: float
    left: int = 0

    @property
    def code(self) -> int:
        """With which they exit, and then the launcher."""
        return CODES[self.signal]


class Departures:
    """Who trains, and so can leave between two steps, and who has asked to."""

    def __init__(self) -> None:
        self._training: dict[int, tuple[int, ...]] = {}
        self._asked: dict[int, int] = {}
        self.settles_at: float | None = None

    def take(self, said: Training) -> None:
        """A process has begun to train."""
        self._training[said.id] = tuple(said.signals)

    def ask(self, process_id: int, number: int, now: float) -> None:
        """A process has got a signal, or is to leave as if it had."""
        self._asked.setdefault(process_id, number)
        if self.settles_at is None:
            self.settles_at = now + _SETTLE_SECONDS

    def has_asked(self, process_id: int) -> bool:
        """Tell whether a process leaves because of a signal."""
        return process_id in self._asked

    def settled(self, now: float) -> bool:
        """Tell, once, that those who have asked are to leave now."""
        if self.settles_at is None or now < self.settles_at:
            return False
        self.settles_at = None
        return True

    def can_all(self, members: Collection[int], number: int) -> bool:
        """Tell whether a signal that has come makes all members leave by themselves."""
        return bool(members) and all(number in self._training.get(id, ()) for id in members)

    def of_all(self, members: Iterable[int]) -> int | None:
        """Return the signal because of which all members leave, None unless all do."""
        numbers = {self._asked.get(member) for member in members}
        if not numbers or None in numbers:
            return None
        return signal.SIGTERM if signal.SIGTERM in numbers else signal.SIGUSR1
