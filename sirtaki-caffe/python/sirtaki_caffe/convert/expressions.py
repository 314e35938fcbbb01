"""Layers that are converted to expressions."""

from __future__ import annotations

import math

from sirtaki_caffe.convert.piece import Piece, Place, call, emits, number

_PROD, _SUM, _MAX = 0, 1, 2


@emits("ReLU")
def relu(place: Place) -> Piece:
    """Return a ReLU, with a slope below zero if there is one."""
    slope = place.layer.proto.relu_param.negative_slope
    if slope:
        return Piece(call("F.leaky_relu", place.x, number(slope)))
    return Piece(call("F.relu", place.x))


@emits("Sigmoid", "TanH", "AbsVal", "BNLL")
def plain(place: Place) -> Piece:
    """Return a function without parameters."""
    names = {
        "Sigmoid": "torch.sigmoid",
        "TanH": "torch.tanh",
        "AbsVal": "torch.abs",
        "BNLL": "F.softplus",
    }
    return Piece(call(names[place.layer.proto.type], place.x))


@emits("ELU")
def elu(place: Place) -> Piece:
    """Return an ELU: alpha (e^x - 1) below zero."""
    return Piece(call("F.elu", place.x, number(place.layer.proto.elu_param.alpha)))


@emits("Swish")
def swish(place: Place) -> Piece:
    """Return the product of x and sigmoid(beta x)."""
    beta = number(place.layer.proto.swish_param.beta)
    return Piece(f"{place.x} * torch.sigmoid({beta} * {place.x})")


@emits("Clip")
def clip(place: Place) -> Piece:
    """Return a clamp between two numbers."""
    proto = place.layer.proto.clip_param
    return Piece(call("torch.clamp", place.x, number(proto.min), number(proto.max)))


@emits("Threshold")
def threshold(place: Place) -> Piece:
    """Return 1 above a number, 0 elsewhere."""
    limit = number(place.layer.proto.threshold_param.threshold)
    return Piece(f"({place.x} > {limit}).to({place.x}.dtype)")


def _linear(x: str, scale: float, shift: float) -> str:
    """Return the code of scale x + shift."""
    product = x if scale == 1 else f"{number(scale)} * {x}"
    return product if shift == 0 else f"{product} + {number(shift)}"


@emits("Power")
def power(place: Place) -> Piece:
    """Return (scale x + shift)^power."""
    proto = place.layer.proto.power_param
    inner = _linear(place.x, proto.scale, proto.shift)
    return Piece(inner if proto.power == 1 else f"({inner}) ** {number(proto.power)}")


@emits("Exp")
def exp(place: Place) -> Piece:
    """Return base^(scale x + shift)."""
    proto = place.layer.proto.exp_param
    inner = _linear(place.x, proto.scale, proto.shift)
    factor = "" if proto.base == -1 else f"{math.log(proto.base)!r} * "
    return Piece(f"torch.exp({factor}({inner}))" if factor else f"torch.exp({inner})")


@emits("Log")
def log(place: Place) -> Piece:
    """Return log_base(scale x + shift)."""
    proto = place.layer.proto.log_param
    found = f"torch.log({_linear(place.x, proto.scale, proto.shift)})"
    return Piece(found if proto.base == -1 else f"{found} / {math.log(proto.base)!r}")


@emits("Softmax")
def softmax(place: Place) -> Piece:
    """Return a softmax along an axis."""
    axis = place.axis(place.layer.proto.softmax_param.axis)
    return Piece(call("torch.softmax", place.x, str(axis)))


@emits("Eltwise")
def eltwise(place: Place) -> Piece:
    """Return a sum, a product, or a maximum."""
    proto = place.layer.proto.eltwise_param
    if proto.operation == _PROD:
        return Piece(" * ".join(place.names))
    if proto.operation == _MAX:
        found = place.names[0]
        for name in place.names[1:]:
            found = call("torch.maximum", found, name)
        return Piece(found)
    factors = list(proto.coeff) or [1.0] * len(place.names)
    terms = [_linear(name, f, 0) for name, f in zip(place.names, factors, strict=True)]
    return Piece(" + ".join(terms))


@emits("Concat")
def concat(place: Place) -> Piece:
    """Return a concatenation along an axis."""
    proto = place.layer.proto.concat_param
    axis = proto.concat_dim if proto.HasField("concat_dim") else place.axis(proto.axis)
    return Piece(call("torch.cat", f"({', '.join(place.names)},)", str(axis)))


@emits("Slice")
def cut(place: Place) -> Piece:
    """Return a split along an axis."""
    proto = place.layer.proto.slice_param
    axis = proto.slice_dim if proto.HasField("slice_dim") else place.axis(proto.axis)
    parts = ", ".join(str(shape[axis]) for shape in place.tops)
    return Piece(call("torch.split", place.x, f"({parts},)", str(axis)))


@emits("Flatten")
def flatten(place: Place) -> Piece:
    """Return a flattening from one axis to another."""
    proto = place.layer.proto.flatten_param
    ends = str(place.axis(proto.axis)), str(place.axis(proto.end_axis))
    return Piece(call("torch.flatten", place.x, *ends))


@emits("Reshape")
def reshape(place: Place) -> Piece:
    """Return a reshape; the number of items may differ from Caffe's."""
    top, bottom = place.tops[0], place.shapes[0]
    if place.layer.proto.reshape_param.pixelshuffler > 1:
        raise place.layer.error("a Reshape with pixelshuffler is not converted")
    first = "-1" if top[:1] == bottom[:1] else str(top[0])
    return Piece(call("torch.reshape", place.x, f"({', '.join([first, *map(str, top[1:])])},)"))


@emits("Permute")
def permute(place: Place) -> Piece:
    """Return a permutation of axes; those not named follow."""
    order = list(place.layer.proto.permute_param.order)
    order += [axis for axis in range(place.rank) if axis not in order]
    return Piece(call("torch.permute", place.x, f"({', '.join(map(str, order))},)"))
