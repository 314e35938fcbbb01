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
