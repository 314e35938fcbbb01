"""Protobuf's binary format written out by hand, as a judge of what the package reads and writes."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def number(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def varint(field: int, value: int) -> bytes:
    return number(field * 8) + number(value)


def message(field: int, *content: bytes) -> bytes:
    data = b"".join(content)
    return number(field * 8 + 2) + number(len(data)) + data


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def real(field: int, value: float) -> bytes:
    return number(field * 8 + 5) + struct.pack("<f", value)


def packed(field: int, values: Iterable[float], kind: str = "f") -> bytes:
    return message(field, *(struct.pack("<" + kind, value) for value in values))


def unpacked(field: int, values: Iterable[float], kind: str = "f") -> bytes:
    tag = number(field * 8 + (5 if kind == "f" else 1))
    return b"".join(tag + struct.pack("<" + kind, value) for value in values)


def shape(*dims: int) -> bytes:
    """BlobProto's field of that name."""
    return message(7, message(1, *map(number, dims)) if dims else b"")
