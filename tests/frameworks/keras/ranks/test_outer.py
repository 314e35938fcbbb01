"""`DiLoCoCallback` against an oracle that plays all ranks, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from tests.frameworks.keras.ranks.training import (
    BACKEND,
    assert_equal_on_all_ranks,
    keras,
    weights,
)
from tests.outer_oracle import LR, Oracle, target

WIDTHS = (3, 2)
DiLoCo = hvd.callbacks.DiLoCoCallback


class Pull(keras.layers.Layer):  # type: ignore[misc]
    """Its weight is pulled to its input by a squared error."""

    def build(self, shape: Any) -> None:
        self.weight = self.add_weight(shape=(shape[-1],), initializer="ones", name="weight")

    def call(self, inputs: Any) -> Any:
        return inputs - self.weight


def pulled() -> Any:
    inputs = [keras.Input((width,)) for width in WIDTHS]
    made = keras.Model(inputs, [Pull()(each) for each in inputs])
    # The mean of squares has gradients of 2 / width times the distance.
    made.compile(keras.optimizers.SGD(LR), ["mse", "mse"], loss_weights=[w / 2 for w in WIDTHS])
    return made


def fit(made: Any, steps: int, *used: Any, first: int = 0, **options: Any) -> None:
    goals = [
        np.stack([target(hvd.rank(), first + step, (width,)) for step in range(steps)]).astype("f")
        for width in WIDTHS
    ]
    zeros = [np.zeros_like(each) for each in goals]
    made.fit(goals, zeros, batch_size=1, shuffle=False, verbose=0, callbacks=list(used), **options)


def mean(oracle: Oracle) -> list[np.ndarray]:
    return [np.mean(each, axis=0) for each in zip(*oracle.local, strict=True)]


def require_close(made: Any, expected: list[np.ndarray]) -> None:
    for weight, wanted in zip(weights(made), expected, strict=True):
        np.testing.assert_allclose(weight, wanted, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize(("fragments", "mix"), [(1, 0.0), (2, 0.5)])
def test_a_training_goes_where_the_oracle_goes_and_ends_with_the_mean(
    fragments: int, mix: float
) -> None:
    made = pulled()
    fit(made, 10, DiLoCo(sync_every=4, fragments=fragments, mix=mix))
    parts = [[0, 1]] if fragments == 1 else [[0], [1]]
    oracle = Oracle([np.ones(w) for w in WIDTHS], hvd.size(), parts, 4, mix=mix)
    oracle.run(10)
    require_close(made, mean(oracle))
    assert_equal_on_all_ranks(weights(made))


@pytest.mark.skipif(BACKEND == "torch", reason="Keras on PyTorch refuses them")
def test_steps_that_keras_runs_together_count_each() -> None:
    made = pulled()
    made.compile(
        keras.optimizers.SGD(LR),
        ["mse", "mse"],
        loss_weights=[w / 2 for w in WIDTHS],
        steps_per_execution=2,
    )
    local_sgd = DiLoCo(sync_every=4, outer_lr=1.0, outer_momentum=0.0)
    fit(made, 6, local_sgd)
    oracle = Oracle([np.ones(w) for w in WIDTHS], hvd.size(), [[0, 1]], 4, lr=1.0, momentum=0.0)
    oracle.run(6)
    require_close(made, mean(oracle))


def test_a_second_fit_goes_on_with_the_outer_momentum() -> None:
    made, callback = pulled(), DiLoCo(sync_every=2)
    fit(made, 2, callback)
    fit(made, 2, callback, first=2)
    oracle = Oracle([np.ones(w) for w in WIDTHS], hvd.size(), [[0, 1]], 2)
    oracle.run(4)
    require_close(made, mean(oracle))


def test_statistics_of_batch_normalization_are_averaged() -> None:
    made = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(momentum=0.0)])
    made.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.full((4, 2), float(hvd.rank()), "f")
    made.fit(x, x, batch_size=4, verbose=0, callbacks=[DiLoCo(sync_every=1)])
    np.testing.assert_allclose(weights(made)[2], [(hvd.size() - 1) / 2] * 2, rtol=1e-6)


@pytest.mark.skipif("hvd.size() == 1", reason="needs several ranks")
def test_settings_and_weights_that_differ_are_named_on_all_ranks() -> None:
    with pytest.raises(ValueError, match="sync_every is 2 on rank 0 and 3 on rank 1"):
        fit(pulled(), 1, DiLoCo(sync_every=2 + hvd.rank()))
    made = pulled()
    made.set_weights([each + hvd.rank() for each in made.get_weights()])
    with pytest.raises(ValueError, match=r"parameter 0 differs .*Broadcast"):
        fit(made, 1, DiLoCo(sync_every=2))
    fit(made, 1, hvd.callbacks.BroadcastGlobalVariablesCallback(0), DiLoCo(sync_every=2))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sync_every": 3, "fragments": 2}, "sync_every=3 must be a positive multiple of the 2"),
        ({"fragments": 0}, "fragments=0 must be at least 1"),
        ({"mix": -0.5}, "mix=-0.5 must be from 0"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=rf"^hvd\.callbacks\.DiLoCoCallback: {error}"):
        DiLoCo(**{"sync_every": 4, **options})
    with pytest.raises(ValueError, match=r"fragments=3 must be at least 1 and at most .* 2"):
        fit(pulled(), 1, DiLoCo(sync_every=3, fragments=3))
