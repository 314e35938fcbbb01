"""Protobuf's binary format, as far as weights files need it, without copies of the numbers.

Fields are read one by one from the file's memory: a declared length is compared with the available
bytes before anything is created from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED32: 4, FIXED64: 8}

#: The content of a field: a number, or the bytes of a string, a message or fixed-size numbers.
Content = int | memoryview


class WireError(ValueError):
    """Bytes that are not a message."""


def fields(data: memoryview) -> Iterator[tuple[int, int, Content]]:
    """Yield the fields of a message: number, wire type, content.

    Consecutive fixed-size numbers of one field form one content.

    Raises:
        WireError: The bytes are invalid.
    """
    at = 0
    while at < len(data):
        number, kind, value, at = _field(data, at)
        yield number, kind, value


def raw_fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the fields of a message: number, and all its bytes.

    Raises:
        WireError: The bytes are invalid.
    """
    at = 0
    while at < len(data):
        start = at
        number, _, _, at = _field(data, at)
        yield number, data[start:at]


def _field(data: memoryview, start: int) -> tuple[int, int, Content, int]:
    """Return the field that begins at `start`, and its end."""
    tag, at = varint(data, start)
    number, kind = tag >> 3, tag & 7
    if number == 0:
        raise WireError("a field without a number")
    if kind == VARINT:
        value, at = varint(data, at)
        return number, kind, value, at
    if kind == BYTES:
        size, at = varint(data, at)
        if size > len(data) - at:
            raise WireError(f"field {number} says {size} bytes, {len(data) - at} are left")
        return number, kind, data[at : at + size], at + size
    if kind not in _FIXED:
        raise WireError(f"field {number} is of an unknown kind {kind}")
    width = at - start + _FIXED[kind]
    run = _run(data, start, at - start, _FIXED[kind])
    return number, kind, run, start + len(run) // _FIXED[kind] * width


def _run(data: memoryview, start: int, tag: int, size: int) -> memoryview:
    """Return the fixed-size numbers from `start` on with the same tag, of `tag` bytes."""
    width = tag + size
    most = (len(data) - start) // width
    if most == 0:
        raise WireError("the end of the bytes in a number")
    first = np.frombuffer(data[start : start + tag], np.uint8)
    parts = []
    count, step = 0, 16
    while count < most:
        step = min(step, most - count)
        begin = start + count * width
        block = np.frombuffer(data[begin : begin + step * width], np.uint8).reshape(step, width)
        same = (block[:, :tag] == first).all(axis=1)
        alike = step if same.all() else int(same.argmin())
        parts.append(block[:alike, tag:].tobytes())
        count += alike
        if alike < step:
            break
        step *= 4
    return memoryview(b"".join(parts))


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and its end.

    Raises:
        WireError: There is none.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise WireError("the end of the bytes in a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise WireError("a number of more than 10 bytes")


def signed(value: Content) -> int:
    """Return the int32 or int64 in a varint.

    Raises:
        WireError: The field is not a varint.
    """
    if not isinstance(value, int):
        raise WireError("bytes where a number is expected")
    return value - 2**64 if value >= 2**63 else value


def content(value: Content) -> memoryview:
    """Return the bytes of a field.

    Raises:
        WireError: The field is a number.
    """
    if isinstance(value, int):
        raise WireError("a number where bytes are expected")
    return value


def string(value: Content) -> str:
    """Return the text of a field.

    Raises:
        WireError: The field is not text.
    """
    try:
        return bytes(content(value)).decode()
    except UnicodeDecodeError as error:
        raise WireError("a name that is not UTF-8") from error


def varints(values: Iterable[int]) -> bytes:
    """Return consecutive numbers."""
    out = bytearray()
    for each in values:
        value = each & (2**64 - 1)
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def head(number: int, size: int) -> bytes:
    """Return the beginning of a field with `size` bytes."""
    return varints([number << 3 | BYTES, size])


def tagged(number: int, data: bytes) -> bytes:
    """Return a field with bytes."""
    return head(number, len(data)) + data


def counted(number: int, value: int) -> bytes:
    """Return a field with a varint."""
    return varints([number << 3 | VARINT, value])


def single(number: int, value: float) -> bytes:
    """Return a field with a float."""
    return varints([number << 3 | FIXED32]) + struct.pack("<f", value)
