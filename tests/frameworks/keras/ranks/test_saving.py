"""Models are saved as if their optimizer was not distributed, and loaded so that it is."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sirtaki.keras as hvd
from sirtaki.keras.distributed import Distributed
from tests.frameworks.keras.ranks.training import (
    LEGACY,
    assert_close,
    assert_equal_on_all_ranks,
    data,
    keras,
    model,
    share,
    weights,
)


def fit(trained: Any, steps: int = 5) -> None:
    x, y = data(steps)
    trained.fit(share(x), share(y), batch_size=12 // hvd.size(), shuffle=False, verbose=0)


def trained(**options: Any) -> Any:
    shared = model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), **options)
    shared.compile(optimizer, "mse")
    fit(shared)
    return shared


def passes_of(optimizer: Any) -> int:
    return int(np.asarray(optimizer.iterations))


@pytest.mark.parametrize("passes", [1, 2])
def test_a_saved_model_is_one_of_keras_alone(tmp_path: Path, passes: int) -> None:
    shared = trained(backward_passes_per_step=passes)
    path = tmp_path / "model.keras"
    shared.save(path)
    loaded = keras.models.load_model(path)
    assert type(loaded.optimizer) is type(keras.optimizers.Adam())
    assert passes_of(loaded.optimizer) == 5 // passes
    assert_close(weights(loaded), weights(shared), tolerance=0)


def test_a_loaded_model_is_distributed_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    shared = trained()
    shared.save(path)
    loaded = hvd.load_model(path)
    assert isinstance(loaded.optimizer, Distributed)
    fit(loaded)
    fit(shared)
    assert passes_of(loaded.optimizer) == 10
    assert_equal_on_all_ranks(weights(loaded))
    assert_close(weights(loaded), weights(shared), tolerance=1e-6)


def test_a_loaded_optimizer_adds_up_passes(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    trained().save(path)
    loaded = keras.models.load_model(path)
    hvd.DistributedOptimizer(loaded.optimizer, backward_passes_per_step=2)
    fit(loaded, steps=4)
    assert passes_of(loaded.optimizer) == 7
    assert_equal_on_all_ranks(weights(loaded))


def test_an_optimizer_of_the_scripts_own_is_loaded(tmp_path: Path) -> None:
    class Slow(keras.optimizers.SGD):
        pass

    shared = model()
    shared.compile(hvd.DistributedOptimizer(Slow(0.01)), "mse")
    fit(shared)
    path = tmp_path / "model.keras"
    shared.save(path)
    loaded = hvd.load_model(path, custom_optimizers=[Slow])
    assert isinstance(loaded.optimizer, Slow)
    fit(loaded)
    assert_equal_on_all_ranks(weights(loaded))


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_an_optimizer_is_made_by_a_function_of_what_was_saved(tmp_path: Path, suffix: str) -> None:
    class Slow(keras.optimizers.SGD):
        pass

    def loss(expected: Any, found: Any) -> Any:
        return keras.losses.mean_squared_error(expected, found)

    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.5)
    shared = model()
    shared.compile(hvd.DistributedOptimizer(Slow(rate)), loss)
    fit(shared)
    path = tmp_path / f"model.{suffix}"
    shared.save(path)
    made = []

    def make(**config: Any) -> Any:
        made.append(config["learning_rate"])
        return hvd.DistributedOptimizer(Slow(**config))

    loaded = hvd.load_model(path, custom_objects={"Slow": lambda **c: make(**c), "loss": loss})
    assert isinstance(loaded.optimizer, Slow)
    assert loaded.loss is loss
    assert [type(each) for each in made] == [type(rate)]
    assert passes_of(loaded.optimizer) == 5
    assert isinstance(loaded.optimizer, Distributed)


def test_a_model_without_an_optimizer_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    plain = model()
    plain.save(path)
    assert_close(weights(hvd.load_model(path)), weights(plain), tolerance=0)


def test_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    shared = trained()
    shared.save_weights(path)
    other = model(seed=99)
    other.load_weights(path)
    assert_close(weights(other), weights(shared), tolerance=0)


@pytest.mark.skipif(LEGACY, reason="optimizers of Keras 2 are copied by Keras itself")
def test_models_are_pickled_copied_and_cloned() -> None:
    shared = trained()
    for other in (pickle.loads(pickle.dumps(shared)), copy.deepcopy(shared)):
        assert type(other.optimizer) is type(keras.optimizers.Adam())
        assert passes_of(other.optimizer) == 5
        assert_close(weights(other), weights(shared), tolerance=0)
    assert len(keras.models.clone_model(shared).layers) == len(shared.layers)
