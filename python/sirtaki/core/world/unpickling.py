"""Authentication of pickled objects from other hosts, so that unpickling is safe.

A header of fixed size precedes an object. Between hosts the header holds the object's digest under
an HMAC, with a key that only this world has. So a rank trusts nothing, not even a size, that the
sender did not send now and for this call.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

from sirtaki.core.errors import HorovodInternalError
from sirtaki.rendezvous.trust import digests

_SIZE = struct.Struct("!Q")
_SEALED = struct.Struct("!QQ32s")  # size, number, digest
_CALL = struct.Struct("!iI")  # process set, sender
_TAG_BYTES = 32
# Threads may reorder at most this many objects.
_WINDOW = 1024


class Call(NamedTuple):
    """The purpose of an object: its operation and name, and the number of the process set."""

    operation: str
    name: str
    process_set: int

    def pack(self, sender: int) -> bytes:
        """Return the call and the sender as bytes, unique for each combination."""
        return _CALL.pack(self.process_set, sender) + f"{self.operation}\0{self.name}\0".encode()


class SealedObject(NamedTuple):
    """The content of an object's header. digest: None within one host, where none is needed."""

    size: int
    digest: bytes | None = None


class ObjectSeals:
    """Signs objects of this rank and verifies those of others; thread-safe.

    key: private to this world; None in a world on one host. hosts: of each rank, for messages.
    header_bytes: the size of every header.
    """

    def __init__(self, key: bytes | None, hosts: Sequence[str]) -> None:
        self._key = key
        self._hosts = hosts
        self._lock = threading.Lock()
        self._sent = 0
        self._taken: dict[int, _Window] = {}
        self._failure = ""
        self.header_bytes = _SIZE.size if key is None else _SEALED.size + _TAG_BYTES

    def header(self, call: Call, sender: int, data: memoryview) -> bytes:
        """Return the header that precedes `data` from us, the rank `sender`."""
        if self._key is None:
            return _SIZE.pack(len(data))
        with self._lock:
            self._sent += 1
            number = self._sent
        header = _SEALED.pack(len(data), number, digests.sha256(data))
        return header + digests.keyed(self._key, call.pack(sender) + header)

    def parse(self, call: Call, sender: int, header: bytes) -> SealedObject:
        """Return the parsed header. Raises HorovodInternalError if it was altered."""
        if self._key is None:
            return SealedObject(*_SIZE.unpack(header))
        sealed, tag = header[: _SEALED.size], header[_SEALED.size :]
        expected = digests.keyed(self._key, call.pack(sender) + sealed)
        size, number, digest = _SEALED.unpack(sealed)
        if not digests.equal(tag, expected) or not self._take(sender, number):
            raise self._fail(call, sender)
        return SealedObject(size, digest)

    def require(self, call: Call, sender: int, sealed: SealedObject, data: memoryview) -> None:
        """Raise HorovodInternalError unless `data` matches the sender's digest."""
        if sealed.digest is None:
            return
        if not digests.equal(sealed.digest, digests.sha256(data)):
            raise self._fail(call, sender)

    def _take(self, sender: int, number: int) -> bool:
        with self._lock:
            # After a failure, objects that an attacker held back must not be accepted.
            return not self._failure and self._taken.setdefault(sender, _Window()).take(number)

    def _fail(self, call: Call, sender: int) -> HorovodInternalError:
        with self._lock:
            self._failure = self._failure or (
                f"the object that rank {sender} ({self._hosts[sender]}) sent for {call.operation} "
                f"{call.name!r} was altered on its way and has not been unpickled: somebody on the "
                "network between the hosts changes what they send; this world exchanges no more "
                "objects"
            )
            return HorovodInternalError(self._failure)


class _Window:
    """The accepted numbers of a sender: each once, and none long after later ones."""

    def __init__(self) -> None:
        self._newest = 0
        self._recent: set[int] = set()

    def take(self, number: int) -> bool:
        if number <= self._newest - _WINDOW or number in self._recent:
            return False
        self._newest = max(self._newest, number)
        self._recent.add(number)
        if len(self._recent) > 2 * _WINDOW:
            self._recent = {one for one in self._recent if one > self._newest - _WINDOW}
        return True
