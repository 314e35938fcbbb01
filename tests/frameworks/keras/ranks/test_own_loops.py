"""Loops of the script's own, in place of `fit`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from tests.frameworks.keras.ranks.training import (
    BACKEND,
    BATCH,
    LEGACY,
    alone,
    assert_close,
    data,
    keras,
    model,
    share,
    weights,
)


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    each = BATCH // hvd.size()
    x, y = map(share, data())
    return [(x[i : i + each], y[i : i + each]) for i in range(0, len(x), each)]


def on_tensorflow(shared: Any, optimizer: Any, compiled: bool) -> None:
    import tensorflow as tf

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((shared(x) - y) ** 2)
        gradients = tape.gradient(loss, shared.trainable_variables)
        optimizer.apply_gradients(zip(gradients, shared.trainable_variables, strict=True))

    if compiled:
        optimizer.build(shared.trainable_variables)
        step = tf.function(step)
    for x, y in batches():
        step(tf.constant(x), tf.constant(y))


def on_torch(shared: Any, optimizer: Any, compiled: bool) -> None:
    import torch

    for x, y in batches():
        shared.zero_grad()
        loss = ((shared(torch.tensor(x)) - torch.tensor(y)) ** 2).mean()
        loss.backward()
        gradients = [v.value.grad for v in shared.trainable_variables]
        with torch.no_grad():
            optimizer.apply(gradients, shared.trainable_variables)


def on_jax(shared: Any, optimizer: Any, compiled: bool) -> None:
    import jax

    optimizer.build(shared.trainable_variables)

    def loss(trained: Any, x: Any, y: Any) -> Any:
        found, _ = shared.stateless_call(trained, [], x)
        return ((found - y) ** 2).mean()

    def step(trained: Any, state: Any, x: Any, y: Any) -> Any:
        return optimizer.stateless_apply(state, jax.grad(loss)(trained, x, y), trained)

    if not compiled:
        for x, y in batches():
            trained = [v.value for v in shared.trainable_variables]
            optimizer.apply(jax.grad(loss)(trained, x, y), shared.trainable_variables)
        return
    step = jax.jit(step)
    trained = [v.value for v in shared.trainable_variables]
    state = [v.value for v in optimizer.variables]
    for x, y in batches():
        trained, state = step(trained, state, x, y)
    for variable, value in zip(shared.trainable_variables, trained, strict=True):
        variable.assign(value)


LOOPS = {"tensorflow": on_tensorflow, "torch": on_torch, "jax": on_jax}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_loop_of_its_own_equals_one_process(compiled: bool, passes: int) -> None:
    if LEGACY and passes > 1 and not compiled:
        pytest.skip("the same as with Keras 3")
    shared = model()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1 / passes), backward_passes_per_step=passes
    )
    LOOPS[BACKEND](shared, optimizer, compiled)
    if passes == 1:
        assert_close(weights(shared), alone(keras.optimizers.SGD(0.1)))
        return
    single = model()
    single.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = data()
    single.fit(x, y, batch_size=2 * BATCH, shuffle=False, verbose=0)
    assert_close(weights(shared), weights(single))
