"""Tags by which the ends of a connection verify the content and order of messages."""

from __future__ import annotations

import struct

from sirtaki.rendezvous.trust import auth, digests

_NUMBER = struct.Struct("!Q")
_TAG_BYTES = 32


class AlteredError(auth.AuthenticationError):
    """Data was changed, repeated, reordered or dropped on its way."""


class Seal:
    """Makes and checks the tags of one connection.

    Each piece of data has a tag: an HMAC-SHA256 over the piece's number in its direction and its
    bytes, under the direction's key. keys: shared by both ends; None if the kernel vouches for the
    other end, and pieces have no tags. tag_bytes: size of a tag.
    """

    def __init__(self, keys: auth.Keys | None = None) -> None:
        self._keys = keys
        self.tag_bytes = 0 if keys is None else _TAG_BYTES

    def sealed(self, number: int, piece: bytes) -> bytes:
        """Return a piece, the number-th that we send, followed by its tag."""
        if self._keys is None:
            return piece
        return piece + _tag(self._keys.sending, number, piece)

    def opened(self, number: int, sealed: bytes | bytearray | memoryview) -> bytes:
        """Verify the tag of a received piece, and return the piece. Raises AlteredError."""
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
