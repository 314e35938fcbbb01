"""Collectives of plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from tests.frameworks.keras.ranks.training import LEGACY, keras


def variable(value: float) -> object:
    if LEGACY:
        import tensorflow as tf

        return tf.Variable(value)
    return keras.Variable(value)


def test_numbers_are_averaged_or_summed() -> None:
    ranks = range(hvd.size())
    assert hvd.allreduce(float(hvd.rank())) == sum(ranks) / hvd.size()
    assert hvd.allreduce(hvd.rank(), op=hvd.Sum) == sum(ranks)
    assert hvd.allreduce(float(hvd.rank()), op=hvd.Max, name="largest") == hvd.size() - 1
    assert hvd.allreduce(1.0, op=hvd.Sum, prescale_factor=3.0, postscale_factor=2.0) == (
        6.0 * hvd.size()
    )


def test_variables_and_arrays_are_values() -> None:
    assert hvd.allreduce(variable(2.0), op=hvd.Sum) == 2.0 * hvd.size()
    array = np.arange(6, dtype="float64").reshape(2, 3)
    reduced = hvd.allreduce(array.T)
    assert reduced.dtype == np.float64
    np.testing.assert_array_equal(reduced, array.T)


def tensor(value: list[float]) -> Any:
    if LEGACY:
        import tensorflow as tf

        return tf.constant(value)
    return keras.ops.convert_to_tensor(value)


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16])
def test_a_tensor_gives_a_tensor(compression: Any) -> None:
    mine = tensor([1.0] * hvd.size())
    results = [
        hvd.allreduce(mine, op=hvd.Sum, compression=compression),
        hvd.allgather(mine),
        hvd.broadcast(mine, 0),
        hvd.reducescatter(mine, op=hvd.Sum),
    ]
    assert [type(each) for each in results] == [type(mine)] * 4
    assert [each.dtype for each in results] == [mine.dtype] * 4
    assert [float(np.asarray(each)[0]) for each in results] == [hvd.size(), 1.0, 1.0, hvd.size()]


def test_a_compressed_value_has_its_own_type() -> None:
    reduced = hvd.allreduce(np.ones(3, "float32"), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert reduced.dtype == np.float32
    np.testing.assert_array_equal(reduced, np.full(3, hvd.size()))


def test_average_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="average is deprecated"):
        assert hvd.allreduce(1.0, average=False) == hvd.size()
    with pytest.raises(ValueError, match="either op or average"):
        hvd.allreduce(1.0, average=True, op=hvd.Sum)


def test_rows_of_different_numbers_are_gathered() -> None:
    gathered = hvd.allgather(np.full((hvd.rank() + 1, 2), hvd.rank()))
    expected = np.repeat(np.arange(hvd.size()), np.arange(1, hvd.size() + 1))
    np.testing.assert_array_equal(gathered[:, 1], expected)


def test_the_roots_value_is_sent() -> None:
    root = hvd.size() - 1
    assert hvd.broadcast(hvd.rank() + 0.5, root) == root + 0.5


def test_each_rank_gets_its_rows_of_a_sum() -> None:
    rows = np.arange(2.0 * hvd.size())
    mine = hvd.reducescatter(rows, op=hvd.Sum)
    first = 2 * hvd.rank()
    np.testing.assert_array_equal(mine, rows[first : first + 2] * hvd.size())


@pytest.mark.parametrize("value", ["words", None, {"a": 1}])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        hvd.allreduce(value)


def test_shapes_that_differ_are_an_error_on_all_ranks() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    with pytest.raises(hvd.MismatchError, match="rank"):
        hvd.allreduce(np.zeros(hvd.rank() + 1))
