"""Nets in protobuf's binary format."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import LARGEST, Array, encoded, encoded_size
from sirtaki_caffe.proto.files import read_bytes, reason, written_beside
from sirtaki_caffe.proto.formats import wire
from sirtaki_caffe.proto.grammar.parser import is_repeated
from sirtaki_caffe.proto.schema import NetParameter

#: Fields of NetParameter, V1LayerParameter, and of the three kinds of layers.
NAME, V1_LAYERS, LAYER = 1, 2, 100
V0_LAYER = 1
BLOBS, V1_BLOBS, V0_BLOBS = 7, 6, 50

#: Limits of a net's layers, blobs and other bytes, so that a small file cannot fill the memory.
MOST_LAYERS = 100_000
MOST_BLOBS = 1_000_000
_MOST_BESIDES = 16 << 20

# More bytes than a tag and a length.
_AHEAD = 64

# The forks assigned one number to two messages; the layer's type distinguishes them.
_SMOOTH_L1, _SMOOTH_L1_HERE = 148, 10148

#: The blobs of a layer: values, and gradients if they are kept.
Blobs = Sequence[tuple[Array, Array | None]]


def read_net(path: str | Path) -> Any:
    """Return the net of a binary file unchanged: any version, with its blobs.

    Raises:
        CaffeError: The file cannot be read, or is not a net.
    """
    with refused(path, "binary net"):
        data = read_bytes(path, LARGEST)
        _check_sizes(memoryview(data))
        net = NetParameter.FromString(data)
        _check_strings(net)
    for layer in net.layer:
        if layer.type == "SmoothL1Loss" and layer.HasField("clip_param"):
            # Clip's first field has the number and the type of sigma.
            layer.smooth_l1_loss_param.SetInParent()
            if layer.clip_param.HasField("min"):
                layer.smooth_l1_loss_param.sigma = layer.clip_param.min
            layer.ClearField("clip_param")
    return net


def _check_strings(message: Any) -> None:
    """Refuse strings that are not UTF-8, which protobuf would return as bytes."""
    for field, value in message.ListFields():
        values = value if is_repeated(field) else (value,)
        if field.type == FieldDescriptor.TYPE_STRING:
            if not all(isinstance(each, str) for each in values):
                raise wire.WireError(f"{field.full_name} is not UTF-8")
        elif field.message_type is not None and field.message_type.name != "BlobProto":
            for each in values:
                _check_strings(each)


def _check_sizes(data: memoryview) -> None:
    layers = besides = 0
    for number, _, value in wire.fields(data):
        if number in (LAYER, V1_LAYERS):
            layers += 1
            besides += _besides(wire.content(value), BLOBS if number == LAYER else V1_BLOBS)
        else:
            besides += _size_of(value)
        if layers > MOST_LAYERS or besides > _MOST_BESIDES:
            raise wire.WireError(
                f"more than {MOST_LAYERS} layers, or {_MOST_BESIDES} bytes besides weights"
            )


def _besides(layer: memoryview, blobs: int) -> int:
    """Return the size of a layer without its blobs, which count a little themselves."""
    size = 0
    for number, _, value in wire.fields(layer):
        if number == V0_LAYER and blobs == V1_BLOBS:
            size += _besides(wire.content(value), V0_BLOBS)
        else:
            size += _size_of(0 if number == blobs else value)
        if size > _MOST_BESIDES:
            break
    return size


def _size_of(value: wire.Content) -> int:
    """Return the bytes of a field, and of the objects created to read it."""
    return 16 if isinstance(value, int) else 16 + len(value)


def write_net(path: str | Path, net: Any, blobs: Sequence[Blobs] | None = None) -> None:
    """Write a net of the current version like Caffe: fields in ascending order of numbers.

    Args:
        path: The file; its old contents remain until writing is complete.
        net: A NetParameter.
        blobs: The blobs of each layer, written with only the name and layers of the net; None: the
            blobs in the messages, with the complete net.

    Raises:
        CaffeError: It cannot be written, or has more than 2 GiB.
    """
    try:
        layers = [_layer_fields(layer, with_blobs=blobs is None) for layer in net.layer]
        first, last = _net_fields(net, only_name=blobs is not None)
    except EncodeError as error:
        raise CaffeError(f"cannot write {path}: {error}") from error
    owned = blobs if blobs is not None else [()] * len(layers)
    sizes = [
        sum(len(field) for field in (*before, *after)) + sum(_size(*each) for each in mine)
        for (before, after), mine in zip(layers, owned, strict=True)
    ]
    whole = sum(size + len(wire.head(LAYER, size)) for size in sizes)
    if len(first) + whole + len(last) > LARGEST:
        raise CaffeError(
            f"{path} would have more than {LARGEST} bytes, the most of a binary file; "
            "write HDF5: a name that ends in .h5, or snapshot_format: HDF5 in the solver"
        )
    with written_beside(path) as beside, beside.open("wb") as file:
        file.write(first)
        for (before, after), mine, size in zip(layers, owned, sizes, strict=True):
            file.write(wire.head(LAYER, size))
            file.writelines(before)
            for array, diff in mine:
                file.write(wire.head(BLOBS, encoded_size(array, diff)))
                file.writelines(encoded(array, diff))
            file.writelines(after)
        file.write(last)


def _net_fields(net: Any, only_name: bool) -> tuple[bytes, bytes]:
    """Return the fields of a serialized NetParameter before its layers, and after them."""
    rest = type(net)()
    for field, value in net.ListFields():
        if field.number == NAME or not (only_name or field.number == LAYER):
            rest.MergeFrom(type(net)(**{field.name: value}))
    fields = list(wire.raw_fields(memoryview(rest.SerializeToString(deterministic=True))))
    first = b"".join(field for number, field in fields if number < LAYER)
    return first, b"".join(field for number, field in fields if number > LAYER)


def _size(array: Array, diff: Array | None) -> int:
    size = encoded_size(array, diff)
    return size + len(wire.head(BLOBS, size))


def _layer_fields(layer: Any, with_blobs: bool) -> tuple[list[bytes], list[bytes]]:
    """Return the fields of a serialized LayerParameter before its blobs, and after them."""
    pieces = []
    for number, field in wire.raw_fields(memoryview(layer.SerializeToString(deterministic=True))):
        if number == _SMOOTH_L1_HERE:
            content = layer.smooth_l1_loss_param.SerializeToString()
            pieces.append((_SMOOTH_L1, wire.tagged(_SMOOTH_L1, content)))
        elif number != BLOBS or with_blobs:
            pieces.append((number, bytes(field)))
    pieces.sort(key=lambda piece: piece[0])
    before = [field for number, field in pieces if number <= BLOBS]
    return before, [field for number, field in pieces if number > BLOBS]


@contextlib.contextmanager
def refused(path: str | Path, what: str) -> Iterator[None]:
    """Convert errors of reading a file to a CaffeError that names it."""
    try:
        yield
    except (wire.WireError, DecodeError) as error:
        raise CaffeError(f"{path} is no {what}, or is cut off: {error}") from error
    except OSError as error:
        raise CaffeError(f"cannot read {path}: {reason(error)}") from error


def top_fields(path: str | Path) -> Iterator[tuple[int, int, wire.Content]]:
    """Yield the fields of a message that fills a file, with one at a time in memory.

    Raises:
        OSError: The file cannot be read.
        WireError: It is not a message.
    """
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size > LARGEST:
            raise wire.WireError(f"{size} bytes, more than {LARGEST}")
        at = 0
        while at < size:
            file.seek(at)
            ahead = memoryview(file.read(_AHEAD))
            tag, head = wire.varint(ahead, 0)
            if tag & 7 == wire.BYTES:
                length, head = wire.varint(ahead, head)
                if length > size - at - head:
                    raise wire.WireError(f"field {tag >> 3} is longer than the file")
                file.seek(at + head)
                yield tag >> 3, wire.BYTES, memoryview(file.read(length))
                at += head + length
            else:
                field = next(wire.raw_fields(ahead))[1]
                yield tag >> 3, tag & 7, next(iter(wire.fields(field)))[2]
                at += len(field)
