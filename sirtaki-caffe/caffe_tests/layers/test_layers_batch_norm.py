"""BatchNorm: its moving sums, chunks of a batch, and Intel's scale and shift."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import Array, build, numbers, run, set_params
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import Layer
from sirtaki_caffe.proto.schema import TEST

SHAPE = (4, 3, 5, 2)
PLAIN = 'type: "BatchNorm"'


def normalised(x: Array, eps: float = 1e-5) -> Array:
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + eps)


def blobs(built: Layer) -> list[Array]:
    return [p.data.detach().numpy().copy() for p in built.params]


def test_a_batch_in_training_is_normalised_by_its_own_statistics() -> None:
    x = numbers(*SHAPE) * 3 + 2
    np.testing.assert_allclose(run(build(PLAIN, SHAPE), x)[0], normalised(x), rtol=1e-5, atol=1e-6)


def test_moving_sums_weigh_each_batch_with_one() -> None:
    built = build(f"{PLAIN} batch_norm_param {{ moving_average_fraction: 0.5 }}", SHAPE)
    first, second = numbers(*SHAPE, seed=1), numbers(*SHAPE, seed=2)
    run(built, first)
    run(built, second)
    count = 4 * 5 * 2
    means = [x.mean((0, 2, 3), dtype=np.float64) for x in (first, second)]
    variances = [x.var((0, 2, 3), dtype=np.float64) * count / (count - 1) for x in (first, second)]
    for blob, wanted in zip(
        blobs(built),
        (means[0] / 2 + means[1], variances[0] / 2 + variances[1], [1.5]),
        strict=True,
    ):
        np.testing.assert_allclose(blob, wanted, rtol=1e-6, atol=1e-7)


def test_global_statistics_are_the_sums_divided_by_their_weight() -> None:
    built = build(PLAIN, SHAPE, phase=TEST)
    means, variances = numbers(3), np.float32([1, 2, 3])
    set_params(built, means * 4, variances * 4, np.float32([4]))
    x = numbers(*SHAPE)
    wanted = (x - means[:, None, None]) / np.sqrt(variances[:, None, None] + 1e-5)
    np.testing.assert_allclose(run(built, x)[0], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(blobs(built)[2], [4])


def test_global_statistics_of_no_batches_are_zeros() -> None:
    x = numbers(*SHAPE)
    (top,) = run(build(PLAIN, SHAPE, phase=TEST), x)
    np.testing.assert_allclose(top, x / np.sqrt(1e-5), rtol=1e-4)


def test_a_phase_may_be_overruled() -> None:
    x = numbers(*SHAPE)
    own = build(f"{PLAIN} batch_norm_param {{ use_global_stats: false }}", SHAPE, phase=TEST)
    np.testing.assert_allclose(run(own, x)[0], normalised(x), rtol=1e-4, atol=1e-5)


def test_a_bottom_of_one_axis_is_one_channel() -> None:
    x = numbers(9)
    built = build(PLAIN, (9,))
    (top,) = run(built, x)
    np.testing.assert_allclose(top, (x - x.mean()) / np.sqrt(x.var() + 1e-5), rtol=1e-5, atol=1e-6)
    assert [b.shape for b in blobs(built)] == [(1,), (1,), (1,)]


def test_one_value_a_channel_has_no_variance() -> None:
    built = build(PLAIN, (1, 3))
    run(built, [[1.0, 2, 3]])
    np.testing.assert_array_equal(blobs(built)[1], [0, 0, 0])


@pytest.mark.parametrize(
    "where",
    [
        {"text": f"{PLAIN} batch_norm_param {{ stats_batch_size: 2 }}"},
        {"text": PLAIN, "bn_stats_batch_size": 2},
    ],
    ids=["layer", "net"],
)
def test_chunks_of_a_batch_are_normalised_by_themselves(where: dict[str, object]) -> None:
    options = dict(where)
    built = build(str(options.pop("text")), SHAPE, **options)
    x = numbers(*SHAPE)
    (top,) = run(built, x)
    wanted = np.concatenate([normalised(x[:2]), normalised(x[2:])])
    np.testing.assert_allclose(top, wanted, rtol=1e-4, atol=1e-5)
    means = [x[i : i + 2].mean((0, 2, 3), dtype=np.float64) for i in (0, 2)]
    np.testing.assert_allclose(blobs(built)[0], 0.999 * means[0] + means[1], rtol=1e-6)
    np.testing.assert_allclose(blobs(built)[2], [1.999])


def test_a_batch_that_chunks_do_not_divide_is_refused() -> None:
    built = build(PLAIN, SHAPE, bn_stats_batch_size=3)
    with pytest.raises(LayerError, match=r"a batch of 4 is not a multiple of the 3 images"):
        built.shapes([SHAPE])


def test_the_statistics_are_left_alone_by_the_solver() -> None:
    built = build(PLAIN, SHAPE)
    assert [p.lr_mult for p in built.params] == [0, 0, 0]
    assert [p.lr_mult for p in built.proto.param] == [0, 0, 0]


def test_statistics_that_the_solver_would_change_are_refused() -> None:
    with pytest.raises(LayerError, match="param 1 holds statistics"):
        build(f"{PLAIN} param {{ lr_mult: 0 }} param {{ lr_mult: 1 }}", SHAPE)


def test_an_affine_one_scales_and_shifts_and_learns_both() -> None:
    fillers = "filler { value: 3 } bias_filler { value: 0.5 }"
    built = build(f"{PLAIN} batch_norm_param {{ use_weight_bias: true {fillers} }}", SHAPE)
    x = numbers(*SHAPE)
    np.testing.assert_allclose(run(built, x)[0], 3 * normalised(x) + 0.5, rtol=1e-4, atol=1e-5)
    assert [p.lr_mult for p in built.params] == [0, 0, 0, 1, 1]


def test_an_affine_one_without_fillers_starts_as_a_plain_one() -> None:
    built = build(f"{PLAIN} batch_norm_param {{ use_weight_bias: true }}", SHAPE)
    np.testing.assert_array_equal(blobs(built)[3], np.ones(3))
    np.testing.assert_array_equal(blobs(built)[4], np.zeros(3))


def test_an_affine_one_may_have_no_shift() -> None:
    built = build(f"{PLAIN} batch_norm_param {{ use_weight_bias: true bias_term: false }}", SHAPE)
    assert len(built.params) == 4


def test_training_leaves_no_gradient_in_the_statistics() -> None:
    built = build(PLAIN, SHAPE)
    x = torch.randn(SHAPE, dtype=torch.float64, requires_grad=True)
    tops = built.forward([x])
    built.backward([x], tops, [torch.randn(SHAPE, dtype=torch.float64)], [True])
    assert [p.diff for p in built.params] == [None, None, None]
