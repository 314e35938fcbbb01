"""What a client and a server of a store say to each other: one request, one answer."""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAX_KEY_BYTES = 1 << 10
MAX_VALUE_BYTES = 64 << 20

SET = 1
GET = 2

_REQUEST = struct.Struct("!BHI")  # kind, bytes of the key, bytes of the value
_ANSWER = struct.Struct("!I")  # bytes of the value
ANSWER_BYTES = _ANSWER.size


@dataclass(frozen=True)
class Request:
    """What a client wants: to SET `key` to `value`, or to GET it."""

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


def pack_request(kind: int, key: bytes, value_bytes: int) -> bytes:
    """Return what precedes the value on the wire."""
    return _REQUEST.pack(kind, len(key), value_bytes) + key


def pack_answer(value: bytes) -> bytes:
    """Return an answer as it is on the wire."""
    return _ANSWER.pack(len(value)) + value


def answer_bytes(header: bytes) -> int:
    """Return how many bytes follow an answer's first `ANSWER_BYTES`. ValueError: too many."""
    (size,) = _ANSWER.unpack(header)
    if size > MAX_VALUE_BYTES:
        raise ValueError(f"an answer of {size} bytes is more than the {MAX_VALUE_BYTES} allowed")
    return int(size)


def parse_request(data: bytes | bytearray) -> Request | None:
    """Return the request that `data` is, None when more of it must arrive first.

    Raises ValueError for anything that cannot become exactly one request.
    """
    if len(data) < _REQUEST.size:
        return None
    kind, key_bytes, value_bytes = _REQUEST.unpack_from(data)
    if kind not in (SET, GET):
        raise ValueError(f"a request of kind {kind} does not exist")
    if not 0 < key_bytes <= MAX_KEY_BYTES:
        raise ValueError(f"a key of {key_bytes} bytes is not allowed")
    if value_bytes > (MAX_VALUE_BYTES if kind == SET else 0):
        raise ValueError(f"a value of {value_bytes} bytes is not allowed")
    start = _REQUEST.size + key_bytes
    if len(data) < start + value_bytes:
        return None
    if len(data) > start + value_bytes:
        raise ValueError("more than one request arrived")
    key = bytes(data[_REQUEST.size : start]).decode()
    return Request(kind, key, bytes(memoryview(data)[start:]))
