"""The table of cases in eager mode, in functions and in graphs of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd
from tests.frameworks.cases import CASES, Arrays, Case

v1 = tf.compat.v1


def call(case: Case, tensors: list[Any]) -> list[Any]:
    options = dict(case.options)
    if "root_rank" in options:
        options["root_rank"] %= hvd.size()
    function = getattr(hvd, case.verb)
    if case.verb.startswith("grouped_"):
        return list(function(tensors, **options))
    return [function(tensor, **options) for tensor in tensors]


def eagerly(case: Case, arrays: Arrays) -> Arrays:
    return [each.numpy() for each in call(case, [tf.constant(array) for array in arrays])]


def in_a_function(case: Case, arrays: Arrays) -> Arrays:
    function = tf.function(lambda *tensors: call(case, list(tensors)))
    first = function(*[tf.constant(array) for array in arrays])
    again = function(*[tf.constant(array) for array in arrays])
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    return [each.numpy() for each in again]


def in_a_function_of_unknown_shapes(case: Case, arrays: Arrays) -> Arrays:
    signature = [tf.TensorSpec([None] * array.ndim, array.dtype) for array in arrays]
    function = tf.function(lambda *tensors: call(case, list(tensors)), input_signature=signature)
    return [each.numpy() for each in function(*[tf.constant(array) for array in arrays])]


def in_a_session(case: Case, arrays: Arrays) -> Arrays:
    with tf.Graph().as_default(), v1.Session() as session:
        fed = [v1.placeholder(array.dtype, array.shape) for array in arrays]
        results = call(case, [tf.identity(each) for each in fed])
        return session.run(results, dict(zip(fed, arrays, strict=True)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "way", [eagerly, in_a_function, in_a_function_of_unknown_shapes, in_a_session]
)
def test_a_collective_gives_what_numpy_says(
    way: Callable[[Case, Arrays], Arrays], name: str
) -> None:
    case = CASES[name]
    arrays, expected = case(hvd.rank(), hvd.size())
    results = way(case, arrays)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        if "average" in name:  # the engine multiplies by the reciprocal
            np.testing.assert_allclose(result, wanted, rtol=1e-6)
        else:
            np.testing.assert_array_equal(result, wanted)
