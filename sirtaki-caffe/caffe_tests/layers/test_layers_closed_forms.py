"""Layers forward against their formulas in NumPy, where OpenCV has no judgement or another one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import (
    Array,
    Case,
    build,
    build_case,
    numbers,
    run,
    set_params,
)
from sirtaki_caffe.proto.schema import TEST

IMAGE = [(2, 4, 5, 6)]
ROWS = [(3, 5)]
Formula = Callable[[list[Array], list[Array]], Sequence[Array]]


def convolve(x: Array, weight: Array, bias: Array, stride: int, pad: int, dilation: int) -> Array:
    """One window after the other, over any number of spatial axes."""
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * axes])
    extents = [dilation * (k - 1) + 1 for k in weight.shape[2:]]
    sizes = [(n - e) // stride + 1 for n, e in zip(x.shape[2:], extents, strict=True)]
    y = np.zeros((len(x), len(weight), *sizes))
    for at in itertools.product(*map(range, sizes)):
        cut = [
            slice(a * stride, a * stride + e, dilation) for a, e in zip(at, extents, strict=True)
        ]
        window = x[(slice(None), slice(None), *cut)].reshape(len(x), -1)
        y[(slice(None), slice(None), *at)] = window @ weight.reshape(len(weight), -1).T + bias
    return y


def lrn(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    channels = x.shape[1]
    half = size // 2
    sums = np.stack(
        [
            (x[:, max(0, c - half) : min(channels, c + half + 1)] ** 2).sum(1)
            for c in range(channels)
        ],
        1,
    )
    return x / (k + alpha / size * sums) ** beta


def mvn(x: Array, variance: bool, axes: tuple[int, ...], eps: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred / (x.std(axes, keepdims=True) + eps) if variance else centred


def softmax(x: Array, axis: int = 1) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def columns(x: Array) -> Array:
    """Of windows of 2 x 3, a step of 2 apart, with a border of 1."""
    x = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    high, wide = (x.shape[2] - 2) // 2 + 1, (x.shape[3] - 3) // 2 + 1
    y = np.zeros((x.shape[0], x.shape[1] * 6, high, wide))
    for c, i, j, h, w in itertools.product(
        range(x.shape[1]), range(2), range(3), range(high), range(wide)
    ):
        y[:, c * 6 + i * 3 + j, h, w] = x[:, c, 2 * h + i, 2 * w + j]
    return y


def argmax(x: Array, best: int) -> Array:
    return np.argsort(-x.reshape(len(x), -1), 1)[:, :best]


CASES: list[tuple[Case, Formula]] = [
    (Case("ArgMax", IMAGE), lambda b, p: [argmax(b[0], 1).reshape(2, 1, 1, 1)]),
    (Case("ArgMax", ROWS, "top_k: 2"), lambda b, p: [argmax(b[0], 2).reshape(3, 1, 2)]),
    (
        Case("ArgMax", ROWS, "top_k: 2 out_max_val: true"),
        lambda b, p: [np.stack([argmax(b[0], 2), -np.sort(-b[0], 1)[:, :2]], 1)],
    ),
    (Case("ArgMax", IMAGE, "axis: 1"), lambda b, p: [b[0].argmax(1)[:, None]]),
    (
        Case("ArgMax", IMAGE, "axis: -1 top_k: 3 out_max_val: true"),
        lambda b, p: [-np.sort(-b[0], 3)[..., :3]],
    ),
    (
        Case("Axpy", [(2, 4), *IMAGE, *IMAGE]),
        lambda b, p: [b[0][..., None, None] * b[1] + b[2]],
    ),
    (
        Case("BatchReindex", [(3, 4), (5,)], given=[2, 0, 0, 1, 2]),
        lambda b, p: [b[0][[2, 0, 0, 1, 2]]],
    ),
    (Case("Bias", IMAGE), lambda b, p: [b[0] + p[0][:, None, None]]),
    (Case("Bias", [*IMAGE, (4, 5)]), lambda b, p: [b[0] + b[1][:, :, None]]),
    (Case("Bias", IMAGE, "num_axes: 0"), lambda b, p: [b[0] + p[0]]),
    (Case("Clip", IMAGE, "min: -0.5 max: 1"), lambda b, p: [b[0].clip(-0.5, 1)]),
    (
        Case("Convolution", [(2, 4, 9)], "num_output: 6 kernel_size: 3 stride: 2 pad: 1"),
        lambda b, p: [convolve(b[0], *p, 2, 1, 1)],
    ),
    (
        Case("Convolution", [(2, 2, 5, 4, 6)], "num_output: 3 kernel_size: 2 dilation: 2 pad: 1"),
        lambda b, p: [convolve(b[0], *p, 1, 1, 2)],
    ),
    (
        Case("Convolution", [(4, 5, 6)], "num_output: 3 kernel_size: 3 axis: 0"),
        lambda b, p: [convolve(b[0][None], *p, 1, 0, 1)[0]],
    ),
    (
        Case("Convolution", [(2, 3, 4, 5, 6)], "num_output: 3 kernel_size: 3 axis: 2"),
        lambda b, p: [convolve(b[0].reshape(6, 4, 5, 6), *p, 1, 0, 1).reshape(2, 3, 3, 3, 4)],
    ),
    (
        Case("Convolution", [(2, 4, 3)], "num_output: 5 axis: 2"),
        lambda b, p: [b[0] @ p[0].T + p[1]],
    ),
    (
        Case("Convolution", [*IMAGE, *IMAGE], "num_output: 3 kernel_size: 3", tops=2),
        lambda b, p: [convolve(x, *p, 1, 0, 1) for x in b],
    ),
    (
        Case("Embed", [(2, 3)], "num_output: 4 input_dim: 5", wholes=[0], high=5),
        lambda b, p: [p[0][b[0].astype(int)] + p[1]],
    ),
    (Case("Flatten", IMAGE, "axis: 1 end_axis: 2"), lambda b, p: [b[0].reshape(2, 20, 6)]),
    (
        Case("Im2col", IMAGE, "kernel_h: 2 kernel_w: 3 stride: 2 pad: 1"),
        lambda b, p: [columns(b[0])],
    ),
    (
        Case("InnerProduct", IMAGE, "num_output: 7 transpose: true"),
        lambda b, p: [b[0].reshape(2, -1) @ p[0] + p[1]],
    ),
    (
        Case("InnerProduct", IMAGE, "num_output: 7 axis: 2"),
        lambda b, p: [b[0].reshape(2, 4, -1) @ p[0].T + p[1]],
    ),
    (
        Case("InnerProduct", IMAGE, "num_output: 7 axis: -1 relu: true negative_slope: 0.5"),
        lambda b, p: [np.maximum(b[0] @ p[0].T + p[1], (b[0] @ p[0].T + p[1]) / 2)],
    ),
    (Case("LRN", IMAGE, "local_size: 3 alpha: 2 k: 2"), lambda b, p: [lrn(b[0], 3, 2, 0.75, 2)]),
    (Case("LRN", IMAGE, "local_size: 15 beta: 1"), lambda b, p: [lrn(b[0], 15, 1, 1, 1)]),
    (Case("Log", IMAGE, low=0.0), lambda b, p: [np.log(b[0])]),
    (
        Case("Log", IMAGE, "base: 2 scale: 3 shift: 1", low=0.0),
        lambda b, p: [np.log2(3 * b[0] + 1)],
    ),
    (Case("MVN", IMAGE), lambda b, p: [mvn(b[0], True, (2, 3), 1e-9)]),
    (
        Case("MVN", IMAGE, "normalize_variance: false"),
        lambda b, p: [mvn(b[0], False, (2, 3), 0)],
    ),
    (
        Case("MVN", IMAGE, "across_channels: true eps: 0.5"),
        lambda b, p: [mvn(b[0], True, (1, 2, 3), 0.5)],
    ),
    (Case("MVN", ROWS, "across_channels: true"), lambda b, p: [mvn(b[0], True, (1,), 1e-9)]),
    (Case("MVN", ROWS), lambda b, p: [np.zeros_like(b[0])]),
    (Case("MnActivation", IMAGE), lambda b, p: b),
    (
        Case("Normalize", IMAGE),
        lambda b, p: [p[0] * b[0] / np.sqrt((b[0] ** 2).sum((1, 2, 3), keepdims=True))],
    ),
    (
        Case("PReLU", IMAGE, "channel_shared: true"),
        lambda b, p: [np.where(b[0] > 0, b[0], p[0] * b[0])],
    ),
    (Case("Parameter", [], "shape { dim: 2 dim: 3 }"), lambda b, p: p),
    (Case("Power", IMAGE, "power: 0"), lambda b, p: [np.ones_like(b[0])]),
    (Case("Power", IMAGE, "power: 3 scale: 0 shift: 2"), lambda b, p: [np.full_like(b[0], 8)]),
    (Case("Reduction", IMAGE), lambda b, p: [b[0].sum()]),
    (
        Case("Reduction", IMAGE, "operation: ASUM axis: 2 coeff: 2"),
        lambda b, p: [2 * np.abs(b[0]).sum((2, 3))],
    ),
    (
        Case("Reduction", IMAGE, "operation: SUMSQ axis: 1"),
        lambda b, p: [(b[0] ** 2).sum((1, 2, 3))],
    ),
    (Case("Reduction", IMAGE, "operation: MEAN axis: -1"), lambda b, p: [b[0].mean(3)]),
    (Case("Reorg", [(2, 8, 3, 2)], "stride: 2 reverse: true"), lambda b, p: [un_reorg(b[0])]),
    (Case("Scale", IMAGE, "num_axes: -1"), lambda b, p: [b[0] * p[0]]),
    (Case("Scale", IMAGE, "num_axes: 0 bias_term: true"), lambda b, p: [b[0] * p[0] + p[1]]),
    (
        Case("Scale", [*IMAGE, (4, 5)], "bias_term: true"),
        lambda b, p: [b[0] * b[1][:, :, None] + p[0][:, :, None]],
    ),
    (Case("Silence", [(2, 3), (4,)]), lambda b, p: []),
    (Case("Swish", IMAGE, "beta: 2"), lambda b, p: [b[0] / (1 + np.exp(-2 * b[0]))]),
    (Case("Threshold", IMAGE, "threshold: 0.5"), lambda b, p: [b[0] > 0.5]),
    (Case("Tile", IMAGE, "tiles: 3"), lambda b, p: [np.concatenate([b[0]] * 3, 1)]),
]


def un_reorg(x: Array) -> Array:
    """By Darknet's loop over the elements."""
    items, channels, high, wide = x.shape
    few = channels // 4
    y = np.zeros((items, few, high * 2, wide * 2))
    for k, j, i in itertools.product(range(channels), range(high), range(wide)):
        place = k // few
        y[:, k % few, j * 2 + place // 2, i * 2 + place % 2] = x[:, k, j, i]
    return y


@pytest.mark.parametrize(("case", "formula"), CASES, ids=[str(case)[:60] for case, _ in CASES])
def test_a_layer_follows_its_formula(case: Case, formula: Formula) -> None:
    built = build_case(case)
    bottoms = case.bottoms()
    tops = run(built, *bottoms)
    params = [p.data.detach().numpy() for p in built.params]
    expected = formula([b.astype(np.float64) for b in bottoms], params)
    for top, wanted in zip(tops, expected, strict=True):
        np.testing.assert_allclose(top, wanted, rtol=1e-9, atol=1e-9)


def test_argmax_puts_the_greater_place_first_of_equal_elements() -> None:
    built = build('type: "ArgMax" argmax_param { top_k: 3 }', (1, 4))
    assert run(built, [[5.0, 1, 5, 5]])[0].ravel().tolist() == [3, 2, 0]


def test_a_filter_keeps_the_items_that_are_selected_in_all_bottoms() -> None:
    built = build('type: "Filter"', (4, 3), (4, 2), (4,), tops=2)
    first, second = torch.randn(4, 3), torch.randn(4, 2)
    tops = built.forward([first, second, torch.tensor([0.0, 2, 1, 0])])
    assert torch.equal(tops[0], first[1:3])
    assert torch.equal(tops[1], second[1:3])


def test_a_filter_that_keeps_nothing_has_an_empty_top() -> None:
    built = build('type: "Filter"', (2, 3), (2,))
    (top,) = built.forward([torch.ones(2, 3), torch.zeros(2)])
    assert top.shape == (0, 3)


def test_eltwise_max_of_equal_elements_gives_the_gradient_to_the_second_then_the_first() -> None:
    built = build('type: "Eltwise" eltwise_param { operation: MAX }', (1,), (1,), (1,))
    bottoms = [torch.ones(1, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    tops = built.forward(bottoms)
    gradients = built.backward(bottoms, tops, [torch.ones(1, dtype=torch.float64)], [True] * 3)
    assert [float(g) for g in gradients if g is not None] == [0, 1, 0]


@pytest.mark.parametrize("kind", ["Dropout", "SpatialDropout"])
def test_dropout_is_the_identity_in_test(kind: str) -> None:
    built = build(f'type: "{kind}"', (2, 3, 4, 4), phase=TEST)
    x = np.ones((2, 3, 4, 4))
    np.testing.assert_array_equal(run(built, x)[0], x)


def test_dropout_zeroes_the_given_part_and_scales_the_rest() -> None:
    built = build('type: "Dropout" dropout_param { dropout_ratio: 0.2 }', (100, 100))
    (top,) = run(built, np.ones((100, 100)))
    np.testing.assert_allclose(np.unique(top), [0, 1.25])
    assert abs((top == 0).mean() - 0.2) < 0.02


def test_spatial_dropout_zeroes_whole_channels() -> None:
    built = build('type: "SpatialDropout"', (8, 16, 3, 3))
    (top,) = run(built, np.ones((8, 16, 3, 3)))
    whole = top.reshape(8, 16, 9)
    assert (whole == whole[:, :, :1]).all()
    assert set(whole.ravel().tolist()) == {0, 2}


def test_dropout_draws_from_the_nets_source_of_random_numbers() -> None:
    first, second = (run(build('type: "Dropout"', (50,)), np.ones(50))[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", ["ConvolutionDepthwise", "DepthwiseConvolution"])
def test_a_depthwise_convolution_sees_each_channel_by_itself(kind: str) -> None:
    x, weights = numbers(2, 3, 5, 4), numbers(6, 1, 2, 2, seed=8)
    fields = "num_output: 6 kernel_size: 2 bias_term: false"
    built = [
        build(f'type: "{name}" convolution_param {{ {fields} {group} }}', x.shape)
        for name, group in ((kind, ""), ("Convolution", "group: 3"))
    ]
    for each in built:
        set_params(each, weights)
    np.testing.assert_array_equal(run(built[0], x)[0], run(built[1], x)[0])
