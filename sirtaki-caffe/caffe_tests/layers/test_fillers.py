"""How blobs start: exact values, ranges and moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import text_format

from caffe_tests.layers.layer_runs import Array
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.fillers import fill
from sirtaki_caffe.proto.schema import message_class


def filled(text: str, *shape: int, seed: int = 1) -> Array:
    filler: Any = text_format.Parse(text, message_class("FillerParameter")())
    tensor = torch.empty(shape, dtype=torch.float64)
    fill(tensor, filler, torch.Generator().manual_seed(seed))
    values: Array = tensor.numpy()
    return values


def test_nothing_said_is_zero() -> None:
    assert (filled("", 3, 4) == 0).all()


def test_a_constant_is_one_number() -> None:
    assert (filled('type: "constant" value: 2.5', 3, 4) == 2.5).all()


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ('type: "uniform"', 0, 1),
        ('type: "uniform" min: -2 max: 3', -2, 3),
        ('type: "xavier"', -np.sqrt(3 / 40), np.sqrt(3 / 40)),
        ('type: "xavier" variance_norm: FAN_OUT', -np.sqrt(3 / 1000), np.sqrt(3 / 1000)),
        ('type: "xavier" variance_norm: AVERAGE', -np.sqrt(3 / 520), np.sqrt(3 / 520)),
    ],
)
def test_even_distributions_fill_their_range(text: str, low: float, high: float) -> None:
    values = filled(text, 500, 20, 2)
    assert values.min() >= low
    assert values.max() <= high
    width = high - low
    np.testing.assert_allclose(values.mean(), (low + high) / 2, atol=0.02 * width)
    np.testing.assert_allclose(values.std(), width / np.sqrt(12), rtol=0.02)


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ('type: "gaussian"', 0, 1),
        ('type: "gaussian" mean: 3 std: 0.1', 3, 0.1),
        ('type: "msra"', 0, np.sqrt(2 / 40)),
        ('type: "msra" variance_norm: FAN_OUT', 0, np.sqrt(2 / 1000)),
        ('type: "msra" variance_norm: AVERAGE', 0, np.sqrt(2 / 520)),
        ('type: "msra" scale: 3', 0, 3 * np.sqrt(2 / 40)),
    ],
)
def test_normal_distributions_have_their_moments(text: str, mean: float, deviation: float) -> None:
    values = filled(text, 500, 20, 2)
    np.testing.assert_allclose(values.mean(), mean, atol=0.03 * deviation)
    np.testing.assert_allclose(values.std(), deviation, rtol=0.03)


def test_a_blob_of_one_axis_fans_out_to_all_of_it() -> None:
    values = filled('type: "msra" variance_norm: FAN_OUT', 20000)
    np.testing.assert_allclose(values.std(), np.sqrt(2 / 20000), rtol=0.03)


def test_a_sparse_blob_keeps_some_of_its_numbers() -> None:
    values = filled('type: "gaussian" sparse: 15', 100, 300)
    np.testing.assert_allclose((values != 0).mean(), 0.15, atol=0.01)
    np.testing.assert_allclose(values[values != 0].std(), 1, rtol=0.05)


def test_rows_of_a_unit_ball_have_the_sum_one() -> None:
    values = filled('type: "positive_unitball"', 5, 4, 3)
    assert (values > 0).all()
    np.testing.assert_allclose(values.sum((1, 2)), np.ones(5))


@pytest.mark.parametrize(
    ("width", "line"), [(4, [0.25, 0.75, 0.75, 0.25]), (3, [0.5, 1, 0.5]), (2, [0.5, 0.5])]
)
def test_a_bilinear_blob_interpolates(width: int, line: list[float]) -> None:
    values = filled('type: "bilinear"', 2, 1, width, width)
    np.testing.assert_allclose(values, np.broadcast_to(np.outer(line, line), (2, 1, width, width)))


def test_a_gabor_blob_has_gratings_that_see_no_even_ground() -> None:
    values = filled('type: "gabor"', 16, 3, 11, 11)
    np.testing.assert_allclose(values.mean((2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(np.square(values).sum((1, 2, 3)), 1, rtol=1e-5)
    np.testing.assert_array_equal(values[:, 0], values[:, 1])
    # The fifth direction is the first one turned by a right angle.
    np.testing.assert_allclose(values[4, 0], values[0, 0].T, atol=1e-6)
    assert np.abs(values[0, 0] - values[1, 0]).max() > 0.01


def test_the_same_seed_gives_the_same_numbers() -> None:
    for text in ('type: "xavier"', 'type: "gaussian" sparse: 3', 'type: "positive_unitball"'):
        np.testing.assert_array_equal(filled(text, 9, 9), filled(text, 9, 9))
        assert (filled(text, 9, 9) != filled(text, 9, 9, seed=2)).any()


@pytest.mark.parametrize(
    ("text", "shape", "why"),
    [
        ('type: "gabors"', (96, 3, 11, 11), "no filler of type 'gabors'; there are bilinear, "),
        ('type: "gabor"', (96, 4, 11, 11), "three channels and a square kernel"),
        ('type: "gabor"', (96, 3, 11, 9), "three channels and a square kernel"),
        ('type: "gabor"', (96, 3, 2, 2), "a kernel of at least 3"),
        ('type: "uniform" min: 1 max: 0', (3,), "from 1 to 0 is empty"),
        ('type: "gaussian" std: -1', (3,), "needs std >= 0"),
        ('type: "bilinear"', (3, 4), "four axes and a square kernel"),
        ('type: "bilinear"', (1, 1, 3, 4), "four axes and a square kernel"),
    ],
)
def test_what_cannot_be_filled_is_an_error(text: str, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(CaffeError, match=why):
        filled(text, *shape)
