"""One layer, built from text and run without a net."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from google.protobuf import text_format

import sirtaki.caffe.layers
from sirtaki.caffe.layers.base import Context, Layer, layer_class
from sirtaki.caffe.proto.schema import TRAIN, LayerParameter

assert sirtaki.caffe.layers


def numbers(*shape: int, seed: int = 1701, scale: float = 1.0) -> np.ndarray:
    """Numbers of a normal distribution, the same each time."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def build(
    text: str,
    *shapes: Sequence[int],
    phase: int = TRAIN,
    dtype: torch.dtype = torch.float64,
    tops: int | None = None,
    **context: object,
) -> Layer:
    """A layer of a net, set up for bottoms of these shapes; `type` and parameters as in a file."""
    proto = text_format.Parse(text, LayerParameter())
    proto.name = proto.name or "tested"
    proto.phase = phase
    proto.bottom.extend(f"bottom{i}" for i in range(len(shapes)))
    cls = layer_class(proto.type)
    assert cls is not None, proto.type
    if not proto.top:
        number = cls.tops[0] if tops is None else tops
        proto.top.extend(f"top{i}" for i in range(number))
    random = torch.Generator().manual_seed(1701)
    built = cls(proto, Context(phase=phase, dtype=dtype, random=random, **context))
    built.setup([tuple(shape) for shape in shapes])
    for param in built.params:
        param.data.requires_grad_(param.learns)
    return built


def run(built: Layer, *bottoms: np.ndarray) -> list[np.ndarray]:
    """The tops, which must have the shapes that the layer promised."""
    blobs = [torch.from_numpy(np.asarray(b)).to(built.context.dtype) for b in bottoms]
    promised = built.shapes([tuple(b.shape) for b in blobs])
    with torch.no_grad():
        tops = built.forward(blobs)
    assert [tuple(t.shape) for t in tops] == [tuple(s) for s in promised]
    return [t.numpy() for t in tops]


def set_params(built: Layer, *values: np.ndarray) -> None:
    """Overwrite the learnable blobs."""
    assert len(values) == len(built.params)
    for param, value in zip(built.params, values, strict=True):
        given = torch.from_numpy(np.asarray(value)).to(param.data.dtype)
        param.data.detach().copy_(given.reshape(param.data.shape))
