"""Batches made ahead of the trainer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Raw = TypeVar("Raw")
Ready = TypeVar("Ready")


class Prefetcher(Generic[Raw, Ready]):
    """Makes batches in threads; they come out in the order in which they were read.

    Args:
        read: Reads the next batch; called by one thread at a time.
        make: Decodes and transforms what was read; called by several threads.
        depth: Batches made ahead.
        threads: Threads that make them.
    """

    def __init__(
        self, read: Callable[[], Raw], make: Callable[[Raw], Ready], depth: int, threads: int
    ) -> None:
        self._read = read
        self._make = make
        self._reader = ThreadPoolExecutor(1, "sirtaki-caffe-read")
        self._makers = ThreadPoolExecutor(threads, "sirtaki-caffe-data")
        self._ahead: deque[Future[Future[Ready]]] = deque()
        for _ in range(depth):
            self._order()

    def next(self) -> Ready:
        """The next batch; raises what reading or making it raised."""
        self._order()
        return self._ahead.popleft().result().result()

    def close(self) -> None:
        """End its threads."""
        self._reader.shutdown(cancel_futures=True)
        self._makers.shutdown(cancel_futures=True)

    def _order(self) -> None:
        self._ahead.append(self._reader.submit(self._start))

    def _start(self) -> Future[Ready]:
        return self._makers.submit(self._make, self._read())
