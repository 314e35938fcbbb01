"""The data loader interface, and a mixin that reads ahead in a thread."""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger("sirtaki.data")


class BaseDataLoader(ABC):
    """A source of batches; derived classes define `__len__` and `_iterate`."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches of an epoch."""

    @abstractmethod
    def _iterate(self) -> Iterator[Any]:
        """Yield the batches of one epoch."""

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Return the item to deliver for a batch; called in the consumer's thread."""
        return batch


@dataclass(frozen=True)
class _End:
    """Marks the end of an epoch, with the error that ended it early, if any."""

    error: BaseException | None = None


class _ReadAhead:
    """A thread that runs an iterator and keeps up to `size` of its items ready."""

    def __init__(self, items: Iterator[Any], size: int) -> None:
        self._items = items
        self._queue: queue.Queue[Any] = queue.Queue(size)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sirtaki-data", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        while True:
            item = self._queue.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    def close(self) -> None:
        self._closed.set()
        while True:
            try:  # makes room for a thread that waits for it
                self._queue.get(timeout=0.01)
            except queue.Empty:
                if not self._thread.is_alive():
                    break
        # Other threads that still wait for an item get no more.
        self._queue.put(_End())

    def _work(self) -> None:
        end = _End()
        try:
            for item in self._items:
                if self._closed.is_set():
                    return
                self._queue.put(item)
        except BaseException as error:  # raised where the items are read
            end = _End(error)
        if not self._closed.is_set():
            self._queue.put(end)


class AsyncDataLoaderMixin:
    """Reads ahead in a thread: `class MyAsyncLoader(AsyncDataLoaderMixin, MyLoader): ...`.

    Each iteration has its own thread, which ends with it, even if the loop ends early. An exception
    of the loader is raised from the iteration, after the preceding batches.

    Args:
        async_loader_queue_size: the number of batches kept ready; 0 for none, and no thread.
        debug_data_loader: log when reading ahead starts and ends.
        args: for the data loader.
        kwargs: for the data loader.
    """

    def __init__(
        self,
        async_loader_queue_size: int = 64,
        debug_data_loader: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._read_ahead: _ReadAhead | None = None
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        reader = _ReadAhead(self._iterate(), self.async_loader_queue_size)  # type: ignore[attr-defined]
        self._read_ahead = reader
        self._debug("reads ahead up to %d batches", self.async_loader_queue_size)
        try:
            for batch in reader:
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            reader.close()
            self._debug("has ended")

    def close_async_loader(self) -> None:
        """Stop reading ahead and end the iteration under way, if there is one."""
        if self._read_ahead is not None:
            self._read_ahead.close()
            self._read_ahead = None

    def _debug(self, message: str, *args: object) -> None:
        if self.debug_data_loader:
            _log.info("%s " + message, type(self).__name__, *args)
