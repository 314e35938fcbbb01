"""A barrier that names missing ranks, at the store, so that it works without an engine."""

from __future__ import annotations

import time

from sirtaki import _core
from sirtaki.core.errors import CollectiveTimeoutError
from sirtaki.core.operations import codes
from sirtaki.torch.distributed.meeting.store import TorchStore

# How often a rank that waits at the engine checks the store.
_LOOK_SECONDS = 0.5


class _Pulse:
    """An engine's barrier beside the store's, which cannot detect lost ranks.

    Args:
        engine: The engine of the group.
        name: The barrier's name, the same on all ranks.
    """

    def __init__(self, engine: _core.Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._repeats = 0
        self._start()
        self.all_came = False

    def feel(self, seconds: float) -> None:
        """Wait for all ranks or until the time limit; raises the error of a lost rank."""
        if not self._engine.wait(self._handle, seconds, for_ever=False):
            return
        try:
            self._handle.check()
            self.all_came = True
        except CollectiveTimeoutError:  # the group's time limit, which may end before the program's
            self._repeats += 1
            self._start()

    def _start(self) -> None:
        name = f"{self._name} {self._repeats}" if self._repeats else self._name
        self._handle = self._engine.submit(_core.Request(codes.BARRIER, name=name), None)


class MonitoredBarrier:
    """The successive monitored barriers of one rank of a group.

    Args:
        store: The store of the meeting.
        rank: This process's number in the group.
        size: The number of members.
    """

    def __init__(self, store: TorchStore, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._count = 0

    def wait(self, engine: _core.Engine, seconds: float, wait_all_ranks: bool) -> None:
        """Wait until all ranks have reached their barrier with this number.

        Args:
            engine: The engine of the group.
            seconds: The time limit.
            wait_all_ranks: Whether rank 0 names all missing ranks, or only the first.

        Raises:
            CollectiveTimeoutError: Some ranks did not arrive.
            PeerLostError: A rank was lost meanwhile.
        """
        self._count += 1
        pulse = _Pulse(engine, f"monitored_barrier {self._count}")
        if self._rank == 0:
            self._lead(pulse, seconds, wait_all_ranks)
        else:
            self._follow(pulse, seconds)

    def _lead(self, pulse: _Pulse, seconds: float, wait_all_ranks: bool) -> None:
        if seconds <= 0:
            raise CollectiveTimeoutError("Rank 0 timed out in monitoredBarrier after 0 s")
        self._store.set(_arrival(self._count, 0), b"")
        missing = self._missing(pulse, seconds, wait_all_ranks)
        named = ", ".join(map(str, missing))
        self._store.set(_verdict(self._count), named.encode())
        if missing:
            raise CollectiveTimeoutError(
                f"{'Ranks' if wait_all_ranks else 'Rank'} {named} failed to pass monitoredBarrier "
                f"in {seconds:g} s; the group has {self._size} ranks"
            )
        self._forget(self._count - 1)

    def _missing(self, pulse: _Pulse, seconds: float, wait_all_ranks: bool) -> list[int]:
        """Wait for the others; return the missing ones, or the first of them."""
        deadline = time.monotonic() + seconds
        missing = []
        for rank in range(1, self._size):
            if not self._await(_arrival(self._count, rank), pulse, deadline):
                missing.append(rank)
                if not wait_all_ranks:
                    break
        return missing

    def _follow(self, pulse: _Pulse, seconds: float) -> None:
        missing = ""
        try:
            self._store.set(_arrival(self._count, self._rank), b"")
            if not self._await(_verdict(self._count), pulse, time.monotonic() + seconds):
                absent = (rank for rank in range(self._size) if not self._has_come(rank))
                missing = ", ".join(map(str, absent))
            elif not pulse.all_came:
                missing = self._store.get(_verdict(self._count), seconds).decode()
        except ConnectionError as error:
            pulse.feel(_LOOK_SECONDS)  # rank 0, which may have served the store
            raise CollectiveTimeoutError(f"{self._stranded()}: {error}") from error
        if missing:
            raise CollectiveTimeoutError(
                f"{self._stranded()} within {seconds:g} s. Missing ranks: {missing}"
            )

    def _await(self, key: str, pulse: _Pulse, deadline: float) -> bool:
        """Wait for a key, or for all ranks; return whether it came in time."""
        while not pulse.all_came and not self._store.has(key):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            pulse.feel(min(left, _LOOK_SECONDS))
        return True

    def _stranded(self) -> str:
        return (
            f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0"
        )

    def _has_come(self, rank: int) -> bool:
        return self._store.has(_arrival(self._count, rank))

    def _forget(self, count: int) -> None:
        """Remove the keys of an earlier barrier, which every rank here has passed."""
        for rank in range(self._size):
            self._store.remove(_arrival(count, rank))
        self._store.remove(_verdict(count))


def _arrival(count: int, rank: int) -> str:
    return f"monitored/{count}/{rank}"


def _verdict(count: int) -> str:
    return f"monitored/{count}/missing"
