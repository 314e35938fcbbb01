"""Checkpoints that rank 0 writes and all ranks get."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sirtaki.jax as hvd


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a folder that only this rank has: nobody but rank 0 may need it."""
    return tmp_path / "checkpoint"


def state(value: int):
    params = {"w": jnp.full((2, 3), float(value)), "half": jnp.full(2, value, jnp.bfloat16)}
    return {"params": params, "optimizer": optax.adam(0.1).init(params), "epoch": value}


def test_all_ranks_continue_with_what_rank_0_has_written(path: Path) -> None:
    hvd.save_checkpoint(path, state(3))
    assert path.exists() == (hvd.rank() == 0)
    restored = hvd.restore_checkpoint(path, state(hvd.rank()))
    assert jax.tree.structure(restored) == jax.tree.structure(state(3))
    for found, expected in zip(jax.tree.leaves(restored), jax.tree.leaves(state(3)), strict=True):
        assert np.array_equal(found, expected)
    assert restored["params"]["half"].dtype == "bfloat16"


def test_without_a_file_all_ranks_begin_as_rank_0_does(path: Path) -> None:
    restored = hvd.restore_checkpoint(path, state(hvd.rank() + 1))
    assert restored["params"]["w"].tolist() == [[1.0] * 3] * 2
    assert restored["epoch"] == 1


def test_a_checkpoint_replaces_the_one_before(path: Path) -> None:
    for value in (1, 2):
        hvd.save_checkpoint(path, state(value))
    assert hvd.restore_checkpoint(path, state(0))["epoch"] == 2
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"] * (hvd.rank() == 0)


def test_a_failed_write_leaves_the_checkpoint_before(path: Path) -> None:
    hvd.save_checkpoint(path, state(1))
    if hvd.rank() == 0:
        with pytest.raises(TypeError, match="expected an array, not object"):
            hvd.save_checkpoint(path, {"w": object()})
    assert hvd.restore_checkpoint(path, state(0))["epoch"] == 1


def test_random_keys_are_written_and_sent_as_the_keys_that_they_are(path: Path) -> None:
    hvd.save_checkpoint(path, {"key": jax.random.split(jax.random.key(5), 3)})
    fresh = {"key": jax.random.split(jax.random.key(hvd.rank()), 3)}
    found = hvd.restore_checkpoint(path, fresh)["key"]
    assert jnp.array_equal(
        jax.random.key_data(found), jax.random.key_data(jax.random.split(jax.random.key(5), 3))
    )
    with pytest.raises(ValueError, match="was written as 24 bytes of key:threefry2x32"):
        hvd.restore_checkpoint(path, {"key": jnp.ones(6)})
    key = jax.random.key(hvd.rank() + 1, impl="rbg")
    for sent in (hvd.broadcast(key), jax.jit(hvd.broadcast)(key)):
        assert (
            jax.random.key_data(sent).tolist()
            == jax.random.key_data(jax.random.key(1, impl="rbg")).tolist()
        )


def test_an_elastic_state_keeps_random_keys() -> None:
    first = jax.random.key(3)
    kept = hvd.elastic.JaxState(key=first, step=0)
    kept.key = jax.random.key(4)
    kept.restore()
    kept.save()
    kept.sync()
    assert jnp.array_equal(jax.random.key_data(kept.key), jax.random.key_data(first))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"other": 1.0}, "one that only one of them has"),
        ({"w": jnp.ones(3)}, r"\['w'\] was written as 8 bytes of float32"),
        ({"w": jnp.ones(2, jnp.int32)}, r"\['w'\] was written as 8 bytes of float32"),
    ],
)
def test_all_ranks_hear_that_a_checkpoint_is_of_something_else(
    path: Path, target, message: str
) -> None:
    hvd.save_checkpoint(path, {"w": jnp.ones(2)})
    with pytest.raises(ValueError, match=message):
        hvd.restore_checkpoint(path, target)


def test_all_ranks_hear_that_a_file_is_no_checkpoint(path: Path) -> None:
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="checkpoint: "):
        hvd.restore_checkpoint(path, state(0))
