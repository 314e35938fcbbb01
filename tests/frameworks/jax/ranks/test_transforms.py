"""Collectives within jit, vmap, loops, branches, remat and shard_map, and their gradients."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import sirtaki.jax as hvd

if hasattr(jax, "shard_map"):
    shard_map = jax.shard_map
else:  # JAX 0.6.0
    from jax.experimental import shard_map as experimental

    shard_map = functools.partial(experimental.shard_map, check_rep=False)


def scales() -> jax.Array:
    """What each rank multiplies with: 1, 2, …"""
    return jnp.arange(1.0, hvd.size() + 1)


def mine() -> float:
    return hvd.rank() + 1.0


MEAN = pytest.approx


# ---- Gradients: Horovod's rules ----


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
class TestGradients:
    def test_of_allreduce_is_the_same_allreduce(self, wrap) -> None:
        def loss(x):
            reduced = hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
            return (mine() * reduced).sum()

        grad = wrap(jax.grad(loss))(jnp.ones(2))
        assert grad.tolist() == [float(scales().sum())] * 2

    def test_of_a_group_too_where_some_are_integers(self, wrap) -> None:
        def loss(x, y):
            counts = jnp.arange(3)
            a, b, _ = hvd.grouped_allreduce([x, y, counts], op=hvd.Sum)
            return mine() * (a.sum() + 2 * b.sum())

        a, b = wrap(jax.grad(loss, argnums=(0, 1)))(jnp.ones(2), jnp.ones(()))
        assert a.tolist() == [float(scales().sum())] * 2
        assert b == 2 * scales().sum()

    def test_of_allgather_is_the_average_of_this_ranks_rows(self, wrap) -> None:
        weights = jnp.arange(2.0 * hvd.size()) * mine()
        grad = wrap(jax.grad(lambda x: (weights * hvd.allgather(x)).sum()))(jnp.ones(2))
        rows = np.arange(2.0 * hvd.size())[2 * hvd.rank() : 2 * hvd.rank() + 2]
        assert grad.tolist() == pytest.approx(list(rows * float(scales().mean())))

    def test_of_broadcast_is_the_average_on_the_root_and_zero_elsewhere(self, wrap) -> None:
        grad = wrap(jax.grad(lambda x: (mine() * hvd.broadcast(x, 0)).sum()))(jnp.ones(2))
        expected = float(scales().mean()) if hvd.rank() == 0 else 0.0
        assert grad.tolist() == pytest.approx([expected] * 2)

    def test_of_alltoall_goes_back(self, wrap) -> None:
        grad = wrap(jax.grad(lambda x: (mine() * hvd.alltoall(x)).sum()))(jnp.ones(2 * hvd.size()))
        assert grad.tolist() == [float(scale) for scale in scales() for _ in range(2)]

    def test_of_rows_that_alltoall_leaves_is_zero(self, wrap) -> None:
        splits = (1,) * hvd.size()

        def loss(x):
            rows, _ = hvd.alltoall(x, splits, received_splits=splits)
            return mine() * rows.sum()

        grad = wrap(jax.grad(loss))(jnp.ones(hvd.size() + 2))
        assert grad.tolist() == [*map(float, scales()), 0.0, 0.0]

    @pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
    def test_of_reducescatter_is_gathered_and_times_the_ranks_with_sum(self, wrap, op) -> None:
        rows = hvd.size() + 1  # the first rank has one more

        def loss(x):
            return mine() * hvd.reducescatter(x, op=op, prescale_factor=3.0).sum()

        grad = wrap(jax.grad(loss))(jnp.ones(rows))
        times = 3.0 * (hvd.size() if op == hvd.Sum else 1)
        assert grad.tolist() == pytest.approx([times, *(times * s for s in map(float, scales()))])


# ---- Transformations ----


def test_vmap_reduces_all_examples_at_once() -> None:
    batch = jnp.arange(6.0).reshape(3, 2)
    total = jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Sum), in_axes=1, out_axes=1)(batch)
    assert total.tolist() == (batch * hvd.size()).tolist()


def test_vmap_of_operations_on_rows_leaves_examples_apart() -> None:
    batch = jnp.arange(3.0)[:, None] + jnp.arange(2.0 * hvd.size()) * 10

    def exchange(x):
        return hvd.allgather(x[:1]), hvd.alltoall(x), hvd.reducescatter(x)

    def alone(x):
        return jnp.repeat(x[:1], hvd.size()), None, x

    gathered, exchanged, scattered = jax.jit(jax.vmap(exchange))(batch)
    assert gathered.shape == (3, hvd.size())
    assert gathered.tolist() == [jnp.repeat(row[:1], hvd.size()).tolist() for row in batch]
    at = 2 * hvd.rank()
    assert exchanged.tolist() == [jnp.tile(row[at : at + 2], hvd.size()).tolist() for row in batch]
    assert scattered.tolist() == batch[:, at : at + 2].tolist()


def test_vmap_of_a_gradient() -> None:
    grad = jax.vmap(jax.grad(lambda x: (hvd.allreduce(x) ** 2).sum()))(jnp.ones((3, 2)))
    assert grad.tolist() == [[2.0, 2.0]] * 3


@pytest.mark.parametrize("unroll", [1, 3])
@pytest.mark.parametrize("name", [None, "in_loop"])
def test_scan_reduces_in_every_round(unroll: int, name: str | None) -> None:
    @jax.jit
    def rounds(x):
        def body(carry, step):
            return hvd.allreduce(carry, op=hvd.Sum, name=name) / hvd.size() + step, carry.sum()

        return jax.lax.scan(body, x, jnp.arange(10.0), unroll=unroll)

    last, sums = rounds(jnp.ones(2))
    assert last.tolist() == [46.0, 46.0]
    assert sums.tolist() == [2.0 * (1 + sum(range(i))) for i in range(10)]


def test_the_rounds_of_an_unrolled_loop_may_be_independent() -> None:
    @jax.jit
    def rounds(xs):
        return jax.lax.map(lambda x: hvd.allreduce(x * mine(), op=hvd.Sum), xs)

    @jax.jit
    def unrolled(xs):
        def body(carry, x):
            return carry, hvd.allreduce(x * mine(), op=hvd.Sum, name="round")

        return jax.lax.scan(body, 0, xs, unroll=True)[1]

    xs = jnp.arange(20.0).reshape(10, 2)
    expected = (xs * scales().sum()).tolist()
    assert rounds(xs).tolist() == expected
    assert unrolled(xs).tolist() == expected


def test_gradient_through_a_loop() -> None:
    def loss(x):
        last, _ = jax.lax.scan(lambda carry, _: (2 * hvd.allreduce(carry), None), x, None, length=4)
        return last.sum()

    assert jax.jit(jax.grad(loss))(jnp.ones(2)).tolist() == [16.0, 16.0]


def test_the_branch_that_is_taken_reduces() -> None:
    @jax.jit
    def f(take, x):
        return jax.lax.cond(take, lambda: hvd.allreduce(x, op=hvd.Sum), lambda: -x)

    assert f(True, jnp.ones(2)).tolist() == [hvd.size()] * 2
    assert f(False, jnp.ones(2)).tolist() == [-1.0] * 2


def test_while_loop() -> None:
    @jax.jit
    def grow(x):
        return jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: 2 * hvd.allreduce(c), x)

    assert grow(jnp.ones(2)).tolist() == [64.0, 64.0]


def test_recomputation_in_the_backward_pass() -> None:
    @jax.checkpoint
    def layer(x):
        return jnp.sin(hvd.allreduce(jnp.sin(x), name="layer"))

    def plain(x):
        return jnp.sin(jnp.sin(x))

    x = jnp.linspace(0.1, 1.0, 5)
    grad = jax.jit(jax.grad(lambda x: layer(layer(x)).sum()))(x)
    expected = jax.grad(lambda x: plain(plain(x)).sum())(x)
    assert np.allclose(grad, expected, rtol=1e-6)


def test_donated_arrays_are_reduced_in_place() -> None:
    f = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum), donate_argnums=0)
    x = jnp.ones(1000)
    jax.block_until_ready(x)
    before = x.unsafe_buffer_pointer()
    result = f(x)
    assert result.unsafe_buffer_pointer() == before
    assert np.all(np.asarray(result) == hvd.size())


def test_the_devices_of_a_process_reduce_each_their_part_with_the_same_of_other_ranks() -> None:
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    spec = PartitionSpec("devices")

    @jax.jit
    def f(x):
        def part(x):
            here = hvd.allreduce(x, op=hvd.Sum, name="part")
            return here, jax.lax.psum(here, "devices")

        return shard_map(part, mesh=mesh, in_specs=spec, out_specs=(spec, PartitionSpec()))(x)

    parts, whole = f(jnp.array([1.0, 2.0, 10.0, 20.0]))
    assert parts.tolist() == [value * hvd.size() for value in (1.0, 2.0, 10.0, 20.0)]
    assert whole.tolist() == [11.0 * hvd.size(), 22.0 * hvd.size()]


def test_gradient_within_shard_map() -> None:
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    spec = PartitionSpec("devices")

    def part(x):
        return jax.grad(lambda x: (hvd.allreduce(x) ** 2).sum())(x)

    f = jax.jit(shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))
    assert f(jnp.arange(4.0)).tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_collective_whose_result_nobody_uses_is_done_all_the_same() -> None:
    @jax.jit
    def f(x):
        total = hvd.allreduce(x, op=hvd.Sum, name="unused")
        return total if hvd.rank() == 0 else x

    expected = hvd.size() if hvd.rank() == 0 else 1
    assert f(jnp.ones(2)).tolist() == [expected] * 2
