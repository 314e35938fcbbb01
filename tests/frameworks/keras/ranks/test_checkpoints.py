"""Models of Keras in checkpoints, with what their optimizers keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sirtaki
import sirtaki.keras as hvd
from sirtaki.core.errors import DivergedError
from sirtaki.keras.library import keras


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder that all ranks share."""
    shared: Path = sirtaki.broadcast_object(tmp_path / "checkpoints", name="path")
    return shared


def model(units: int = 2):
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(units)])
    made.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), "mse")
    return made


def fit(each) -> None:
    each.fit(np.ones((4, 3)), np.ones((4, 2)), batch_size=2, epochs=1, verbose=0, shuffle=False)


def test_training_goes_on_as_if_it_had_not_stopped(path: Path) -> None:
    keras.utils.set_random_seed(1)  # the same on all ranks
    trained = model()
    fit(trained)
    hvd.checkpoint.save(path, {"model": trained, "epoch": 1}, step=2, sharded=True)
    fit(trained)
    hvd.checkpoint.wait()
    fresh = model()
    loaded = hvd.checkpoint.load(path, {"model": fresh, "epoch": 0})
    assert (loaded.step, loaded.state["epoch"]) == (2, 1)
    assert loaded.state["model"] is fresh
    fit(fresh)
    for found, expected in zip(fresh.get_weights(), trained.get_weights(), strict=True):
        assert found.tolist() == expected.tolist()


def test_an_elastic_state_comes_back(path: Path) -> None:
    keras.utils.set_random_seed(1)
    trained = model()
    hvd.checkpoint.save(path, hvd.elastic.KerasState(trained, epoch=3), step=2, async_=False)
    again = hvd.elastic.KerasState(model(), epoch=0)
    hvd.checkpoint.load(path, again)
    again.restore()
    assert again.epoch == 3
    for found, expected in zip(again.model.get_weights(), trained.get_weights(), strict=True):
        assert found.tolist() == expected.tolist()


def test_all_ranks_hear_that_it_is_of_another_model(path: Path) -> None:
    hvd.checkpoint.save(path, {"model": model()}, step=1, async_=False)
    with pytest.raises(hvd.checkpoint.CheckpointError, match=r"does not fit the state.*shape"):
        hvd.checkpoint.load(path, {"model": model(4)})


def test_a_callback_saves_what_fit_has_done_and_the_rate_it_has_lowered(path: Path) -> None:
    def trained(epochs: int):
        keras.utils.set_random_seed(1)
        state = {"model": model()}
        loaded = hvd.checkpoint.load(path, state)
        saves = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: hvd.checkpoint.save(path, state, step=epoch)
        )
        lowers = keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=1, min_delta=1e9)
        state["model"].fit(
            np.ones((4, 3)),
            np.ones((4, 2)),
            initial_epoch=loaded.step + 1 if loaded else 0,
            epochs=epochs,
            verbose=0,
            callbacks=[lowers, saves],
        )
        hvd.checkpoint.wait()
        return state["model"]

    def rate(of) -> float:
        return float(np.asarray(of.optimizer.learning_rate))

    assert rate(trained(3)) == pytest.approx(0.025)
    resumed = trained(3)
    assert rate(resumed) == pytest.approx(0.025)
    assert int(np.asarray(resumed.optimizer.iterations)) == 3


def test_a_callback_names_ranks_whose_weights_differ() -> None:
    keras.utils.set_random_seed(1)
    trained = model()
    callback = hvd.guards.EqualParametersCallback(every=2)
    data = {"x": np.ones((4, 3)), "y": np.ones((4, 2)), "batch_size": 2, "verbose": 0}
    trained.fit(**data, callbacks=[callback])
    if sirtaki.size() == 1:
        return
    weights = trained.get_weights()
    weights[1] += sirtaki.rank() == sirtaki.size() - 1
    trained.set_weights(weights)
    with pytest.raises(DivergedError, match=rf"ranks {sirtaki.size() - 1} "):
        trained.fit(**data, callbacks=[callback])


def test_guards_look_into_tensors_variables_and_optimizers() -> None:
    trained = model()
    weights = trained.get_weights()
    weights[1][0] = float("nan")
    trained.set_weights(weights)
    tensor = trained(np.array([[1.0, 1.0, float("inf")]]))
    for value in ([tensor], trained, {"model": trained}, trained.trainable_variables):
        with pytest.raises(hvd.guards.NotFiniteError):
            hvd.guards.require_finite(value)
    zeros = model()(np.zeros((1, 3)))
    for value in ([zeros], trained.optimizer, [None, 3]):
        hvd.guards.require_finite(value)
        hvd.guards.require_equal(value)


def test_a_model_is_compared_with_its_optimizer() -> None:
    keras.utils.set_random_seed(1)
    trained = model()
    hvd.guards.require_equal({"model": trained})
    last = sirtaki.size() - 1
    trained.optimizer.learning_rate = 0.5 if sirtaki.rank() == last else 0.1
    if last:
        with pytest.raises(DivergedError, match=rf"ranks {last} "):
            hvd.guards.require_equal(trained)


def test_the_first_variable_that_differs_is_named_whatever_the_ranks_call_their_layers() -> None:
    if sirtaki.rank() == 0:
        model()  # from now on the names of this rank's layers have higher numbers
    keras.utils.set_random_seed(1)
    trained = model()
    hvd.guards.require_equal(trained)
    last = sirtaki.size() - 1
    if sirtaki.rank() == last:
        trained.variables[0].assign(trained.variables[0] + 1.0)
    if last:
        with pytest.raises(DivergedError, match=rf"ranks {last} .* in variables\[0\] \(.*kernel"):
            hvd.guards.require_equal(trained)
