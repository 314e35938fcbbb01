"""Layers that are converted to PyTorch modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sirtaki_caffe.convert.piece import Piece, Place, call, emits, number, sizes
from sirtaki_caffe.layers.base import Param

_MAX, _AVE = 0, 1
_WITHIN_CHANNEL = 1

#: The types of layers that normalise batches.
NORMS = ("BatchNorm", "MKLBatchNorm")


def _values(proto: Any, single: str, stem: str, axes: int, default: int) -> list[int]:
    """Return one value per axis of a field given once, for each axis, or by _h and _w."""
    if stem and any(proto.HasField(f"{stem}_{side}") for side in "hw"):
        return [int(getattr(proto, f"{stem}_{side}")) for side in "hw"]
    given = getattr(proto, single)
    given = list(given) if hasattr(given, "__len__") else [given]
    values = [int(value) for value in given] or [default]
    return values * axes if len(values) == 1 else values


def _unless(values: Sequence[int], default: int) -> str | None:
    """Return the code of sizes; None if all have the default."""
    return None if set(values) == {default} else sizes(values)


def _weights(params: Sequence[Param]) -> dict[str, Param]:
    return dict(zip(("weight", "bias"), params, strict=False))


@emits("Convolution", "Deconvolution")
def convolution(place: Place) -> Piece:
    """Return a convolution, or a transposed one."""
    layer = place.layer
    proto = layer.proto.convolution_param
    weight = layer.params[0].data
    axes = weight.dim() - 2
    if axes not in (1, 2, 3) or place.axis(proto.axis) != 1:
        raise layer.error("only convolutions over 1 to 3 axes behind the channels are converted")
    transposed = layer.proto.type == "Deconvolution"
    kind = "ConvTranspose" if transposed else "Conv"
    module = call(
        f"nn.{kind}{axes}d",
        str(place.shapes[0][1]),
        str(int(proto.num_output)),
        sizes(weight.shape[2:]),
        stride=_unless(_values(proto, "stride", "stride", axes, 1), 1),
        padding=_unless(_values(proto, "pad", "pad", axes, 0), 0),
        dilation=_unless(_values(proto, "dilation", "", axes, 1), 1),
        groups=None if proto.group == 1 else str(proto.group),
        bias=None if len(layer.params) > 1 else "False",
    )
    found = [call(place.own, name) for name in place.names]
    if proto.relu:
        found = [call("F.leaky_relu", each, number(proto.negative_slope)) for each in found]
    return Piece(", ".join(found), module, _weights(layer.params))


@emits("InnerProduct")
def inner_product(place: Place) -> Piece:
    """Return a linear layer on input flattened from an axis on."""
    layer = place.layer
    proto = layer.proto.inner_product_param
    axis = place.axis(proto.axis)
    weight = layer.params[0].data.detach()
    x = place.x if axis == place.rank - 1 else call("torch.flatten", place.x, str(axis))
    inputs = weight.shape[0] if proto.transpose else weight.shape[1]
    bias = None if len(layer.params) > 1 else "False"
    module = call("nn.Linear", str(inputs), str(int(proto.num_output)), bias=bias)
    piece = Piece(call(place.own, x), module, _weights(layer.params))
    if proto.transpose:
        del piece.params["weight"]
        piece.tensors["weight"] = weight.t()
    if proto.relu:
        piece.call = call("F.leaky_relu", piece.call, number(proto.negative_slope))
    return piece


@emits("Pooling")
def pooling(place: Place) -> Piece:
    """Return max or mean pooling; the number of windows is rounded up, as in Caffe."""
    layer = place.layer
    proto = layer.proto.pooling_param
    if proto.pool not in (_MAX, _AVE) or len(place.tops) > 1 or place.rank != 4:
        raise layer.error("only MAX and AVE pooling of images with one top is converted")
    kind = "Max" if proto.pool == _MAX else "Avg"
    if proto.global_pooling:
        return Piece(call(place.own, place.x), f"nn.Adaptive{kind}Pool2d(1)")
    kernel = _values(proto, "kernel_size", "kernel", 2, 0)
    pad = _values(proto, "pad", "pad", 2, 0)
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        raise layer.error(f"pad {pad} is more than half of the kernel {kernel}, which PyTorch's is")
    stride = _values(proto, "stride", "stride", 2, 1)
    axes = zip(place.tops[0][2:], stride, pad, place.shapes[0][2:], strict=True)
    if any((windows - 1) * s - p >= size for windows, s, p, size in axes):
        raise layer.error("its last windows are outside of the image: PyTorch leaves them out")
    whole = proto.avg_include_pad or kind == "Max"
    module = call(
        f"nn.{kind}Pool2d",
        sizes(kernel),
        sizes(stride),
        padding=_unless(pad, 0),
        ceil_mode="True" if proto.round_mode == 0 else None,
        count_include_pad=None if whole else "False",
    )
    return Piece(call(place.own, place.x), module)


@emits("LRN")
def lrn(place: Place) -> Piece:
    """Return local response normalisation."""
    proto = place.layer.proto.lrn_param
    size, alpha, beta = str(proto.local_size), number(proto.alpha), number(proto.beta)
    if proto.norm_region == _WITHIN_CHANNEL:
        square = f"{place.x} * {place.x}"
        mean = call("F.avg_pool2d", square, size, "1", str(proto.local_size // 2))
        return Piece(f"{place.x} * (1 + {alpha} * {mean}) ** -{beta}")
    module = call("nn.LocalResponseNorm", size, alpha, beta, number(proto.k))
    return Piece(call(place.own, place.x), module)


@emits("Dropout", "SpatialDropout")
def dropout(place: Place) -> Piece:
    """Return dropout, which does nothing in evaluation."""
    proto = place.layer.proto
    if proto.type == "Dropout":
        module = f"nn.Dropout({number(proto.dropout_param.dropout_ratio)})"
    else:
        module = f"nn.Dropout2d({number(proto.spatial_dropout_param.dropout_ratio)})"
    return Piece(call(place.own, place.x), module)


@emits("PReLU")
def prelu(place: Place) -> Piece:
    """Return a PReLU with a slope for each channel."""
    slope = place.layer.params[0]
    piece = Piece(call(place.own, place.x), f"nn.PReLU({slope.data.numel()})")
    piece.tensors["weight"] = slope.data.detach().reshape(-1)
    return piece


@emits(*NORMS)
def batch_norm(place: Place) -> Piece:
    """Return batch normalisation, with statistics from Caffe's sums."""
    layer = place.layer
    return normalised(place, [param.data.detach() for param in layer.params[3:]])


def normalised(place: Place, scale_and_shift: Sequence[torch.Tensor]) -> Piece:
    """Return a BatchNorm with a scale and a shift, its own or those of the Scale after it."""
    layer = place.layer
    proto = layer.proto.batch_norm_param
    if place.rank not in (2, 3, 4, 5):
        raise layer.error(f"a BatchNorm of {place.rank} axes is not converted")
    mean, variance, weight = (param.data.detach() for param in layer.params[:3])
    factor = 0.0 if float(weight) == 0 else 1 / float(weight)
    own_statistics = proto.HasField("use_global_stats") and not proto.use_global_stats
    module = call(
        f"nn.BatchNorm{max(1, place.rank - 2)}d",
        str(place.shapes[0][1]),
        eps=number(proto.eps),
        momentum=number(1 - float(f"{proto.moving_average_fraction:.7g}")),
        affine=None if scale_and_shift else "False",
        track_running_stats="False" if own_statistics else None,
    )
    piece = Piece(call(place.own, place.x), module)
    if not own_statistics:
        piece.tensors["running_mean"] = mean * factor
        piece.tensors["running_var"] = variance * factor
        piece.tensors["num_batches_tracked"] = torch.tensor(0)
    if scale_and_shift:
        scale = scale_and_shift[0].reshape(-1)
        piece.tensors["weight"] = scale
        shift = scale_and_shift[1].reshape(-1) if len(scale_and_shift) > 1 else scale.new_zeros(1)
        piece.tensors["bias"] = shift.expand(scale.shape)
    if layer.proto.batch_norm_param.relu:
        piece.call = call("F.relu", piece.call)
    return piece


@emits("Scale", "Bias")
def scale(place: Place) -> Piece:
    """Return a product or a sum along some axes, with a param or a second bottom."""
    layer = place.layer
    is_scale = layer.proto.type == "Scale"
    proto = layer.proto.scale_param if is_scale else layer.proto.bias_param
    operator = "*" if is_scale else "+"
    axis = place.axis(proto.axis)
    params = list(layer.params)
    piece = Piece(place.x, "nn.ParameterDict()" if params else None)
    if len(place.names) > 1:
        factor, extent = place.names[1], len(place.shapes[1])
    else:
        piece.params["weight"] = params.pop(0)
        factor, extent = f'{place.own}["weight"]', piece.params["weight"].data.dim()
    behind = ", None" * (place.rank - axis - extent)
    expand = f"[...{behind}]" if behind else ""
    piece.call = f"{place.x} {operator} {factor}{expand}"
    if params:
        piece.params["bias"] = params[0]
        piece.call += f' + {place.own}["bias"]{expand}'
    return piece
