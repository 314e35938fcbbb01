"""A barrier that knows who has not come: at the store, so that it works where nothing else does."""

from __future__ import annotations

import time

from sirtaki.core.errors import CollectiveTimeoutError
from sirtaki.torch.distributed.store import TorchStore


class MonitoredBarrier:
    """The monitored barriers of one rank of a group, one after another.

    Args:
        store: Where the members have met.
        rank: This process's number in the group.
        size: How many members there are.
    """

    def __init__(self, store: TorchStore, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._count = 0

    def wait(self, seconds: float, wait_all_ranks: bool) -> None:
        """Wait until all ranks have come to their barrier with this number.

        Args:
            seconds: How long.
            wait_all_ranks: Whether rank 0 names all ranks that did not come, or only the first.

        Raises:
            CollectiveTimeoutError: Some did not come.
        """
        self._count += 1
        if self._rank == 0:
            self._lead(seconds, wait_all_ranks)
        else:
            self._follow(seconds)

    def _lead(self, seconds: float, wait_all_ranks: bool) -> None:
        if seconds <= 0:
            raise CollectiveTimeoutError("Rank 0 timed out in monitoredBarrier after 0 s")
        self._store.set(_arrival(self._count, 0), b"")
        missing = self._missing(seconds, wait_all_ranks)
        named = ", ".join(map(str, missing))
        self._store.set(_verdict(self._count), named.encode())
        if missing:
            raise CollectiveTimeoutError(
                f"{'Ranks' if wait_all_ranks else 'Rank'} {named} failed to pass monitoredBarrier "
                f"in {seconds:g} s; the group has {self._size} ranks"
            )
        self._forget(self._count - 1)

    def _missing(self, seconds: float, wait_all_ranks: bool) -> list[int]:
        """Wait for the others; return those that did not come, or the first of them."""
        deadline = time.monotonic() + seconds
        missing = []
        for rank in range(1, self._size):
            try:
                self._store.get(_arrival(self._count, rank), deadline - time.monotonic())
            except TimeoutError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        return missing

    def _follow(self, seconds: float) -> None:
        self._store.set(_arrival(self._count, self._rank), b"")
        try:
            missing = self._store.get(_verdict(self._count), seconds).decode()
        except TimeoutError:
            missing = ", ".join(str(rank) for rank in range(self._size) if not self._has_come(rank))
        except ConnectionError as error:
            raise CollectiveTimeoutError(f"{self._stranded()}: {error}") from error
        if missing:
            raise CollectiveTimeoutError(
                f"{self._stranded()} within {seconds:g} s. Missing ranks: {missing}"
            )

    def _stranded(self) -> str:
        return (
            f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0"
        )

    def _has_come(self, rank: int) -> bool:
        return self._store.has(_arrival(self._count, rank))

    def _forget(self, count: int) -> None:
        """Remove what an earlier barrier has left: whoever is here has passed that one."""
        for rank in range(self._size):
            self._store.remove(_arrival(count, rank))
        self._store.remove(_verdict(count))


def _arrival(count: int, rank: int) -> str:
    return f"monitored/{count}/{rank}"


def _verdict(count: int) -> str:
    return f"monitored/{count}/missing"
