"""What a distributed optimizer takes, refuses, and leaves alone."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from tests import needs
from tests.frameworks.keras.ranks.training import (
    BACKEND,
    LEGACY,
    alone,
    assert_close,
    assert_equal_on_all_ranks,
    data,
    keras,
    model,
    share,
    weights,
)

optimizers = keras.optimizers


def fit(trained: Any, steps: int = 5) -> None:
    x, y = data(steps)
    trained.fit(share(x), share(y), batch_size=12 // hvd.size(), shuffle=False, verbose=0)


def test_it_stays_the_same_object_of_a_class_with_the_same_name() -> None:
    adam = optimizers.Adam(0.25)
    distributed = hvd.DistributedOptimizer(adam)
    assert distributed is adam
    assert isinstance(distributed, optimizers.Adam)
    assert type(distributed).__name__ == "Adam"
    assert distributed.get_config() == optimizers.Adam(0.25, name=adam.name).get_config()


def test_an_optimizer_that_is_distributed_again_reduces_once() -> None:
    again, once = model(), model()
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), op=hvd.Sum)
    for _ in range(2):
        assert hvd.DistributedOptimizer(optimizer) is optimizer
    again.compile(optimizer, "mse")
    once.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1)), "mse")
    fit(again, steps=1)
    fit(once, steps=1)
    assert_close(weights(again), weights(once))


def test_distributing_what_scales_a_distributed_one_is_refused() -> None:
    once = hvd.DistributedOptimizer(optimizers.SGD())
    outside = keras.mixed_precision.LossScaleOptimizer(once)
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(outside)


@pytest.mark.parametrize("what", [None, "adam", object()])
def test_what_is_no_optimizer_is_refused(what: object) -> None:
    with pytest.raises(ValueError, match=r"is not an optimizer of Keras; give an object such as"):
        hvd.DistributedOptimizer(what)


@pytest.mark.skipif(LEGACY or BACKEND != "tensorflow", reason="of Keras 3 on TensorFlow")
def test_an_optimizer_of_keras_2_is_refused_on_keras_3() -> None:
    tf_keras = needs.package("tf_keras")
    with pytest.raises(ValueError, match=r"of Keras 2, but Keras 3 is in use.*TF_USE_LEGACY_KERAS"):
        hvd.DistributedOptimizer(tf_keras.optimizers.Adam())


@pytest.mark.skipif(not LEGACY, reason="of Keras 2")
def test_an_optimizer_of_keras_3_is_refused_on_keras_2() -> None:
    keras_3 = needs.package("keras")
    with pytest.raises(ValueError, match="of Keras 3, but TF_USE_LEGACY_KERAS asks for Keras 2"):
        hvd.DistributedOptimizer(keras_3.optimizers.Adam())


@pytest.mark.parametrize("op", [hvd.Adasum, hvd.Min, 99])
def test_other_operators_are_refused(op: int) -> None:
    with pytest.raises(ValueError, match="is Average or Sum"):
        hvd.DistributedOptimizer(optimizers.SGD(), op=op)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backward_passes_per_step": 0}, "backward_passes_per_step=0 is not a number of passes"),
        ({"num_groups": -1}, "num_groups=-1 must not be negative"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "not supported with op != Average"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hvd.DistributedOptimizer(optimizers.SGD(), **options)


def test_a_refused_optimizer_is_not_distributed() -> None:
    sgd = optimizers.SGD()
    with pytest.raises(ValueError, match="Average or Sum"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum)
    assert type(sgd) is type(optimizers.SGD())


@pytest.mark.parametrize("scale", [True, False])
def test_gradients_of_local_layers_stay_on_their_rank(scale: bool) -> None:
    shared = model()
    local = shared.layers[-1]
    optimizer = hvd.PartialDistributedOptimizer(
        optimizers.SGD(0.1), local_layers=local, scale_local_gradients=scale
    )
    shared.compile(optimizer, "mse")
    fit(shared, steps=1)
    own = model()
    own.compile(optimizers.SGD(0.1 / hvd.size() if scale else 0.1), "mse")
    x, y = data(1)
    own.fit(share(x), share(y), batch_size=12 // hvd.size(), shuffle=False, verbose=0)
    assert_close(weights(shared)[2:], weights(own)[2:])
    assert_equal_on_all_ranks(weights(shared)[:2])


def test_a_variable_is_made_local() -> None:
    shared = model()
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), scale_local_gradients=False)
    optimizer.register_local_var(shared.trainable_variables[0])
    shared.compile(optimizer, "mse")
    fit(shared, steps=1)
    kernels = hvd.allgather(weights(shared)[0][np.newaxis])
    assert len(np.unique(kernels[:, 0, 0])) == hvd.size()
    assert_equal_on_all_ranks(weights(shared)[1:])


def test_a_local_layer_must_have_been_built() -> None:
    with pytest.raises(ValueError, match="the local layer late has no variables yet"):
        hvd.PartialDistributedOptimizer(
            optimizers.SGD(), local_layers=[keras.layers.Dense(1, name="late")]
        )
    with pytest.raises(ValueError, match="neither a layer nor a variable"):
        hvd.PartialDistributedOptimizer(optimizers.SGD(), local_layers=[3])


def test_groups_of_variables_are_sent_together() -> None:
    shared = model()
    first, second, *_ = shared.trainable_variables
    optimizer = hvd.DistributedOptimizer(optimizers.Adam(0.01), groups=[[second], [first]])
    shared.compile(optimizer, "mse")
    fit(shared, steps=20)
    assert_close(weights(shared), alone(optimizers.Adam(0.01)))


def test_a_process_set_trains_apart() -> None:
    evens = hvd.ProcessSet(range(0, hvd.size(), 2))
    odds = hvd.ProcessSet(range(1, hvd.size(), 2)) if hvd.size() > 1 else evens
    mine = evens if hvd.rank() % 2 == 0 else odds
    for each in dict.fromkeys((evens, odds)) if hvd.size() > 2 else ():
        hvd.add_process_set(each)
    if hvd.size() == 2:
        hvd.add_process_set(evens), hvd.add_process_set(odds)
    shared = model(seed=hvd.rank() % 2)
    process_set = hvd.global_process_set if hvd.size() == 1 else mine
    shared.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1), process_set=process_set), "mse")
    fit(shared)
    first = hvd.allgather(weights(shared)[0][np.newaxis])[:, 0, 0]
    assert len(np.unique(first)) == min(hvd.size(), 2)
    if hvd.size() > 1:
        hvd.remove_process_set(evens), hvd.remove_process_set(odds)


def test_ranks_outside_of_a_process_set_train_as_if_alone() -> None:
    if hvd.size() == 1:
        pytest.skip("there is no rank outside")
    first = hvd.add_process_set([0])
    shared, own = model(), model()
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), process_set=first)
    shared.compile(optimizer, "mse")
    own.compile(optimizers.SGD(0.1), "mse")
    fit(shared, steps=1)
    fit(own, steps=1)
    assert_close(weights(shared), weights(own), tolerance=1e-6)
    hvd.remove_process_set(first)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_layer_without_a_gradient_is_left_alone(passes: int) -> None:
    class Unused(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.extra = self.add_weight(shape=(3,), initializer="ones", name="extra")

        def call(self, x: Any) -> Any:
            return x

    shared = model(lambda: [Unused(), keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), backward_passes_per_step=passes)
    shared.compile(optimizer, "mse")
    fit(shared)
    np.testing.assert_array_equal(weights(shared)[0], np.ones(3))
    assert_equal_on_all_ranks(weights(shared))


@pytest.mark.skipif(LEGACY, reason="optimizers of Keras 2 cannot be pickled")
def test_pickled_and_copied_it_is_an_optimizer_of_keras() -> None:
    shared = model()
    shared.compile(hvd.DistributedOptimizer(optimizers.Adam(0.125)), "mse")
    fit(shared)
    for other in (pickle.loads(pickle.dumps(shared.optimizer)), copy.deepcopy(shared.optimizer)):
        assert type(other) is type(optimizers.Adam())
        assert other.get_config() == shared.optimizer.get_config()


def test_a_model_of_another_shape_on_one_rank_is_an_error_on_all() -> None:
    width = 16 + hvd.rank()
    other = model(lambda: [keras.layers.Dense(width), keras.layers.Dense(1)])
    other.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1)), "mse")
    if hvd.size() == 1:
        fit(other)
        return
    with pytest.raises(Exception, match=r"shape|element|differ") as caught:
        # With JAX, Keras's `fit` does not look at its results.
        fit(other) or weights(other)
    assert "rank" in str(caught.value)
    # Training can go on.
    again = model()
    again.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1)), "mse")
    fit(again)
    assert_equal_on_all_ranks(weights(again))
