"""Authentication of pickled objects from other hosts, without which unpickling is unsafe.

A header of fixed size precedes an object. Between hosts the header holds the object's digest under
an HMAC, with a key that only this world has. So a rank trusts nothing, not even a size, that the
sender did not send now and for this call.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

from sirtaki.core.errors import HorovodInternalError
from sirtaki.records import dataclass
from sirtaki.rendezvous.trust import digests

_SIZE = struct.Struct("!Q")
_SEALED = struct.Struct("!QQ32s")  # size, number, digest
_CALL = struct.Struct("!iI")  # process set, sender
_TAG_BYTES = 32
# Threads may overtake each other by so many objects.
_WINDOW = 1024


@dataclass(frozen=True)
class Call:
    """What an object is for: the operation and its name, and the number of the process set."""

    operation: str
    name: str
    process_set: int

    def pack(self, sender: int) -> bytes:
        """Return it with the sender as bytes, different for all that differ."""
        return _CALL.pack(self.process_set, sender) + f"{self.operation}\0{self.name}\0".encode()


@dataclass(frozen=True)
class SealedObject:
    """What a header says of its object. digest: None on one host, where nobody is between."""

    size: int
    digest: bytes | None = None


class ObjectSeals:
    """Vouches for objects of this rank and checks those of others; safe to use from threads.

    key: that only this world has; None in a world on one host. hosts: of each rank, for messages.
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
        """Return what goes before `data`, which we, the rank `sender`, are about to send."""
        if self._key is None:
            return _SIZE.pack(len(data))
        with self._lock:
            self._sent += 1
            number = self._sent
        header = _SEALED.pack(len(data), number, digests.sha256(data))
        return header + digests.keyed(self._key, call.pack(sender) + header)

    def parse(self, call: Call, sender: int, header: bytes) -> SealedObject:
        """Return what the sender's header says. Raises HorovodInternalError when it was altered."""
        if self._key is None:
            return SealedObject(*_SIZE.unpack(header))
        sealed, tag = header[: _SEALED.size], header[_SEALED.size :]
        expected = digests.keyed(self._key, call.pack(sender) + sealed)
        size, number, digest = _SEALED.unpack(sealed)
        if not digests.equal(tag, expected) or not self._take(sender, number):
            raise self._fail(call, sender)
        return SealedObject(size, digest)

    def require(self, call: Call, sender: int, sealed: SealedObject, data: memoryview) -> None:
        """Raise HorovodInternalError unless `data` is what the sender has sealed."""
        if sealed.digest is None:
            return
        if not digests.equal(sealed.digest, digests.sha256(data)):
            raise self._fail(call, sender)

    def _take(self, sender: int, number: int) -> bool:
        with self._lock:
            # What an attacker kept back when we failed must not be believed later.
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
    """Which numbers of a sender have been taken: none twice, and none long after later ones."""

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
