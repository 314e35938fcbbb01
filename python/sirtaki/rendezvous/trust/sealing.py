"""Tags by which the two ends of a connection know what the other has sent, and in which order."""

from __future__ import annotations

import struct

from sirtaki.rendezvous.trust import auth, digests

_NUMBER = struct.Struct("!Q")
_TAG_BYTES = 32


class AlteredError(auth.AuthenticationError):
    """Somebody in between has changed, repeated, moved or left out what was sent."""


class Seal:
    """Makes and checks the tags of one connection.

    Each piece of what is sent has a tag: an HMAC-SHA256 over the piece's number in its direction
    and its bytes, under the direction's key. keys: what both ends share; None where the kernel
    vouches for the other end, and nothing is tagged. tag_bytes: size of a tag.
    """

    def __init__(self, keys: auth.Keys | None = None) -> None:
        self._keys = keys
        self.tag_bytes = 0 if keys is None else _TAG_BYTES

    def sealed(self, number: int, piece: bytes) -> bytes:
        """Return the piece, which is the number-th that we send, with its tag behind it."""
        if self._keys is None:
            return piece
        return piece + _tag(self._keys.sending, number, piece)

    def opened(self, number: int, sealed: bytes | bytearray | memoryview) -> bytes:
        """Return a piece that was received with its tag. Raises AlteredError."""
        size = len(sealed) - self.tag_bytes
        piece = bytes(memoryview(sealed)[: max(0, size)])
        if self._keys is None:
            return piece
        tag = bytes(memoryview(sealed)[len(piece) :])
        if not digests.equal(tag, _tag(self._keys.receiving, number, piece)):
            raise AlteredError("a message was altered on its way")
        return piece


def _tag(key: bytes, number: int, piece: bytes) -> bytes:
    return digests.keyed(key, _NUMBER.pack(number) + piece)
