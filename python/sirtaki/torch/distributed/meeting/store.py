"""A PyTorch program's store as the meeting place of our ranks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from sirtaki.rendezvous.network.tcp_socket import format_endpoints

_FIRST_PAUSE_SECONDS = 0.0005
_LONGEST_PAUSE_SECONDS = 0.05
# How often a waiting rank checks that it waits at the right meeting.
_LOOK_SECONDS = 0.5


class TorchStore:
    """A `sirtaki.rendezvous.stores.store.Store` within one of PyTorch's.

    Like PyTorch's own stores, it has no authentication, so it must hold no secret.

    Attributes:
        name: The last part of the prefix.

    Args:
        store: PyTorch's store.
        prefix: The prefix of the keys, unique to the meeting.
        look: Called regularly during a wait for a key; its exceptions end the wait.
    """

    def __init__(self, store: Store, prefix: str, look: Callable[[], None] | None = None) -> None:
        self._store = store
        self.name = prefix.rpartition("/")[2]
        self._prefix = f"{prefix}/"
        self._look = look
        self._left: set[str] = set()
        self.address = _address_of(store)

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """Set a value for the other ranks."""
        self._left.add(key)
        with _gone():
            self._store.set(self._prefix + key, value)  # type: ignore[arg-type]  # bytes, too

    def get(self, key: str, timeout: float) -> bytes:
        """Return the value of a key once it is set; TimeoutError if nobody sets it."""
        try:
            with _gone():
                if self._look is not None:
                    self._await(key, timeout, self._look)
                limit = timedelta(seconds=max(timeout, 0.001))
                self._store.wait([self._prefix + key], limit)
                return bytes(self._store.get(self._prefix + key))
        except TimeoutError as error:
            raise TimeoutError(f"nobody set {key!r} within {timeout:g} s") from error

    def is_first(self, key: str) -> bool:
        """Return whether this is the first call for a key."""
        return self.count(key) == 1

    def count(self, key: str) -> int:
        """Return the number of calls for a key."""
        with _gone():
            return self._store.add(self._prefix + key, 1)

    def swap(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Set a key if it has the expected value, or b"" if it is not set.

        Returns:
            The resulting value; the expected value if the key is not set and a value is expected.
        """
        with _gone():
            theirs: Any = self._store.compare_set
            return bytes(theirs(self._prefix + key, expected, value))

    def has(self, key: str) -> bool:
        """Return whether a key is set."""
        with _gone():
            return bool(self._store.check([self._prefix + key]))

    def peek(self, key: str) -> bytes | None:
        """Return the value of a key, None if it is not set."""
        return self.get(key, 1.0) if self.has(key) else None

    def remove(self, key: str) -> None:
        """Remove a key, if it exists."""
        self._left.discard(key)
        with _gone():
            self._store.delete_key(self._prefix + key)

    def left(self) -> list[str]:
        """Return the keys that this rank has set and not removed through this object."""
        return sorted(self._left)

    def close(self) -> None:
        """Do nothing: the program owns the store."""

    def _await(self, key: str, timeout: float, look: Callable[[], None]) -> None:
        # PyTorch's waits write to stderr when they time out.
        pause, now = _FIRST_PAUSE_SECONDS, time.monotonic()
        deadline, next_look = now + timeout, now + _LOOK_SECONDS
        while not self.has(key):
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError("timed out")
            if now >= next_look:
                try:
                    look()
                except Exception:
                    if self.has(key):
                        return
                    raise
                next_look = now + _LOOK_SECONDS
            time.sleep(min(pause, deadline - now))
            pause = min(1.5 * pause, _LONGEST_PAUSE_SECONDS)


@contextlib.contextmanager
def _gone() -> Iterator[None]:
    """Raise ConnectionError if PyTorch reports that the store is unreachable."""
    try:
        yield
    except (dist.DistNetworkError, dist.DistStoreError, RuntimeError) as error:
        if "imed out" in str(error) or "imeout" in str(error):
            raise TimeoutError(str(error)) from error
        raise ConnectionError(f"the store of the process group is gone: {error}") from error


def _address_of(store: Any) -> str:
    """Return the address of a TCP store, which shows the network that leads to the other ranks."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        return "tcp:" + format_endpoints([store.host], store.port)
    return "torch:"
