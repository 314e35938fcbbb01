"""Gradients of the collectives, by Horovod's rules, in eager mode and in functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd

Verb = Callable[[Any], Any]


def gradient(verb: Verb, rows: int, traced: bool) -> np.ndarray:
    """The gradient of a loss that weighs what comes out by the rank, from 1."""

    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(verb(x)) * float(hvd.rank() + 1)
        return tape.gradient(loss, x)

    run = tf.function(run) if traced else run
    return run(tf.ones([rows, 2])).numpy()[:, 0]  # type: ignore[no-any-return]


def weights() -> float:
    return hvd.size() * (hvd.size() + 1) / 2


@pytest.fixture(params=[False, True], ids=["eager", "function"])
def traced(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_the_gradient_of_a_sum_is_the_sum(traced: bool) -> None:
    got = gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), 3, traced)
    np.testing.assert_array_equal(got, [weights()] * 3)


def test_the_gradient_of_an_average_is_the_average(traced: bool) -> None:
    got = gradient(hvd.allreduce, 3, traced)
    np.testing.assert_allclose(got, [weights() / hvd.size()] * 3)


def test_the_gradient_of_a_complex_sum_is_the_sum() -> None:
    x = tf.ones([2], tf.complex64)
    weight = tf.constant(1 + 3j, tf.complex64) * (hvd.rank() + 1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.math.real(tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) * weight))
    # TensorFlow's gradient of Re(w z) is the conjugate of w.
    assert tape.gradient(loss, x).numpy().tolist() == [(1 - 3j) * weights()] * 2


def test_factors_are_applied_to_the_gradient_too(traced: bool) -> None:
    got = gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), 1, traced)
    np.testing.assert_array_equal(got, [weights() / 2])


def test_the_gradient_of_allgather_is_the_average_of_ones_own_rows(traced: bool) -> None:
    got = gradient(hvd.allgather, hvd.rank() + 1, traced)
    np.testing.assert_allclose(got, [weights() / hvd.size()] * (hvd.rank() + 1))


def test_the_gradient_of_broadcast_is_the_average_at_the_root_and_zero_elsewhere(
    traced: bool,
) -> None:
    got = gradient(lambda x: hvd.broadcast(x, 0), 2, traced)
    at_root = weights() / hvd.size()
    np.testing.assert_allclose(got, [at_root if hvd.rank() == 0 else 0.0] * 2)


def test_the_gradient_of_alltoall_goes_back(traced: bool) -> None:
    got = gradient(lambda x: hvd.alltoall(x, splits=[2] * hvd.size())[0], 2 * hvd.size(), traced)
    np.testing.assert_array_equal(got, np.repeat(np.arange(hvd.size()) + 1.0, 2))


def test_rows_that_alltoall_does_not_send_have_no_gradient(traced: bool) -> None:
    sent = 2 * hvd.size()
    got = gradient(lambda x: hvd.alltoall(x, splits=[2] * hvd.size())[0], sent + 3, traced)
    assert got.shape == (sent + 3,)
    assert not got[sent:].any()
    assert got[:sent].all()


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Max])
def test_the_gradient_of_reducescatter_is_gathered(op: int, traced: bool) -> None:
    got = gradient(lambda x: hvd.reducescatter(x, op=op), hvd.size(), traced)
    times = hvd.size() if op == hvd.Sum else 1
    np.testing.assert_allclose(got, (np.arange(hvd.size()) + 1.0) * times)


def test_a_group_has_a_gradient_for_each_tensor(traced: bool) -> None:
    def both(x: Any) -> Any:
        one, two = hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)
        return one + two

    np.testing.assert_array_equal(gradient(both, 1, traced), [3 * weights()])


VERBS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "allreduce": lambda tensors: [hvd.allreduce(each) for each in tensors],
    "grouped allreduce": hvd.grouped_allreduce,
    "grouped allgather": hvd.grouped_allgather,
    "broadcast": lambda tensors: [hvd.broadcast(each, 0) for each in tensors],
    "alltoall": lambda tensors: [hvd.alltoall(each) for each in tensors],
    "grouped reducescatter": hvd.grouped_reducescatter,
}


@pytest.mark.parametrize("verb", VERBS)
def test_gradients_have_the_type_of_the_tensors_whatever_comes_from_above(
    verb: str, traced: bool
) -> None:
    def run() -> Any:
        tensors = [tf.ones([hvd.size()], tf.float64) for _ in range(2)]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            results = VERBS[verb](tensors)
        return tape.gradient(results[0], tensors[0], tf.ones(tf.shape(results[0])))

    got = (tf.function(run) if traced else run)()
    assert got.dtype == tf.float64
    assert got.shape == (hvd.size(),)


def test_a_loop_of_collectives_has_a_gradient() -> None:
    @tf.function
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = hvd.allreduce(y, op=hvd.Average) * 2.0
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    np.testing.assert_allclose(run(tf.ones(2)), [8.0, 8.0])
