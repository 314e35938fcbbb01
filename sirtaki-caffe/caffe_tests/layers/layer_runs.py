"""One layer, built from a line of text and run without a net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from google.protobuf import text_format

import sirtaki_caffe.layers
from sirtaki_caffe.layers.base import Context, Layer, layer_class
from sirtaki_caffe.proto.schema import TRAIN, LayerParameter

assert sirtaki_caffe.layers.__all__

Array = np.ndarray[Any, Any]

# The message of a type, where it is not the type's name in lower case and `_param`.
_MESSAGES = {
    "BatchNorm": "batch_norm_param",
    "BoxAnnotatorOHEM": "box_annotator_ohem_param",
    "ContrastiveLoss": "contrastive_loss_param",
    "ConvolutionDepthwise": "convolution_param",
    "Deconvolution": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "HingeLoss": "hinge_loss_param",
    "Im2col": "convolution_param",
    "InfogainLoss": "infogain_loss_param",
    "InnerProduct": "inner_product_param",
    "LSTM": "recurrent_param",
    "MKLBatchNorm": "batch_norm_param",
    "Normalize": "norm_param",
    "PSROIPooling": "psroi_pooling_param",
    "RNN": "recurrent_param",
    "ROIPooling": "roi_pooling_param",
    "SigmoidCrossEntropyLoss": "loss_param",
    "SmoothL1Loss": "smooth_l1_loss_param",
    "SmoothL1LossOHEM": "smooth_l1_loss_param",
    "SoftmaxWithLoss": "loss_param",
    "SoftmaxWithLossOHEM": "loss_param",
    "SpatialDropout": "spatial_dropout_param",
}


@dataclass(frozen=True)
class Case:
    """A layer and its bottoms.

    Args:
        kind: Its type.
        shapes: Of its bottoms.
        fields: Of the message of its type.
        more: Other fields of the layer.
        tops: How many; None: the fewest.
        low: Where bottoms begin that have to be drawn evenly; None: a normal distribution.
        high: Where they end.
        wholes: The bottoms that hold whole numbers from 0 to `high` - 1.
        given: Values of the last bottom.
        tolerance: Of a comparison.
    """

    kind: str
    shapes: Sequence[Sequence[int]]
    fields: str = ""
    more: str = ""
    tops: int | None = None
    low: float | None = None
    high: float = 2.0
    wholes: Sequence[int] = field(default=())
    given: Sequence[Any] | None = None
    tolerance: float = 1e-5

    @property
    def text(self) -> str:
        message = _MESSAGES.get(self.kind, f"{self.kind.lower()}_param")
        own = f"{message} {{ {self.fields} }}" if self.fields else ""
        return f'type: "{self.kind}" {own} {self.more}'

    def bottoms(self) -> list[Array]:
        return [self._bottom(place, shape) for place, shape in enumerate(self.shapes)]

    def _bottom(self, place: int, shape: Sequence[int]) -> Array:
        if self.given is not None and place == len(self.shapes) - 1:
            return np.float32(self.given).reshape(shape)
        drawn = np.random.default_rng(1701 + place)
        if place in self.wholes:
            return drawn.integers(0, int(self.high), shape).astype(np.float32)
        if self.low is not None:
            return drawn.uniform(self.low, self.high, shape).astype(np.float32)
        return drawn.standard_normal(shape).astype(np.float32)

    def __str__(self) -> str:
        return " ".join([self.kind, self.fields, self.more]).strip()


def numbers(*shape: int, seed: int = 7) -> Array:
    """Numbers of a normal distribution, the same each time."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def build(
    text: str,
    *shapes: Sequence[int],
    phase: int = TRAIN,
    dtype: torch.dtype = torch.float64,
    tops: int | None = None,
    **context: Any,
) -> Layer:
    """A layer, set up for bottoms of these shapes; the text is as in a net's file."""
    proto = text_format.Parse(text, LayerParameter())
    proto.name = proto.name or "tested"
    proto.phase = phase
    cls = layer_class(proto.type)
    assert cls is not None, proto.type
    proto.bottom.extend(f"bottom{i}" for i in range(len(shapes)))
    proto.top.extend(f"top{i}" for i in range(cls.tops[0] if tops is None else tops))
    random = torch.Generator().manual_seed(1701)
    built = cls(proto, Context(phase=phase, dtype=dtype, random=random, **context))
    built.setup([tuple(shape) for shape in shapes])
    for param in built.params:
        param.data.requires_grad_(param.learns)
    return built


def build_case(case: Case, **options: Any) -> Layer:
    """The layer of a case, with random params; sums of variances and their weight positive."""
    built = build(case.text, *case.shapes, tops=case.tops, **options)
    values = [numbers(*p.data.shape, seed=70 + i) for i, p in enumerate(built.params)]
    if case.kind == "BatchNorm":
        values[1], values[2] = np.abs(values[1]) + 0.5, np.float32([1.7])
    set_params(built, *values)
    return built


def set_params(built: Layer, *values: Array) -> None:
    """Overwrite the learnable blobs."""
    for param, value in zip(built.params, values, strict=True):
        with torch.no_grad():
            param.data.copy_(torch.from_numpy(np.array(value)).reshape(param.data.shape))


def run(built: Layer, *bottoms: Any) -> list[Array]:
    """The tops, which must have the shapes that the layer promised."""
    blobs = [torch.from_numpy(np.array(b)).to(built.context.dtype) for b in bottoms]
    promised = built.shapes([tuple(blob.shape) for blob in blobs])
    with torch.no_grad():
        tops = built.forward(blobs)
    assert [tuple(top.shape) for top in tops] == [tuple(shape) for shape in promised]
    return [top.detach().numpy() for top in tops]
