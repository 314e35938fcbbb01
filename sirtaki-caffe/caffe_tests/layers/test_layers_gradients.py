"""Gradients of every differentiable layer, against centred differences in double precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import Array, Case, build_case
from sirtaki_caffe.layers.base import Layer, layer_class, layer_kinds
from sirtaki_caffe.layers.refused import REFUSED

IMAGE = [(2, 3, 4, 3)]
PAIR = [*IMAGE, *IMAGE]
SCORES = [(3, 4, 2), (3, 2)]
CONTINUED = [[0, 0], [1, 1], [1, 0]]
REGIONS = [[0, 0, 0, 2, 3], [1, 1, 0, 9, 2]]

CASES = [
    Case("AbsVal", IMAGE),
    Case("Axpy", [(2, 3), *PAIR]),
    Case("BNLL", IMAGE),
    Case("BatchNorm", IMAGE),
    Case("BatchNorm", IMAGE, "use_global_stats: true"),
    Case("BatchNorm", IMAGE, "use_weight_bias: true"),
    Case("BatchNorm", [(4, 2, 3)], "use_weight_bias: true stats_batch_size: 2"),
    Case("BatchNorm", [(6,)]),
    Case("BatchReindex", [(3, 2), (4,)], given=[2, 0, 0, 1]),
    Case("Bias", IMAGE),
    Case("Bias", [(2, 3, 4), (3,)]),
    Case("Clip", IMAGE, "min: -0.5 max: 1"),
    Case("Concat", [(2, 3, 2), (2, 1, 2), (2, 2, 2)]),
    Case("ContrastiveLoss", [(3, 4), (3, 4), (3,)], "margin: 6", given=[1, 0, 0], tolerance=1e-3),
    Case(
        "ContrastiveLoss", [(3, 4), (3, 4), (3,)], "margin: 9 legacy_version: true", given=[1, 0, 0]
    ),
    Case("Convolution", IMAGE, "num_output: 2 kernel_size: 2 stride: 2 pad: 1 dilation: 2"),
    Case("Convolution", [(1, 4, 3, 3)], "num_output: 4 kernel_size: 2 group: 2"),
    Case("Convolution", [(1, 2, 3, 2, 2)], "num_output: 2 kernel_size: 2 bias_term: false"),
    Case("Convolution", [(1, 2, 3), (1, 2, 3)], "num_output: 2 kernel_size: 2", tops=2),
    Case("ConvolutionDepthwise", IMAGE, "kernel_size: 2 pad: 1"),
    Case("DepthwiseConvolution", IMAGE, "num_output: 6 kernel_size: 2 group: 3"),
    Case("Crop", [(2, 2, 4, 4), (2, 2, 2, 3)], "offset: 1"),
    Case("Deconvolution", [(1, 4, 3, 2)], "num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2"),
    Case("Dropout", IMAGE),
    Case("ELU", IMAGE, "alpha: 0.3"),
    Case("Eltwise", PAIR, "coeff: 2 coeff: -0.5"),
    Case("Eltwise", [*PAIR, *IMAGE]),
    Case("Eltwise", [*PAIR, *IMAGE], "operation: PROD"),
    Case("Eltwise", [*PAIR, *IMAGE], "operation: MAX"),
    Case("Embed", [(2, 3)], "num_output: 4 input_dim: 5", wholes=[0], high=5),
    Case("EuclideanLoss", PAIR),
    Case("Exp", IMAGE, "base: 2 scale: 0.5 shift: 0.25"),
    Case("Filter", [(3, 2), (3, 4), (3,)], tops=2, given=[1, 0, 3]),
    Case("Flatten", IMAGE),
    Case("HingeLoss", [(3, 4), (3,)], wholes=[1], high=4),
    Case("HingeLoss", [(3, 4), (3,)], "norm: L2", wholes=[1], high=4),
    Case("Im2col", [(2, 2, 4, 3)], "kernel_size: 2 pad: 1 dilation: 2"),
    Case("InfogainLoss", [*SCORES, (1, 1, 4, 4)], wholes=[1], high=4),
    Case("InnerProduct", IMAGE, "num_output: 3"),
    Case("InnerProduct", IMAGE, "num_output: 3 transpose: true axis: 2"),
    Case("LRN", [(2, 5, 2, 2)], "local_size: 3 alpha: 2 k: 2"),
    Case("LRN", [(2, 5, 2, 2)], "local_size: 15 alpha: 2 beta: 0.5"),
    Case("LRN", [(2, 2, 4, 3)], "local_size: 3 alpha: 2 norm_region: WITHIN_CHANNEL"),
    Case("LSTM", [(3, 2, 3), (3, 2)], "num_output: 2", given=CONTINUED),
    Case("LSTM", [(3, 2, 3), (3, 2), (2, 4)], "num_output: 2"),
    Case(
        "LSTM",
        [(2, 2, 3), (2, 2), (1, 2, 2), (1, 2, 2)],
        "num_output: 2 expose_hidden: true",
        tops=3,
    ),
    Case("LSTMUnit", [(1, 2, 3), (1, 2, 12), (1, 2)], given=[1, 0]),
    Case("Log", IMAGE, "scale: 3 shift: 1", low=0.0),
    Case("MVN", IMAGE),
    Case("MVN", IMAGE, "across_channels: true"),
    Case("MVN", IMAGE, "normalize_variance: false"),
    Case("MnActivation", IMAGE),
    Case("MultinomialLogisticLoss", [(3, 4), (3,)], wholes=[1], low=0.2, high=4),
    Case("Normalize", IMAGE),
    Case("Normalize", IMAGE, "across_spatial: false"),
    Case("PReLU", IMAGE),
    Case("PReLU", IMAGE, "channel_shared: true"),
    Case(
        "PSROIPooling",
        [(2, 8, 4, 3), (2, 5)],
        "output_dim: 2 group_size: 2 spatial_scale: 1",
        given=REGIONS,
    ),
    Case("Parameter", [], "shape { dim: 2 dim: 3 }"),
    Case("Permute", IMAGE, "order: 0 order: 2 order: 3"),
    Case("Pooling", IMAGE, "kernel_size: 3 stride: 2"),
    Case("Pooling", IMAGE, "kernel_size: 3 stride: 2 pad: 2", tops=2),
    Case("Pooling", IMAGE, "kernel_size: 3 stride: 2 pad: 1 pool: AVE"),
    Case("Pooling", IMAGE, "kernel_size: 3 stride: 2 pad: 2 pool: AVE"),
    Case("Pooling", IMAGE, "kernel_size: 3 pad: 2 pool: AVE avg_include_pad: false"),
    Case("Pooling", IMAGE, "global_pooling: true pool: AVE"),
    Case("Pooling", IMAGE, "global_pooling: true"),
    Case("Pooling", IMAGE, "kernel_size: 2 stride: 2 pool: STOCHASTIC", low=0.1),
    Case("Power", IMAGE, "power: 3 scale: 0.5 shift: 2"),
    Case("Power", IMAGE, "power: 3 scale: 0 shift: 2"),
    Case("RNN", [(3, 2, 3), (3, 2)], "num_output: 2", given=CONTINUED),
    Case(
        "RNN", [(2, 2, 3), (2, 2), (2, 4), (1, 2, 2)], "num_output: 2 expose_hidden: true", tops=2
    ),
    Case(
        "ROIPooling",
        [(2, 2, 4, 3), (2, 5)],
        "pooled_h: 2 pooled_w: 2 spatial_scale: 1",
        given=REGIONS,
    ),
    Case("ReLU", IMAGE),
    Case("ReLU", IMAGE, "negative_slope: 0.1"),
    Case("Reduction", IMAGE, "axis: 1"),
    Case("Reduction", IMAGE, "operation: ASUM axis: 1 coeff: 2"),
    Case("Reduction", IMAGE, "operation: SUMSQ"),
    Case("Reduction", IMAGE, "operation: MEAN axis: 2"),
    Case("Reorg", [(1, 4, 2, 4)], "stride: 2"),
    Case("Reorg", [(1, 4, 2, 3)], "stride: 2 reverse: true"),
    Case("Reshape", IMAGE, "shape { dim: 0 dim: -1 }"),
    Case("SPP", [(1, 2, 4, 5)], "pyramid_height: 2 pool: AVE"),
    Case("Scale", IMAGE, "bias_term: true"),
    Case("Scale", [(2, 3, 4), (3,)], "bias_term: true"),
    Case("Sigmoid", IMAGE),
    Case("SigmoidCrossEntropyLoss", [(3, 4), (3, 4)], wholes=[1], high=3),
    Case("SigmoidCrossEntropyLoss", [(3, 4), (3, 4)], "ignore_label: 1", wholes=[1], high=2),
    Case("Slice", IMAGE, "slice_point: 1", tops=2),
    Case("SmoothL1Loss", PAIR),
    Case("SmoothL1Loss", [*PAIR, *PAIR], "sigma: 2"),
    Case("SmoothL1LossOHEM", PAIR),
    Case("Softmax", SCORES[:1]),
    Case("SoftmaxWithLoss", SCORES, wholes=[1], high=4),
    Case(
        "SoftmaxWithLoss", SCORES, "ignore_label: 1 normalization: BATCH_SIZE", wholes=[1], high=4
    ),
    Case("SoftmaxWithLoss", SCORES, "", "softmax_param { axis: -2 }", wholes=[1], high=4),
    Case("SoftmaxWithLossOHEM", SCORES, wholes=[1], high=4),
    Case("SpatialDropout", IMAGE),
    Case("Split", IMAGE, tops=3),
    Case("Swish", IMAGE, "beta: 2"),
    Case("TanH", IMAGE),
    Case("Tile", IMAGE, "tiles: 2"),
]

WITHOUT_GRADIENT = {
    *("Accuracy", "ArgMax", "BoxAnnotatorOHEM", "DetectionEvaluate", "DetectionOutput"),
    *("PriorBox", "Silence", "Threshold"),
}
# Layers that bring data in or hand them to a program's own code; tested with these.
ELSEWHERE = {
    *(
        "AnnotatedData",
        "Data",
        "DummyData",
        "HDF5Data",
        "HDF5Output",
        "ImageData",
        "Input",
        "MemoryData",
    ),
    *("MultiBoxLoss", "Python", "WindowData"),
}


def weighted(case: Case, bottoms: Sequence[Array], params: Sequence[Array]) -> float:
    """A sum of all tops, each element with a weight of its own, by a fresh layer."""
    built = build_case(case)
    with torch.no_grad():
        for param, value in zip(built.params, params, strict=True):
            param.data.copy_(torch.from_numpy(value))
        tops = built.forward([torch.from_numpy(b) for b in bottoms])
    diffs = weights(case, [tuple(t.shape) for t in tops])
    return sum(
        float((t.detach() * d).sum()) for t, d in zip(tops, diffs, strict=True) if d is not None
    )


def weights(case: Case, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor | None]:
    """Gradients of the tops; a loss's other tops and places of maxima have none."""
    random = torch.Generator().manual_seed(5)
    drawn = [torch.randn(s, generator=random, dtype=torch.float64) for s in shapes]
    cls = layer_class(case.kind)
    assert cls is not None
    if cls.is_loss or case.kind == "Pooling":
        return [drawn[0], *[None] * (len(drawn) - 1)]
    return list(drawn)


def difference(case: Case, blobs: tuple[list[Array], list[Array]], which: int, place: int) -> Array:
    """Centred differences for one bottom (which 0) or param (which 1)."""
    found = np.zeros(blobs[which][place].shape)
    step = 1e-5
    for at in np.ndindex(found.shape):
        sides = []
        for sign in (1, -1):
            moved = [[blob.copy() for blob in group] for group in blobs]
            moved[which][place][at] += sign * step
            sides.append(weighted(case, *moved))
        found[at] = (sides[0] - sides[1]) / (2 * step)
    return found


def own(built: Layer, case: Case, bottoms: Sequence[Array]) -> list[torch.Tensor | None]:
    """What the layer's backward says of the bottoms; that of its params is in them."""
    wanted = [place not in built.no_gradient_to for place in range(len(bottoms))]
    leaves = [
        torch.from_numpy(b.copy()).requires_grad_(w) for b, w in zip(bottoms, wanted, strict=True)
    ]
    tops = built.forward(leaves)
    diffs = weights(case, [tuple(t.shape) for t in tops])
    return built.backward(leaves, tops, diffs, wanted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_the_function(case: Case) -> None:
    built = build_case(case)
    bottoms = [b.astype(np.float64) for b in case.bottoms()]
    params = [p.data.detach().numpy().copy() for p in built.params]
    found = own(built, case, bottoms)
    for place, gradient in enumerate(found):
        if place in built.no_gradient_to or (case.kind == "Filter" and place == 2):
            assert gradient is None
            continue
        expected = difference(case, (bottoms, params), 0, place)
        mine = np.zeros(bottoms[place].shape) if gradient is None else gradient.numpy()
        np.testing.assert_allclose(mine, expected, rtol=case.tolerance, atol=1e-7)
    for place, param in enumerate(built.params):
        if param.learns:
            assert param.diff is not None
            expected = difference(case, (bottoms, params), 1, place)
            np.testing.assert_allclose(param.diff.numpy(), expected, rtol=1e-5, atol=1e-7)


def test_every_layer_that_has_a_gradient_is_in_the_table() -> None:
    other = {"MKLBatchNorm"}  # BatchNorm's other name
    tested = {case.kind for case in CASES} | WITHOUT_GRADIENT | ELSEWHERE | set(REFUSED) | other
    assert set(layer_kinds()) - tested == set()


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.kind in {"InnerProduct", "Convolution"}], ids=str
)
def test_gradients_of_params_are_added_up(case: Case) -> None:
    built = build_case(case)
    bottoms = [b.astype(np.float64) for b in case.bottoms()]
    own(built, case, bottoms)
    once = [p.diff.clone() for p in built.params if p.diff is not None]
    own(built, case, bottoms)
    for param, first in zip(built.params, once, strict=True):
        assert param.diff is not None
        torch.testing.assert_close(param.diff, 2 * first)
