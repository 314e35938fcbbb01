"""Files of weights: .caffemodel, in protobuf's format or in HDF5."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import Array, Saved, decoded
from sirtaki_caffe.proto.formats import binary, hdf5, wire
from sirtaki_caffe.proto.upgrade import type_of_v0, type_of_v1

#: The fields for name, type and blobs in LayerParameter, V1LayerParameter and V0LayerParameter.
_FIELDS = {
    binary.BLOBS: (1, 2),
    binary.V1_BLOBS: (4, 5),
    binary.V0_BLOBS: (1, 2),
}


@dataclass
class LayerWeights:
    """The weights of a layer in a file.

    Args:
        name: The layer's name.
        kind: Its type, for example `Convolution`; "" in HDF5, which does not store it.
        blobs: Its blobs in order, float32 or float64. HDF5 omits blobs shared from another layer:
            they are None, or missing at the end.
    """

    name: str
    kind: str
    blobs: list[Any] = field(default_factory=list)


def read_weights(path: str | Path) -> list[LayerWeights]:
    """Return the weights of a file, for each layer in it.

    Args:
        path: A net of any version in binary format, or HDF5, as its first bytes show. /dev/null has
            no weights, for scripts that always pass a file.

    Raises:
        CaffeError: The file cannot be read, or contains no weights.
    """
    if str(path) == os.devnull:
        return []
    if hdf5.is_hdf5(path):
        found = [LayerWeights(name, "", blobs) for name, blobs in hdf5.read_layers(path)]
    else:
        with binary.refused(path, "file of weights"):
            found = list(_layers(path))
    if not found:
        raise CaffeError(f"{path} is no file of weights: there are no layers in it")
    return found


def write_weights(path: str | Path, net: Any, blobs: dict[str, list[Saved]]) -> None:
    """Write the weights of a net: in HDF5 if the name ends in .h5, else in binary format.

    Args:
        path: The file; its old contents remain until writing is complete.
        net: The NetParameter whose name and layers are stored with the weights.
        blobs: The blobs of layers that have some, by layer name.

    Raises:
        CaffeError: It cannot be written.
    """
    if Path(path).suffix == ".h5":
        hdf5.write_layers(path, [layer.name for layer in net.layer], blobs)
        return
    owned = [[(each.data, each.diff) for each in blobs.get(layer.name, ())] for layer in net.layer]
    binary.write_net(path, net, owned)


def _layers(path: str | Path) -> Iterator[LayerWeights]:
    layers = blobs = 0
    for number, _, value in binary.top_fields(path):
        if number == binary.NAME:
            wire.string(value)  # a first check that this is a net
        if number in (binary.LAYER, binary.V1_LAYERS):
            kind = binary.BLOBS if number == binary.LAYER else binary.V1_BLOBS
            layer = _layer(wire.content(value), kind)
            layers, blobs = layers + 1, blobs + len(layer.blobs)
            if layers > binary.MOST_LAYERS or blobs > binary.MOST_BLOBS:
                raise wire.WireError(f"more than {binary.MOST_LAYERS} layers")
            yield layer


def _layer(data: memoryview, blobs: int) -> LayerWeights:
    name, kind = _FIELDS[blobs]
    layer = LayerWeights("", "")
    for number, _, value in wire.fields(data):
        if number == blobs:
            layer.blobs.append(_blob(wire.content(value), layer))
        elif number == name:
            layer.name = wire.string(value)
        elif number == kind and blobs == binary.V1_BLOBS:
            layer.kind = type_of_v1(wire.signed(value))
        elif number == kind:
            layer.kind = wire.string(value)
        elif number == binary.V0_LAYER and blobs == binary.V1_BLOBS:
            layer = _layer(wire.content(value), binary.V0_BLOBS)
            layer.kind = type_of_v0(layer.kind)
    return layer


def _blob(data: memoryview, layer: LayerWeights) -> Array:
    try:
        return decoded(data)
    except wire.WireError as error:
        where = f"blob {len(layer.blobs)} of layer '{layer.name}'"
        raise wire.WireError(f"{where} has {error}") from error
