"""Pooling, with windows found one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import Array, build, numbers, run
from sirtaki_caffe.proto.schema import TEST


def number_of_windows(size: int, k: int, s: int, p: int, ceil: bool, padded: bool) -> int:
    span = (size + 2 * p - k) / s
    number = (math.ceil(span) if ceil else math.floor(span)) + 1
    return number - 1 if padded and (number - 1) * s >= size + p else number


def pooled(
    plane: Array, k: tuple[int, int], s: tuple[int, int], p: tuple[int, int], **how: Any
) -> tuple[Array, Array, Array, Array]:
    """Maxima, their places, means with padding counted and without."""
    high, wide = (
        number_of_windows(plane.shape[i], k[i], s[i], p[i], how.get("ceil", True), any(p))
        for i in range(2)
    )
    tops = np.zeros((4, high, wide))
    for i in range(high):
        for j in range(wide):
            top, left = i * s[0] - p[0], j * s[1] - p[1]
            bottom, right = (
                min(top + k[0], plane.shape[0] + p[0]),
                min(left + k[1], plane.shape[1] + p[1]),
            )
            area = (bottom - top) * (right - left)
            top, left = max(top, 0), max(left, 0)
            window = plane[top:bottom, left:right]
            row, column = np.unravel_index(window.argmax(), window.shape)
            tops[:, i, j] = (
                window.max(),
                (top + row) * plane.shape[1] + left + column,
                window.sum() / area,
                window.mean(),
            )
    return tops[0], tops[1], tops[2], tops[3]


# kernel, stride, pad; those with a pad of more than half the kernel are not PyTorch's
WINDOWS = [
    ((3, 3), (2, 2), (0, 0)),
    ((3, 3), (2, 2), (1, 1)),
    ((2, 2), (2, 2), (0, 0)),
    ((2, 2), (2, 2), (1, 1)),
    ((5, 5), (3, 3), (2, 2)),
    ((3, 3), (1, 1), (2, 2)),
    ((3, 3), (3, 3), (2, 2)),
    ((5, 4), (2, 3), (4, 3)),
    ((2, 3), (1, 2), (0, 2)),
    ((3, 2), (2, 2), (0, 1)),
    ((3, 2), (2, 2), (2, 0)),
]
PLANE = (8, 7)


def text(k: Any, s: Any, p: Any, more: str = "") -> str:
    sizes = f"kernel_h: {k[0]} kernel_w: {k[1]} stride_h: {s[0]} stride_w: {s[1]}"
    return f'type: "Pooling" pooling_param {{ {sizes} pad_h: {p[0]} pad_w: {p[1]} {more} }}'


@pytest.mark.parametrize("ceil", [True, False], ids=["CEIL", "FLOOR"])
@pytest.mark.parametrize(("k", "s", "p"), WINDOWS)
def test_windows_are_those_of_caffe(k: Any, s: Any, p: Any, ceil: bool) -> None:
    x = numbers(2, 3, *PLANE).astype(np.float64)
    mode = "" if ceil else "round_mode: FLOOR"
    largest, places = run(build(text(k, s, p, mode), x.shape, tops=2), x)
    (means,) = run(build(text(k, s, p, f"pool: AVE {mode}"), x.shape), x)
    inner = f"pool: AVE avg_include_pad: false {mode}"
    (inner_means,) = run(build(text(k, s, p, inner), x.shape), x)
    for item in range(2):
        for channel in range(3):
            expected = pooled(x[item, channel], k, s, p, ceil=ceil)
            for top, wanted in zip((largest, places, means, inner_means), expected, strict=True):
                np.testing.assert_allclose(top[item, channel], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "empty"), [("MAX", np.finfo(np.float32).min), ("AVE", 0.0), ("STOCHASTIC", 0.0)]
)
def test_a_window_behind_the_image_is_empty(method: str, empty: float) -> None:
    x = np.abs(numbers(1, 1, 6, 5)).astype(np.float64)
    built = build(text((1, 1), (2, 2), (0, 0), f"pool: {method}"), x.shape, phase=TEST)
    (top,) = run(built, x)
    expected = np.full((1, 1, 4, 3), empty)
    expected[:, :, :3] = x[:, :, ::2, ::2]
    np.testing.assert_allclose(top, expected, rtol=1e-12)


def test_the_maximum_of_an_empty_window_is_nowhere() -> None:
    x = torch.rand(1, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    top, places = build(text((1, 1), (2, 2), (0, 0)), x.shape, tops=2).forward([x])
    assert places[0, 0, 3].tolist() == [-1] * 4
    top.sum().backward()
    assert x.grad[0, 0, ::2, ::2].eq(1).all()
    assert x.grad.sum() == 9


def test_a_window_larger_than_the_image_is_one_that_overhangs() -> None:
    x = numbers(1, 1, 8, 8).astype(np.float64)
    (top,) = run(build(text((9, 9), (2, 2), (0, 0)), x.shape), x)
    assert top.ravel() == x.max()


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_of_equal_maxima_the_first_is_meant(pad: int) -> None:
    built = build(text((3, 3), (3, 3), (pad, pad)), (1, 1, 3, 3), tops=2)
    _, places = run(built, np.ones((1, 1, 3, 3)))
    assert places.ravel()[0] == 0


def test_global_pooling_takes_the_whole_plane() -> None:
    x = numbers(2, 3, 4, 5).astype(np.float64)
    largest, places = run(
        build('type: "Pooling" pooling_param { global_pooling: true }', x.shape, tops=2), x
    )
    np.testing.assert_array_equal(largest[..., 0, 0], x.max((2, 3)))
    np.testing.assert_array_equal(places[..., 0, 0], x.reshape(2, 3, -1).argmax(2))


def test_stochastic_pooling_draws_values_in_proportion_to_them() -> None:
    built = build(
        'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 }', (1, 4000, 2, 2)
    )
    x = np.tile(np.array([[0.0, 1], [3, 4]]), (1, 4000, 1, 1))
    (top,) = run(built, x)
    parts = [(top == value).mean() for value in (0, 1, 3, 4)]
    np.testing.assert_allclose(parts, [0, 1 / 8, 3 / 8, 4 / 8], atol=0.03)


def test_stochastic_pooling_in_test_is_the_mean_weighted_by_value() -> None:
    built = build(
        'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 }',
        (1, 1, 2, 2),
        phase=TEST,
    )
    assert run(built, [[[[0.0, 1], [3, 4]]]])[0].item() == 26 / 8


def test_a_pyramid_pools_into_one_window_then_four() -> None:
    x = numbers(2, 3, 4, 6).astype(np.float64)
    (top,) = run(build('type: "SPP" spp_param { pyramid_height: 2 }', x.shape), x)
    quarters = [x[:, :, i : i + 2, j : j + 3].max((2, 3)) for i in (0, 2) for j in (0, 3)]
    expected = np.concatenate([x.max((2, 3)), np.stack(quarters, 2).reshape(2, -1)], 1)
    np.testing.assert_array_equal(top, expected)


def test_a_pyramid_of_one_level_keeps_its_axes() -> None:
    x = numbers(2, 3, 4, 5).astype(np.float64)
    (top,) = run(build('type: "SPP" spp_param { pyramid_height: 1 }', x.shape), x)
    np.testing.assert_array_equal(top, x.max((2, 3), keepdims=True))


def test_a_pyramid_pads_planes_that_it_does_not_divide() -> None:
    x = numbers(1, 1, 5, 5).astype(np.float64)
    (top,) = run(build('type: "SPP" spp_param { pyramid_height: 2 pool: AVE }', x.shape), x)
    _, _, means, _ = pooled(x[0, 0], (3, 3), (3, 3), (1, 1))
    np.testing.assert_allclose(top.ravel(), [x.mean(), *means.ravel()], rtol=1e-12)
