"""Pytrees in checkpoints: the arrays, types and structure that were saved."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sirtaki.jax as hvd
from sirtaki.core.errors import NotFiniteError


@jax.tree_util.register_pytree_node_class
class Streams:
    """As `flax.nnx.Rngs`: changed by use, and it has every attribute that it is asked for."""

    def __init__(self, key, count) -> None:
        self.key, self.count = key, count

    def __getattr__(self, name: str):
        return lambda: self.draw()

    def draw(self):
        self.count += 1
        return jax.random.uniform(jax.random.fold_in(self.key, self.count))

    def tree_flatten(self):
        return (self.key, self.count), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder that all ranks share."""
    shared: Path = hvd.broadcast_object(tmp_path / "checkpoints", name="path")
    return shared


def state(value: int):
    params = {"w": jnp.full((2, 3), float(value)), "half": jnp.full(2, value, jnp.bfloat16)}
    return {
        "params": params,
        "optimizer": optax.adam(0.1).init(params),
        "key": jax.random.key(value),
        "epoch": value,
    }


def values(tree):
    return [
        jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array)
        and leaf.ndim == 0
        and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else leaf
        for leaf in jax.tree.leaves(tree)
    ]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_tree_comes_back_with_its_structure_and_types(path: Path, sharded: bool) -> None:
    saved = state(3)
    hvd.checkpoint.save(path, saved, step=5, sharded=sharded)
    hvd.checkpoint.wait()
    loaded = hvd.checkpoint.load(path, state(0))
    assert loaded is not None
    assert loaded.step == 5
    assert jax.tree.structure(loaded.state) == jax.tree.structure(saved)
    for found, expected in zip(values(loaded.state), values(saved), strict=True):
        assert np.array_equal(found, expected)
    assert loaded.state["params"]["half"].dtype == "bfloat16"


def test_an_elastic_state_comes_back(path: Path) -> None:
    saved = hvd.elastic.JaxState(
        params=state(3)["params"], optimizer=state(3)["optimizer"], epoch=2
    )
    hvd.checkpoint.save(path, saved, step=5, async_=False)
    again = hvd.elastic.JaxState(
        params=state(0)["params"], optimizer=state(0)["optimizer"], epoch=0
    )
    hvd.checkpoint.load(path, again)
    again.restore()
    assert again.epoch == 2
    assert again.params["w"].tolist() == [[3.0] * 3] * 2


def test_what_is_changed_in_place_comes_back(path: Path) -> None:
    def begin():
        params = {"w": jnp.zeros(3)}
        return hvd.elastic.JaxState(streams=Streams(jax.random.key(7), jnp.array(0)), params=params)

    kept = begin()
    for _ in range(2):
        kept.params["w"] = jnp.ones(3)
        first = kept.streams.draw()
        kept.restore()
        assert kept.params["w"].tolist() == [0.0] * 3
        assert int(kept.streams.count) == 0
    kept.streams.draw()
    hvd.checkpoint.save(path, kept, step=1)
    hvd.checkpoint.wait()
    again = begin()
    hvd.checkpoint.load(path, again)
    assert int(again.streams.count) == 1
    kept.streams.count = jnp.array(0)
    assert kept.streams.draw() == first


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"other": jnp.ones(2)}, r"only one of both has"),
        ({"w": {"b": jnp.ones(3)}}, r"\['b'\] was saved as float32 of shape \(2,\)"),
        ({"w": {"b": jnp.ones(2, jnp.int32)}}, r"here it is int32 of shape \(2,\)"),
    ],
)
def test_all_ranks_hear_that_a_checkpoint_is_of_something_else(
    path: Path, target, message: str
) -> None:
    hvd.checkpoint.save(path, {"w": {"b": jnp.ones(2)}}, step=1, async_=False)
    with pytest.raises(hvd.checkpoint.CheckpointError, match=message):
        hvd.checkpoint.load(path, target)


def test_guards_name_the_rank_and_the_array() -> None:
    tree = {"w": jnp.ones(2, jnp.bfloat16), "b": jnp.array([1.0, jnp.inf])}
    hvd.guards.require_equal(tree)
    with pytest.raises(NotFiniteError, match=rf"rank {hvd.rank()} .*\['b'\] has infinite values"):
        hvd.guards.require_finite(tree)
