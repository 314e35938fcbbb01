"""Loading and saving of a net's weights, by layer names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from sirtaki_caffe.layers.base import Layer, Param
from sirtaki_caffe.net.batch_norm import KINDS, scale_after
from sirtaki_caffe.net.build import describe
from sirtaki_caffe.proto.blobs import Saved
from sirtaki_caffe.proto.weights import LayerWeights

if TYPE_CHECKING:
    from sirtaki_caffe.net.net import Net

Log = Callable[[str, str], None]
Array = npt.NDArray[np.floating]


def load(net: Net, weights: Sequence[LayerWeights], log: Log | None) -> None:
    """Copy weights into the layers with the same names; no change if any is invalid.

    Args:
        net: The net.
        weights: The contents of a file.
        log: Called with a line for each layer that the net lacks.

    Raises:
        LayerError: A layer has a different number of blobs, or other shapes.
    """
    layers = {layer.name: index for index, layer in enumerate(net.layers)}
    copies: list[tuple[Param, Array]] = []
    for source in weights:
        if source.name not in layers:
            if log:
                log("net.cpp", f"Ignoring source layer {source.name}")
            continue
        index = layers[source.name]
        layer = net.layers[index]
        if layer.proto.type in KINDS and len(source.blobs) != len(layer.params):
            copies += _batch_norm(net, index, source.blobs)
        else:
            copies += _pairs(layer, layer.params, source.blobs)
    with torch.no_grad():
        for param, array in copies:
            values = torch.from_numpy(np.ascontiguousarray(array)).reshape(param.data.shape)
            param.data.copy_(values)


def _pairs(
    layer: Layer, params: Sequence[Param], blobs: Sequence[Array | None]
) -> list[tuple[Param, Array]]:
    given = [*blobs, *(None for param in params[len(blobs) :] if _is_shared(layer, param))]
    if len(params) != len(given):
        raise layer.error(f"has {len(params)} blobs, the weights have {len(blobs)} for it")
    found: list[tuple[Param, Array]] = []
    for index, (param, blob) in enumerate(zip(params, given, strict=True)):
        if blob is None:
            if not _is_shared(layer, param):
                raise layer.error(f"its blob {index} is missing in the weights")
            continue
        if not _fits(blob.shape, tuple(param.data.shape)):
            raise layer.error(
                f"blob {index} has shape {describe(param.data.shape)}, the weights have "
                f"{describe(blob.shape)}; to learn this layer's blobs from scratch rename the layer"
            )
        found.append((param, blob))
    return found


def _is_shared(layer: Layer, param: Param) -> bool:
    """Return whether a param may share another layer's values: its message names it."""
    specs = layer.proto.param
    place = next(i for i, mine in enumerate(layer.params) if mine is param)
    return place < len(specs) and bool(specs[place].name)


def _fits(saved: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether shapes are equal; old files always have four sizes, with leading ones."""
    saved = tuple(saved)
    wanted = tuple(wanted)
    if len(saved) == 4 and len(wanted) < 4:
        wanted = (1,) * (4 - len(wanted)) + wanted
    return saved == wanted


def _batch_norm(net: Net, index: int, blobs: Sequence[Array | None]) -> list[tuple[Param, Array]]:
    """Pair a BatchNorm's params with blobs, with scale and shift (5 blobs or 4) or without (3)."""
    layer = net.layers[index]
    if len(layer.params) > 3 and len(blobs) == 3:
        return _pairs(layer, layer.params[:3], blobs)
    if len(layer.params) != 3 or len(blobs) not in (4, 5):
        return _pairs(layer, layer.params, blobs)
    pairs = _pairs(layer, layer.params, blobs[:3])
    place = scale_after(net.proto, index)
    if place is not None:
        scale = net.layers[place]
        return pairs + _pairs(scale, scale.params, blobs[3:])
    added = net.make_affine(layer, len(blobs) - 3)
    return pairs + _pairs(layer, added, blobs[3:])


def share(net: Net, other: Net) -> None:
    """Make a net use another's weights, in the same memory, by layer names.

    Raises:
        LayerError: A layer has a different number of blobs, or other shapes.
    """
    theirs = {layer.name: layer for layer in other.layers}
    for layer in net.layers:
        source = theirs.get(layer.name)
        if source is None:
            continue
        if len(source.params) != len(layer.params):
            raise layer.error(
                f"has {len(layer.params)} blobs, in the net that shares its weights "
                f"{len(source.params)}"
            )
        for index, (mine, given) in enumerate(zip(layer.params, source.params, strict=True)):
            if mine.data.shape != given.data.shape:
                raise layer.error(
                    f"blob {index} has shape {describe(mine.data.shape)}, in the net that shares "
                    f"its weights {describe(given.data.shape)}"
                )
            mine.data = given.data


def saved(net: Net) -> dict[str, list[Saved]]:
    """Return the blobs of all layers that have some, in the form of a file."""
    found: dict[str, list[Saved]] = {}
    owned: set[int] = set()
    for layer in net.layers:
        blobs = []
        for param in layer.params:
            owner = param.owner
            shape = param.data.shape
            diff = None if owner.diff is None else owner.diff.reshape(shape).cpu().numpy()
            data = param.data.detach().cpu().numpy()
            blobs.append(Saved(data=data, diff=diff, owner=id(owner) not in owned))
            owned.add(id(owner))
        if blobs:
            found[layer.name] = blobs
    return found
