"""Loaders that read ahead give what they give without reading ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sirtaki.data import AsyncDataLoaderMixin, BaseDataLoader


class Numbers(BaseDataLoader):
    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count = count
        self.fail_at = fail_at
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return self.count

    def _iterate(self) -> Iterator[int]:
        for i in range(self.count):
            if i == self.fail_at:
                raise OSError("the disk is gone")
            self.threads.add(threading.current_thread().name)
            yield i

    def _process_batch(self, batch: int) -> int:
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sirtaki-data"]


@pytest.mark.parametrize("size", [1, 3, 64])
def test_batches_come_in_order_in_every_epoch(size: int) -> None:
    loader = AsyncNumbers(async_loader_queue_size=size, count=10)
    for _ in range(3):
        assert list(loader) == [10 * i for i in range(10)]
    assert len(loader) == 10
    assert loader.threads == {"sirtaki-data"}
    assert not readers()


def test_without_a_queue_there_is_no_thread() -> None:
    loader = AsyncNumbers(async_loader_queue_size=0, count=10)
    assert list(loader) == [10 * i for i in range(10)]
    assert loader.threads == {threading.current_thread().name}


def test_no_batches_are_no_batches() -> None:
    assert list(AsyncNumbers(count=0)) == []


def test_the_thread_ends_when_the_loop_is_left_early() -> None:
    for batch in AsyncNumbers(async_loader_queue_size=2, count=1000):
        if batch == 50:
            break
    assert not readers()


def test_an_error_comes_after_the_batches_before_it() -> None:
    got = []
    with pytest.raises(OSError, match="disk"):  # noqa: PT012
        for batch in AsyncNumbers(count=10, fail_at=3):
            got.append(batch)
    assert got == [0, 10, 20]
    assert not readers()


def test_closing_ends_an_iteration_under_way() -> None:
    loader = AsyncNumbers(async_loader_queue_size=2, count=1000)
    iterator = iter(loader)
    assert next(iterator) == 0
    loader.close_async_loader()
    assert list(iterator) == []
    assert not readers()
    assert list(loader)[-1] == 9990


def test_closing_without_an_iteration_does_nothing() -> None:
    AsyncNumbers(count=3).close_async_loader()
