"""With mixed_float16 all ranks agree whether a step is taken, whoever has overflowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from tests.frameworks.keras.ranks.training import (
    LEGACY,
    assert_equal_on_all_ranks,
    data,
    keras,
    model,
    share,
    weights,
)

precision = keras.mixed_precision
set_policy = precision.set_global_policy


@pytest.fixture(autouse=True)
def mixed_float16() -> Iterator[None]:
    set_policy("mixed_float16")
    yield
    set_policy("float32")


def scaling(optimizer: Any, scale: float = 64.0) -> Any:
    return precision.LossScaleOptimizer(optimizer, initial_scale=scale)


def scale_of(optimizer: Any) -> float:
    scale = getattr(optimizer, "dynamic_scale", None)
    return float(np.asarray(optimizer.loss_scale if scale is None else scale))


def fit(trained: Any, who: int) -> None:
    """Four steps, in the second of which a rank's samples are out of float16's range."""
    x, y = (share(each).copy() for each in data(4))
    if who == hvd.rank():
        each = 12 // hvd.size()
        x[each : 2 * each] = 1e30
    trained.fit(x, y, batch_size=12 // hvd.size(), shuffle=False, verbose=0)


@pytest.mark.parametrize("who", ["first", "last", "nobody"])
def test_a_step_is_left_out_by_all_ranks_or_by_none(who: str) -> None:
    rank = {"first": 0, "last": hvd.size() - 1, "nobody": -1}[who]
    shared = model()
    optimizer = hvd.DistributedOptimizer(scaling(keras.optimizers.SGD(0.01)))
    shared.compile(optimizer, "mse")
    fit(shared, rank)
    assert all(np.isfinite(each).all() for each in weights(shared))
    assert_equal_on_all_ranks(weights(shared))
    assert scale_of(optimizer) == (64.0 if who == "nobody" else 32.0)
    # Keras 2 counts steps that are left out, too.
    counting = optimizer if LEGACY else optimizer.inner_optimizer
    assert int(np.asarray(counting.iterations)) == (4 if LEGACY or who == "nobody" else 3)


def test_passes_that_overflow_are_left_out_together() -> None:
    shared = model()
    optimizer = hvd.DistributedOptimizer(
        scaling(keras.optimizers.SGD(0.01)), backward_passes_per_step=2
    )
    shared.compile(optimizer, "mse")
    fit(shared, 0)
    assert all(np.isfinite(each).all() for each in weights(shared))
    assert_equal_on_all_ranks(weights(shared))
    assert scale_of(optimizer) == 32.0


def test_loss_scaling_is_put_inside() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    assert isinstance(optimizer, precision.LossScaleOptimizer)
    shared = model()
    shared.compile(optimizer, "mse")
    assert shared.optimizer is optimizer
    fit(shared, 0)
    assert_equal_on_all_ranks(weights(shared))


def test_loss_scaling_that_compile_puts_outside_is_refused() -> None:
    set_policy("float32")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    set_policy("mixed_float16")
    shared = model()
    shared.compile(optimizer, "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with pytest.raises(ValueError, match="scales the loss outside of its distributed optimizer"):
        callback.set_model(shared)
