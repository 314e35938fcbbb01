"""DistributedOptimizer around optax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sirtaki.jax as hvd

ROWS = 12  # of the whole batch: divisible by 1, 2 and 3 ranks


def parameters() -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.PRNGKey(3), 2)
    return {
        "w1": jax.random.normal(keys[0], (5, 8)),
        "b1": jnp.zeros(8),
        "w2": jax.random.normal(keys[1], (8, 1)),
        "scale": jnp.ones(()),
    }


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return ((hidden @ params["w2"] * params["scale"] - y) ** 2).mean()


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(5)
    return [
        (random.normal(size=(ROWS, 5)).astype("f"), random.normal(size=(ROWS, 1)).astype("f"))
        for _ in range(count)
    ]


def train(tx, steps: int, rows: slice, passes: int = 1):
    """Return the parameters after as many steps on these rows of each batch."""

    @jax.jit
    def step(params, state, x, y):
        updates, state = tx.update(jax.grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    params = parameters()
    state = tx.init(params)
    for x, y in batches(steps):
        for part in np.array_split(np.arange(ROWS)[rows], passes):
            params, state = step(params, state, x[part], y[part])
    return params


def own_rows() -> slice:
    share = ROWS // hvd.size()
    return slice(hvd.rank() * share, (hvd.rank() + 1) * share)


def assert_close(found, expected, tolerance: float = 1e-5) -> None:
    for name in expected:
        assert np.allclose(found[name], expected[name], rtol=0, atol=tolerance), name


@pytest.mark.parametrize(
    "tx",
    [optax.sgd(0.1, momentum=0.9), optax.adamw(1e-2), optax.chain(optax.clip(0.1), optax.sgd(0.1))],
)
def test_equals_one_process_on_the_whole_batch(tx) -> None:
    found = train(hvd.DistributedOptimizer(tx), 20, own_rows())
    assert_close(found, train(tx, 20, slice(None)))


def test_all_ranks_have_the_same_bits() -> None:
    found = train(hvd.DistributedOptimizer(optax.adam(1e-2)), 5, own_rows())
    for params in hvd.allgather_object(jax.tree.map(np.asarray, found)):
        assert all(np.array_equal(params[name], found[name]) for name in found)


def test_gradients_of_several_passes_are_summed() -> None:
    passes = 2
    tx = hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=passes)
    # The sum of the means of halves is twice the mean of the whole.
    assert_close(train(tx, 10, own_rows(), passes), train(optax.sgd(0.2), 10, slice(None)))


def test_parameters_stay_until_the_last_pass() -> None:
    tx = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=3)
    params = {"w": jnp.zeros(2)}
    state = tx.init(params)
    seen = []
    for _ in range(6):
        updates, state = tx.update({"w": jnp.full(2, hvd.rank() + 1.0)}, state, params)
        seen.append(float(updates["w"][0]))
    mean = (hvd.size() + 1) / 2
    assert seen == [0, 0, -3 * mean, 0, 0, -3 * mean]


def test_the_sum_instead_of_the_average() -> None:
    tx = hvd.DistributedOptimizer(optax.sgd(1.0), op=hvd.Sum)
    updates, _ = tx.update({"w": jnp.ones(2)}, tx.init({"w": jnp.ones(2)}))
    assert updates["w"].tolist() == [-hvd.size()] * 2


def test_division_before_the_sum_gives_the_same_average() -> None:
    tx = hvd.DistributedOptimizer(optax.sgd(0.1), gradient_predivide_factor=2.0)
    assert_close(train(tx, 5, own_rows()), train(optax.sgd(0.1), 5, slice(None)))


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compressed_gradients_are_close(compression) -> None:
    tx = hvd.DistributedOptimizer(optax.sgd(0.1), compression=compression)
    found = train(tx, 5, own_rows())
    assert found["w1"].dtype == "float32"
    assert_close(found, train(optax.sgd(0.1), 5, slice(None)), 0.05)


def test_adasum_combines_updates_after_the_optimizer() -> None:
    tx = hvd.DistributedOptimizer(optax.sgd(1.0), op=hvd.Adasum)
    # Orthogonal ones are added.
    mine = jnp.zeros(hvd.size()).at[hvd.rank()].set(hvd.rank() + 1.0)
    updates, _ = tx.update(mine, tx.init(mine))
    assert updates.tolist() == pytest.approx([-(rank + 1.0) for rank in range(hvd.size())])


def test_a_process_set_alone_shares_gradients(pair: hvd.ProcessSet) -> None:
    tx = hvd.DistributedOptimizer(optax.sgd(1.0), op=hvd.Sum, process_set=pair)
    updates, _ = tx.update(jnp.ones(1), tx.init(jnp.ones(1)))
    assert updates.tolist() == [-len(pair.ranks) if pair.included() else -1]


def test_it_is_a_transformation_among_others() -> None:
    inner = hvd.DistributedOptimizer(optax.identity(), op=hvd.Sum)
    tx = optax.chain(inner, optax.scale_by_learning_rate(0.5))
    updates, _ = tx.update(jnp.ones(1), tx.init(jnp.ones(1)))
    assert updates.tolist() == [-0.5 * hvd.size()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "not supported with op != Average"),
    ],
)
def test_bad_arguments(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hvd.DistributedOptimizer(optax.sgd(0.1), **arguments)


def test_what_is_no_transformation() -> None:
    with pytest.raises(TypeError, match="expected a transformation of optax, got float"):
        hvd.DistributedOptimizer(0.1)
