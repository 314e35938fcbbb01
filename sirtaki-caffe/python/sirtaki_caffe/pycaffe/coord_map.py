"""`caffe.coord_map`: maps positions of one blob to another, and derives crops.

A map is (axis, a, b): position x of the first blob is a * x + b in the second, on the axes after
`axis`; `axis` is None if no layer on the way has spatial axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirtaki_caffe.net.array_blob import Array
from sirtaki_caffe.pycaffe.net_spec import Function, Top, layers

__all__ = [
    "AxisMismatchException",
    "UndefinedMapException",
    "compose",
    "conv_params",
    "coord_map",
    "coord_map_from_to",
    "crop",
    "crop_params",
    "inverse",
]

Map = tuple[int | None, Any, Any]

#: Layers that keep positions unchanged.
PASS_THROUGH_LAYERS = [
    *("AbsVal", "BatchNorm", "Bias", "BNLL", "Dropout", "ELU", "Eltwise", "Exp", "Log", "LRN"),
    *("MVN", "Power", "PReLU", "ReLU", "Scale", "Sigmoid", "Softmax", "Split", "TanH"),
    *("Threshold",),
]


class UndefinedMapException(Exception):
    """A layer's positions cannot be mapped, or two blobs have no common ancestor with a map."""


class AxisMismatchException(Exception):
    """Maps of different axes cannot be composed."""


def conv_params(fn: Function) -> tuple[int, Array, Array, Array]:
    """Return the axis, stride, effective kernel and pad of a layer with windows."""
    params = _own(fn, "pooling_param" if fn.type_name == "Pooling" else "convolution_param")

    def sides(name: str, high: str, default: int) -> Array:
        if high in params or f"{high[:-1]}w" in params:
            return np.array([params.get(high, default), params.get(f"{high[:-1]}w", default)])
        return np.array(params.get(name, default))

    kernel = sides("kernel_size", "kernel_h", 1)
    dilation = np.array(params.get("dilation", 1))
    stride, pad = sides("stride", "stride_h", 1), sides("pad", "pad_h", 0)
    return int(params.get("axis", 1)), stride, (kernel - 1) * dilation + 1, pad


def crop_params(fn: Function) -> tuple[int, Array]:
    """Return the axis before those that a Crop cuts, and its offsets."""
    params = _own(fn, "crop_param")
    return int(params.get("axis", 2)) - 1, np.array(params.get("offset", 0))


def coord_map(fn: Function) -> Map:
    """Return the map from positions of a layer's bottom to those of its top.

    Raises:
        UndefinedMapException: There is no map.
    """
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, kernel, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (kernel - 1) / 2) / stride
    if fn.type_name == "Deconvolution":
        axis, stride, kernel, pad = conv_params(fn)
        return axis, stride, (kernel - 1) / 2 - pad
    if fn.type_name in PASS_THROUGH_LAYERS:
        return None, 1, 0
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return axis, 1, -offset
    raise UndefinedMapException(f"a layer of type {fn.type_name} has no map of places")


def compose(base_map: Map, next_map: Map) -> Map:
    """Return the composition of two maps, in order.

    Raises:
        AxisMismatchException: They are of different axes.
    """
    axis1, a1, b1 = base_map
    axis2, a2, b2 = next_map
    if axis1 is not None and axis2 is not None and axis1 != axis2:
        raise AxisMismatchException(f"maps of the axes {axis1} and {axis2}")
    return axis2 if axis1 is None else axis1, a1 * a2, a1 * b2 + b1


def inverse(given: Map) -> Map:
    """Return the inverse map."""
    axis, a, b = given
    return axis, 1 / a, -b / a


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """Return the map between two blobs' positions, through a common ancestor.

    Raises:
        UndefinedMapException: There is no common ancestor, or a layer on the way has no map.
    """
    own = _to_ancestors(top_from)
    others = _to_ancestors(top_to)
    for top, there in own.items():
        if top in others:
            return compose(others[top], inverse(there))
    raise UndefinedMapException("the two blobs come from no common one by layers that keep places")


def crop(top_from: Top, top_to: Top) -> Any:
    """Return a Crop layer that gives one blob the size of another, at the same image position.

    Raises:
        AssertionError: They have different scales, or the offset is not an integer.
    """
    axis, a, b = coord_map_from_to(top_from, top_to)
    if axis is None:
        raise AssertionError("no layer between the blobs has spatial axes")
    if not (np.asarray(a) == 1).all():
        raise AssertionError(f"scale mismatch on crop (a = {a})")
    if not (np.asarray(b) <= 0).all():
        raise AssertionError(f"cannot crop negative offset (b = {b})")
    if not (np.round(b) == b).all():
        raise AssertionError(f"cannot crop noninteger offset (b = {b})")
    offset = (-np.round(b).astype(int)).tolist()
    return layers.Crop(top_from, top_to, crop_param={"axis": axis + 1, "offset": offset})


def _own(fn: Function, field: str) -> dict[str, Any]:
    return {**fn.params, **fn.params.get(field, {})}


def _to_ancestors(top: Top) -> dict[Top, Map]:
    """Return the maps from each ancestor's positions to a blob's; the nearest first."""
    found: dict[Top, Map] = {top: (None, 1, 0)}
    waiting = [top]
    while waiting:
        each = waiting.pop(0)
        try:
            step = coord_map(each.fn)
        except UndefinedMapException:
            continue  # positions end here: at data, or where the blob is no longer an image
        bottoms = each.fn.inputs[:1] if each.fn.type_name == "Crop" else each.fn.inputs
        for bottom in bottoms:
            if bottom not in found:
                found[bottom] = compose(found[each], step)
                waiting.append(bottom)
    return found
