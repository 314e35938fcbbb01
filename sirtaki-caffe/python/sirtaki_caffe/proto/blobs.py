"""BlobProto: arrays in Caffe's files, and the files of mean images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sirtaki_caffe.errors import BlobError, CaffeError
from sirtaki_caffe.proto.files import read_bytes, written_beside
from sirtaki_caffe.proto.formats import wire
from sirtaki_caffe.proto.schema import BlobProto

Array = npt.NDArray[Any]

#: The maximum bytes of a serialized message: protobuf counts them in an int32.
LARGEST = 2**31 - 1

_MOST_NUMBERS = 2**31 - 1  # elements of a blob, as in Caffe
_MOST_AXES = 32
_NUM, _CHANNELS, _HEIGHT, _WIDTH, _DATA, _DIFF, _SHAPE, _DOUBLE_DATA, _DOUBLE_DIFF = range(1, 10)


@dataclass
class Saved:
    """A blob to write.

    Args:
        data: The values.
        diff: The gradient, if it must be kept.
        owner: Whether its layer owns it; False if another layer shares it.
    """

    data: Array
    diff: Array | None
    owner: bool


def array_of(blob: Any) -> Array:
    """Return a BlobProto's array; blobs with num, channels, height, width have four axes.

    Raises:
        BlobError: Its numbers do not fill its shape.
    """
    try:
        return decoded(memoryview(blob.SerializeToString()))
    except wire.WireError as error:
        raise BlobError(f"a blob of {error}") from error


def blob_of(array: Array, diff: Array | None = None) -> Any:
    """Return the BlobProto of an array, and of its gradient."""
    return BlobProto.FromString(b"".join(encoded(array, diff)))


def read_mean(path: str | Path) -> Array:
    """Return the mean image in a file: channels, height, width.

    Raises:
        CaffeError: The file cannot be read, or contains no mean image.
    """
    try:
        mean = decoded(memoryview(read_bytes(path, LARGEST)))
    except wire.WireError as error:
        raise CaffeError(f"{path} is no mean image: {error}") from error
    if mean.ndim == 4 and mean.shape[0] == 1:
        mean = mean[0]
    if mean.ndim != 3:
        raise CaffeError(f"{path} is no mean image: its shape is {list(mean.shape)}")
    return mean.astype(np.float32, copy=False)


def write_mean(path: str | Path, mean: Array) -> None:
    """Write a mean image like compute_image_mean, with num, channels, height, width.

    Raises:
        CaffeError: It cannot be written.
    """
    sizes = zip((_NUM, _CHANNELS, _HEIGHT, _WIDTH), (1, *mean.shape), strict=True)
    data = mean.astype("<f4").tobytes()
    with written_beside(path) as beside:
        beside.write_bytes(
            b"".join(wire.counted(n, size) for n, size in sizes) + wire.tagged(_DATA, data)
        )


def decoded(data: memoryview) -> Array:
    """Return the array of a serialized BlobProto: float32, or float64 for such a blob.

    Raises:
        WireError: The bytes are invalid, or the numbers do not fill the shape.
    """
    legacy: dict[int, int] = {}
    dims: list[int] = []
    singles, doubles = _Numbers(4), _Numbers(8)
    for number, kind, value in wire.fields(data):
        if number in (_NUM, _CHANNELS, _HEIGHT, _WIDTH):
            legacy[number] = wire.signed(value)
        elif number == _SHAPE:
            dims += _dims(wire.content(value), _MOST_AXES - len(dims))
        elif number == _DATA:
            singles.add(kind, value)
        elif number == _DOUBLE_DATA:
            doubles.add(kind, value)
    shape = [legacy.get(n, 0) for n in (_NUM, _CHANNELS, _HEIGHT, _WIDTH)] if legacy else dims
    values = doubles if doubles.count else singles
    # Also checks without zeros: NumPy refuses some empty shapes as too large.
    too_large = math.prod(dim for dim in shape if dim) > _MOST_NUMBERS
    if any(dim < 0 for dim in shape) or too_large or math.prod(shape) != values.count:
        raise wire.WireError(f"shape {shape} with {values.count} numbers")
    return values.array().reshape(shape)


def encoded(array: Array, diff: Array | None = None) -> Iterator[bytes | memoryview]:
    """Yield the pieces of a serialized BlobProto, with its fields in ascending order."""
    double = array.dtype == np.float64
    if not double:
        yield from _numbers(_DATA, array, "<f4")
        if diff is not None:
            yield from _numbers(_DIFF, diff, "<f4")
    yield wire.tagged(_SHAPE, _shape(array.shape))
    if double:
        yield from _numbers(_DOUBLE_DATA, array, "<f8")
        if diff is not None:
            yield from _numbers(_DOUBLE_DIFF, diff, "<f8")


def encoded_size(array: Array, diff: Array | None = None) -> int:
    """Return the number of bytes from `encoded`, without encoding."""
    size = len(wire.tagged(_SHAPE, _shape(array.shape)))
    width = 8 if array.dtype == np.float64 else 4
    for each in (array, diff):
        if each is not None and each.size:
            size += len(wire.head(_DATA, each.size * width)) + each.size * width
    return size


def _shape(shape: Sequence[int]) -> bytes:
    dims = wire.varints(shape)
    return wire.tagged(1, dims) if dims else b""


def _numbers(field: int, array: Array, kind: str) -> Iterator[bytes | memoryview]:
    if array.size:
        data = np.ascontiguousarray(array, kind)
        yield wire.head(field, data.nbytes)
        yield data.reshape(-1).view(np.uint8).data


def _dims(shape: memoryview, most: int) -> list[int]:
    dims: list[int] = []
    for number, kind, value in wire.fields(shape):
        if number != 1:
            continue
        if kind == wire.VARINT:
            dims.append(wire.signed(value))
        at, packed = 0, wire.content(value) if kind != wire.VARINT else memoryview(b"")
        while at < len(packed) and len(dims) <= most:
            dim, at = wire.varint(packed, at)
            dims.append(wire.signed(dim))
        if len(dims) > most:
            raise wire.WireError(f"more than {_MOST_AXES} axes")
    return dims


class _Numbers:
    """The numbers of a repeated field, packed or not, in order of occurrence."""

    _MOST_PIECES = 1024

    def __init__(self, size: int) -> None:
        self._size = size
        self._joined = bytearray()
        self._pieces: list[memoryview] = []
        self.count = 0

    def add(self, kind: int, value: wire.Content) -> None:
        piece = wire.content(value)
        if kind == wire.BYTES and len(piece) % self._size:
            raise wire.WireError(f"{len(piece)} bytes of numbers that have {self._size} each")
        if kind not in (wire.BYTES, wire.FIXED32 if self._size == 4 else wire.FIXED64):
            raise wire.WireError("numbers of a wrong size")
        if piece:
            self._pieces.append(piece)
            self.count += len(piece) // self._size
        if len(self._pieces) > self._MOST_PIECES:
            self._joined += b"".join(self._pieces)
            self._pieces = []

    def array(self) -> Array:
        """Return one array that owns its memory."""
        kind = np.dtype("<f4" if self._size == 4 else "<f8")
        whole = np.empty(self.count, kind.newbyteorder("="))
        at = 0
        for piece in (memoryview(self._joined), *self._pieces):
            part = np.frombuffer(piece, kind)
            whole[at : at + len(part)] = part
            at += len(part)
        return whole
