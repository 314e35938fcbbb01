"""The store that a PyTorch program has met at, as the place where our ranks meet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from sirtaki.rendezvous.network.tcp_socket import format_endpoints


class TorchStore:
    """A `sirtaki.rendezvous.stores.store.Store` in one of PyTorch's.

    It authenticates nobody, as PyTorch's own do not: who can write there can join.

    Args:
        store: PyTorch's.
        attempt: Another one whenever the same ranks meet at the same store again, for what they
            left there the last time is still there.
    """

    def __init__(self, store: Store, attempt: str) -> None:
        self._store = store
        self._prefix = f"sirtaki/{attempt}/"
        self.address = _address_of(store)

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """Leave a value for the other ranks."""
        with _gone():
            self._store.set(self._prefix + key, value)  # type: ignore[arg-type]  # bytes, too

    def get(self, key: str, timeout: float) -> bytes:
        """Return the value of a key, once somebody has set it; TimeoutError if nobody does."""
        try:
            with _gone():
                self._store.wait([self._prefix + key], timedelta(seconds=max(timeout, 0.001)))
                return bytes(self._store.get(self._prefix + key))
        except TimeoutError as error:
            raise TimeoutError(f"nobody set {key!r} within {timeout:g} s") from error

    def is_first(self, key: str) -> bool:
        """Say whether nobody has asked this about a key before."""
        return self._store.add(self._prefix + key, 1) == 1

    def has(self, key: str) -> bool:
        """Say whether somebody has set a key."""
        with _gone():
            return bool(self._store.check([self._prefix + key]))

    def remove(self, key: str) -> None:
        """Forget a key, whether it is there or not."""
        self._store.delete_key(self._prefix + key)

    def close(self) -> None:
        """Do nothing: the store is the program's."""


@contextlib.contextmanager
def _gone() -> Iterator[None]:
    """Raise ConnectionError where PyTorch says that the store cannot be reached."""
    try:
        yield
    except (dist.DistNetworkError, dist.DistStoreError, RuntimeError) as error:
        if "imed out" in str(error) or "imeout" in str(error):
            raise TimeoutError(str(error)) from error
        raise ConnectionError(f"the store of the process group is gone: {error}") from error


def _address_of(store: Any) -> str:
    """Where a TCP store is, which tells the network that leads to the other ranks."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        return "tcp:" + format_endpoints([store.host], store.port)
    return "torch:"
