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
        with pytest.raises(ValueError, match="random keys"):
            hvd.save_checkpoint(path, {"w": jax.random.key(1)})
    assert hvd.restore_checkpoint(path, state(0))["epoch"] == 1


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
