"""Variables of TensorFlow in checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder that all ranks share."""
    shared: Path = hvd.broadcast_object(tmp_path / "checkpoints", name="path")
    return shared


def variables(value: float) -> list[tf.Variable]:
    return [tf.Variable(tf.fill((2, 3), value)), tf.Variable(tf.cast([value], tf.bfloat16))]


@pytest.mark.parametrize("sharded", [False, True])
def test_variables_come_back(path: Path, sharded: bool) -> None:
    hvd.checkpoint.save(path, {"variables": variables(3.0), "epoch": 2}, step=5, sharded=sharded)
    hvd.checkpoint.wait()
    mine = variables(0.0)
    loaded = hvd.checkpoint.load(path, {"variables": mine, "epoch": 0})
    assert (loaded.step, loaded.state["epoch"]) == (5, 2)
    assert mine[0].numpy().tolist() == [[3.0] * 3] * 2
    assert float(mine[1][0]) == 3.0


def test_an_elastic_state_comes_back(path: Path) -> None:
    saved = hvd.elastic.TensorFlowState(variables(3.0), batch=7)
    hvd.checkpoint.save(path, saved, step=5, async_=False)
    again = hvd.elastic.TensorFlowState(variables(0.0), batch=0)
    hvd.checkpoint.load(path, again)
    again.restore()
    assert (again.batch, float(again.variables[0][0, 0])) == (7, 3.0)


def test_all_ranks_hear_that_it_is_of_other_variables(path: Path) -> None:
    hvd.checkpoint.save(path, {"variables": variables(1.0)}, step=1, async_=False)
    other = [tf.Variable(tf.zeros(3)), tf.Variable(tf.zeros(1))]
    with pytest.raises(hvd.checkpoint.CheckpointError, match=r"variable 0 was saved with shape"):
        hvd.checkpoint.load(path, {"variables": other})


def test_variables_of_a_keras_model_come_back(path: Path) -> None:
    saved, mine = (
        tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)]) for _ in "ab"
    )
    hvd.checkpoint.save(path, {"variables": saved.variables}, step=5, async_=False)
    hvd.checkpoint.load(path, {"variables": mine.variables})
    assert mine.get_weights()[0].tolist() == hvd.broadcast_object(saved.get_weights()[0]).tolist()


def poisoned(values: list[float]) -> tf.keras.Model:
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(2, name="head")])
    model.layers[0].kernel.assign([[1.0, 2.0]])
    model.layers[0].bias.assign(values)
    return model


def test_guards_look_into_tensors_variables_models_and_optimizers() -> None:
    rank, last = hvd.rank(), hvd.size() - 1
    infinite, finite = [1.0, float("inf")], [1.0, 2.0]
    for value in (
        [tf.constant(finite), tf.constant(infinite, tf.bfloat16)],
        [None, tf.IndexedSlices(tf.constant([infinite]), tf.constant([1]), tf.constant([4, 2]))],
        {"model": poisoned(infinite)},
        poisoned(infinite).variables,
    ):
        with pytest.raises(hvd.guards.NotFiniteError, match=rf"rank {rank} .*(\[1\]|bias)"):
            hvd.guards.require_finite(value)
    optimizer = tf.keras.optimizers.SGD(0.5)
    for value in (poisoned(finite), optimizer, [None], [tf.constant(infinite).shape[0]]):
        hvd.guards.require_finite(value)
    if last:
        with pytest.raises(hvd.guards.DivergedError, match=rf"ranks {last} .*bias"):
            hvd.guards.require_equal(poisoned([1.0, 2.0 if rank < last else 3.0]))
    hvd.guards.require_equal(optimizer)


def test_a_guard_that_would_look_at_nothing_says_so() -> None:
    with pytest.raises(TypeError, match="found no arrays in a value of type object: pass a model"):
        hvd.guards.require_finite(object())
