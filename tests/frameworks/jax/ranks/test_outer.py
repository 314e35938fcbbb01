"""Training with rare exchanges around optax, against an oracle that plays all ranks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sirtaki.jax as hvd
from tests.outer_oracle import LR, Oracle, target

SHAPES = ((3, 2), (2,), (2, 2), (2,))


def start() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.normal(size=shape).astype("f") for shape in SHAPES]


def train(tx, steps: int, params: list[jax.Array] | None = None, state=None):
    """Return parameters and state after some steps, each of which pulls to a target."""

    @jax.jit
    def step(params, state, goals):
        gradients = jax.tree.map(jnp.subtract, params, goals)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    params = [jnp.array(each) for each in start()] if params is None else params
    state = tx.init(params) if state is None else state
    first = int(state.step) if hasattr(state, "step") else 0
    for number in range(first, first + steps):
        goals = [target(hvd.rank(), number, shape).astype("f") for shape in SHAPES]
        params, state = step(params, state, goals)
    return params, state


def require_close(params, expected) -> None:
    for param, wanted in zip(params, expected, strict=True):
        np.testing.assert_allclose(param, wanted, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("fragments", "parts", "mix"),
    [(1, [[0, 1, 2, 3]], 0.0), (2, [[0], [1, 2, 3]], 0.5), (4, [[0], [1], [2], [3]], 0.0)],
)
def test_diloco_goes_where_the_oracle_goes(
    fragments: int, parts: list[list[int]], mix: float
) -> None:
    tx = hvd.DiLoCo(optax.sgd(LR), sync_every=4, fragments=fragments, mix=mix)
    params, _ = train(tx, 14)
    oracle = Oracle(start(), hvd.size(), parts, 4, mix=mix)
    oracle.run(14)
    require_close(params, oracle.local[hvd.rank()])
    # The end of a training.
    mean = [np.mean(each, axis=0) for each in zip(*oracle.local, strict=True)]
    require_close(hvd.allreduce_tree(params), mean)


def test_local_sgd_averages_parameters() -> None:
    params, _ = train(hvd.LocalSGD(optax.sgd(LR), sync_every=3), 7)
    oracle = Oracle(start(), hvd.size(), [[0, 1, 2, 3]], 3, lr=1.0, momentum=0.0)
    oracle.run(7)
    require_close(params, oracle.local[hvd.rank()])


def test_another_outer_transformation_and_a_local_one_with_state() -> None:
    tx = hvd.DiLoCo(optax.adam(LR), sync_every=2, outer_optimizer=optax.sgd(0.5))
    params, state = train(tx, 4)
    assert int(state.inner[0].count) == 4
    moved = hvd.allgather_object([np.asarray(each) for each in state.saved])
    for theirs in moved:
        for own, other in zip(moved[0], theirs, strict=True):
            np.testing.assert_array_equal(own, other)
    require_close(params, moved[0])


def test_a_state_made_before_parameters_are_broadcast_starts_from_the_first_ranks() -> None:
    tx = hvd.DiLoCo(optax.sgd(LR), sync_every=4)
    early = tx.init([jnp.array(each) + hvd.rank() for each in start()])
    params, _ = train(tx, 6, [jnp.array(each) for each in start()], early)
    oracle = Oracle(start(), hvd.size(), [[0, 1, 2, 3]], 4)
    oracle.run(6)
    require_close(params, oracle.local[hvd.rank()])


def test_a_saved_state_goes_on() -> None:
    tx = hvd.DiLoCo(optax.sgd(LR), sync_every=4, fragments=2)
    whole, _ = train(tx, 10)
    params, state = train(tx, 5)
    again, _ = train(tx, 5, params, jax.tree.map(jnp.array, state))
    for one, two in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one, two)


def test_half_precision_is_exchanged_in_single() -> None:
    tx = hvd.DiLoCo(optax.sgd(1.0), sync_every=1, outer_lr=1.0, outer_momentum=0.0)
    params = {"w": jnp.zeros(4, jnp.bfloat16)}
    state = tx.init(params)
    pull = {"w": jnp.full(4, -float(hvd.rank()), jnp.bfloat16)}
    updates, state = jax.jit(tx.update)(pull, state, params)
    params = optax.apply_updates(params, updates)
    assert params["w"].dtype == state.saved["w"].dtype == jnp.bfloat16
    assert params["w"].tolist() == [(hvd.size() - 1) / 2] * 4


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sync_every": 3, "fragments": 2}, "sync_every=3 must be a positive multiple of the 2"),
        ({"sync_every": 0}, "sync_every=0 must be a positive multiple"),
        ({"fragments": 0}, "fragments=0 must be at least 1"),
        ({"mix": 1.5}, "mix=1.5 must be from 0"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, float], error: str) -> None:
    with pytest.raises(ValueError, match=rf"^hvd\.DiLoCo: {error}"):
        hvd.DiLoCo(optax.sgd(LR), **{"sync_every": 4, **options})


def test_more_fragments_than_parameters_and_calls_without_them_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fragments=2 must be at least 1 and at most .* 1$"):
        hvd.DiLoCo(optax.sgd(LR), sync_every=4, fragments=2).init([jnp.zeros(2)])
    tx = hvd.LocalSGD(optax.sgd(LR), sync_every=4)
    with pytest.raises(ValueError, match=r"^hvd\.LocalSGD needs the parameters"):
        tx.update([jnp.zeros(2)], tx.init([jnp.zeros(2)]))
    with pytest.raises(TypeError, match="expected a transformation of optax, got str"):
        hvd.DiLoCo("adam", sync_every=4)
