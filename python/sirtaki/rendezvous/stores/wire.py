"""The protocol of a store's client and server: one request, one answer.

Each consists of two pieces, sizes and content, and over a network each piece has a tag. Sizes are
used, and content is parsed, only if the tag is correct.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sirtaki.rendezvous.trust.auth import Seal

MAX_KEY_BYTES = 1 << 10
MAX_VALUE_BYTES = 64 << 20

SET = 1
GET = 2
# Returns the current value, or nothing if the key is not set.
PEEK = 3

_REQUEST = struct.Struct("!BHI")  # kind, bytes of the key, bytes of the value
_ANSWER = struct.Struct("!I")  # bytes of the value
_SIZES, _CONTENT = 0, 1  # the pieces


class StoreRequest(NamedTuple):
    """A client's request: SET `key` to `value`, GET it, or PEEK."""

    kind: int
    key: str
    value: bytes


def checked(key: str, value: bytes | bytearray | memoryview = b"") -> bytes:
    """Return the key as bytes. Raises ValueError when it or the value has a bad length."""
    encoded = key.encode()
    if not 0 < len(encoded) <= MAX_KEY_BYTES:
        raise ValueError(f"a key must have 1 to {MAX_KEY_BYTES} bytes, this one has {len(encoded)}")
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError(
            f"the value of {key!r} has {len(value)} bytes, more than the {MAX_VALUE_BYTES} allowed"
        )
    return encoded


def pack_request(kind: int, key: bytes, value: bytes, seal: Seal) -> bytes:
    """Encode a request."""
    sizes = _REQUEST.pack(kind, len(key), len(value))
    return seal.sealed(_SIZES, sizes) + seal.sealed(_CONTENT, key + value)


def pack_answer(value: bytes, seal: Seal) -> bytes:
    """Encode an answer."""
    return seal.sealed(_SIZES, _ANSWER.pack(len(value))) + seal.sealed(_CONTENT, value)


def answer_header_bytes(seal: Seal) -> int:
    """Return the size of an answer's header."""
    return _ANSWER.size + seal.tag_bytes


def answer_content_bytes(header: bytes, seal: Seal) -> int:
    """Return the size of an answer's content. Raises AlteredError; ValueError: too large."""
    (size,) = _ANSWER.unpack(seal.opened(_SIZES, header))
    if size > MAX_VALUE_BYTES:
        raise ValueError(f"an answer of {size} bytes is more than the {MAX_VALUE_BYTES} allowed")
    return int(size) + seal.tag_bytes


def answer_value(content: bytes, seal: Seal) -> bytes:
    """Return the value in an answer's content. Raises AlteredError."""
    return seal.opened(_CONTENT, content)


def parse_request(data: bytes | bytearray, seal: Seal) -> StoreRequest | None:
    """Parse a request; None if it is still incomplete.

    Raises ValueError for data that cannot become exactly one request, AlteredError.
    """
    start = _REQUEST.size + seal.tag_bytes
    if len(data) < start:
        return None
    kind, key_bytes, value_bytes = _REQUEST.unpack(seal.opened(_SIZES, data[:start]))
    if kind not in (SET, GET, PEEK):
        raise ValueError(f"a request of kind {kind} does not exist")
    if not 0 < key_bytes <= MAX_KEY_BYTES:
        raise ValueError(f"a key of {key_bytes} bytes is not allowed")
    if value_bytes > (MAX_VALUE_BYTES if kind == SET else 0):
        raise ValueError(f"a value of {value_bytes} bytes is not allowed")
    end = start + key_bytes + value_bytes + seal.tag_bytes
    if len(data) < end:
        return None
    if len(data) > end:
        raise ValueError("more than one request arrived")
    content = seal.opened(_CONTENT, memoryview(data)[start:])
    return StoreRequest(kind, content[:key_bytes].decode(), content[key_bytes:])
