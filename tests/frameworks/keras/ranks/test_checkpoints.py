"""Checkpoints of models and optimizers, saved and loaded by all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import sirtaki
import sirtaki.keras as hvd


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The folder of rank 0."""
    found: str = sirtaki.broadcast_object(str(tmp_path), 0)
    return found


def model(rate: float = 0.1) -> Any:
    keras.utils.set_random_seed(3)
    made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    made.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(rate)), "mse")
    return made


def values(made: Any) -> list[Any]:
    variables = [*made.variables, *made.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def test_a_model_comes_back_with_its_optimizer(folder: str) -> None:
    trained = model()
    trained.fit(np.ones((8, 4)), np.zeros((8, 2)), verbose=0)
    hvd.checkpoint.save(folder, {"model": trained, "epoch": 3}, step=1, async_=False)
    fresh = model(0.9)
    loaded = hvd.checkpoint.load(folder, {"model": fresh, "epoch": 0})
    assert loaded["epoch"] == 3
    for one, other in zip(values(trained), values(fresh), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_elastic_state_is_loaded_and_committed(folder: str) -> None:
    trained = model()
    trained.fit(np.ones((8, 4)), np.zeros((8, 2)), verbose=0)
    hvd.checkpoint.save(folder, hvd.elastic.KerasState(trained, batch=5), step=1, async_=False)
    fresh = model(0.9)
    state = hvd.elastic.KerasState(fresh, batch=0)
    hvd.checkpoint.load(folder, state)
    state.restore()
    assert state.batch == 5
    np.testing.assert_array_equal(values(trained)[0], values(fresh)[0])


def test_a_model_with_other_variables_is_an_error(folder: str) -> None:
    hvd.checkpoint.save(folder, {"model": model()}, step=1, async_=False)
    other = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, use_bias=False)])
    with pytest.raises(hvd.checkpoint.CheckpointError, match="variables, the Sequential has 1"):
        hvd.checkpoint.load(folder, {"model": other})
