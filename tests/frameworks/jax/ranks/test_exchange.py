"""Allgather, broadcast, alltoall, reducescatter, barrier and objects."""

from __future__ import annotations

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sirtaki.jax as hvd
from sirtaki.core.operations.codes import DTYPES, REDUCED_DTYPES

# XLA has not all of the small types that JAX has names for.
MOVED = ["uint16", "uint32", "complex64"]
MOVED += [
    name
    for name in DTYPES
    if name not in REDUCED_DTYPES and hasattr(jnp, name) and not re.search("float6|int1$", name)
]


def everyone() -> range:
    return range(hvd.size())


def test_allgather_concatenates_in_rank_order(run) -> None:
    result = run(hvd.allgather, jnp.full((2, 3), hvd.rank()))
    assert result.shape == (2 * hvd.size(), 3)
    assert result[:, 0].tolist() == [rank for rank in everyone() for _ in range(2)]


def test_allgather_outside_of_jit_takes_any_number_of_rows() -> None:
    result = hvd.allgather(jnp.full((hvd.rank(), 2), hvd.rank()))
    assert result[:, 0].tolist() == [rank for rank in everyone() for _ in range(rank)]


def test_a_group_is_gathered_together(run) -> None:
    floats, integers = run(
        lambda *xs: hvd.grouped_allgather(xs, name="group"),
        *(jnp.ones(1), jnp.full(2, hvd.rank())),
    )
    assert floats.tolist() == [1.0] * hvd.size()
    assert integers.tolist() == [rank for rank in everyone() for _ in range(2)]


@pytest.mark.parametrize("dtype", [*MOVED, "bool", "bfloat16"])
def test_what_cannot_be_reduced_is_moved(run, dtype: str) -> None:
    parts = [jnp.array([rank % 2, 1]).astype(dtype) for rank in everyone()]
    result = run(hvd.allgather, parts[hvd.rank()])
    assert result.dtype == dtype
    assert np.asarray(result).tobytes() == b"".join(np.asarray(part).tobytes() for part in parts)
    sent = run(lambda x: hvd.broadcast(x, hvd.size() - 1), parts[hvd.rank()])
    assert np.asarray(sent).tobytes() == np.asarray(parts[-1]).tobytes()


CALLS = {
    "allreduce": hvd.allreduce,
    "grouped_allreduce": lambda x: hvd.grouped_allreduce([x, jnp.ones(1)])[0],
    "compressed": lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
    "allreduce_tree": lambda x: hvd.allreduce_tree({"x": x})["x"],
    "allgather": hvd.allgather,
    "grouped_allgather": lambda x: hvd.grouped_allgather([jnp.ones(1), x])[1],
    "broadcast": hvd.broadcast,
    "broadcast_tree": lambda x: hvd.broadcast_tree([x])[0],
    "alltoall": hvd.alltoall,
    "alltoall by splits": lambda x: hvd.alltoall(x, [1] * hvd.size())[0],
    "reducescatter": hvd.reducescatter,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_result_is_where_its_array_is(call: str) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[1:]), ("one",))
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("one"))
    for place in (jax.devices()[1], named):
        array = jax.device_put(jnp.ones(hvd.size()), place)
        result = CALLS[call](array)
        assert result.sharding == array.sharding
        assert (result[:1] + array[:1]).tolist() == [2.0]
    free = jnp.ones(hvd.size())
    # What no device was asked for goes where the other operand is.
    assert (CALLS[call](free)[:1] + array[:1]).tolist() == [2.0]


def test_broadcast_gives_the_roots_array(run) -> None:
    root = hvd.size() - 1
    result = run(lambda x: hvd.broadcast(x, root), jnp.full((2,), hvd.rank()))
    assert result.tolist() == [root] * 2


def test_broadcast_tree_makes_states_equal(run) -> None:
    state = {"w": jnp.full(3, hvd.rank() + 1.0), "step": jnp.array(hvd.rank() + 5), "none": None}
    result = run(lambda tree: hvd.broadcast_tree(tree, name="state"), state)
    assert result["w"].tolist() == [1.0] * 3
    assert result["step"] == 5
    assert result["none"] is None


def test_alltoall_sends_equal_parts(run) -> None:
    mine = 10 * hvd.rank() + jnp.arange(2 * hvd.size())
    rows = run(hvd.alltoall, mine)
    at = 2 * hvd.rank()
    assert rows.tolist() == [10 * rank + at + i for rank in everyone() for i in range(2)]


def test_alltoall_sends_what_splits_say() -> None:
    splits = list(range(1, hvd.size() + 1))  # the one more for each next rank; one row is left
    mine = jnp.full((sum(splits) + 1, 2), hvd.rank())
    rows, received = hvd.alltoall(mine, splits)
    assert received.tolist() == [hvd.rank() + 1] * hvd.size()
    assert rows[:, 1].tolist() == [rank for rank in everyone() for _ in range(hvd.rank() + 1)]


def test_alltoall_in_jit_takes_splits_that_are_known() -> None:
    splits = tuple(range(1, hvd.size() + 1))
    got = (hvd.rank() + 1,) * hvd.size()

    @jax.jit
    def exchange(x):
        return hvd.alltoall(x, splits, received_splits=got)

    rows, received = exchange(jnp.full((sum(splits), 2), hvd.rank()))
    assert received.tolist() == list(got)
    assert rows[:, 0].tolist() == [rank for rank in everyone() for _ in range(hvd.rank() + 1)]


@pytest.mark.parametrize("more", [0, 1])
def test_reducescatter_gives_this_ranks_rows(run, more: int) -> None:
    count = 2 * hvd.size() + more
    block = run(lambda x: hvd.reducescatter(x, op=hvd.Sum), jnp.arange(count))
    counts = [2 + (rank < more) for rank in everyone()]
    start = sum(counts[: hvd.rank()])
    expected = [hvd.size() * row for row in range(start, start + counts[hvd.rank()])]
    assert block.tolist() == expected


def test_a_group_is_scattered_together(run) -> None:
    group = [jnp.ones(hvd.size()), jnp.full((hvd.size(), 2), 3)]
    floats, integers = run(lambda *xs: hvd.grouped_reducescatter(xs, op=hvd.Sum, name="g"), *group)
    assert floats.tolist() == [hvd.size()]
    assert integers.tolist() == [[3 * hvd.size()] * 2]


def test_no_rank_leaves_a_barrier_before_all_have_come(run) -> None:
    if hvd.rank() == 0:
        time.sleep(0.3)
    came = time.monotonic()  # the ranks' clock is one, their host's
    run(hvd.barrier)
    jax.effects_barrier()
    left = time.monotonic()
    assert left >= max(hvd.allgather_object(came))


def test_objects_go_to_all_ranks() -> None:
    assert hvd.broadcast_object({"rank": hvd.rank()}, hvd.size() - 1) == {"rank": hvd.size() - 1}
    assert hvd.allgather_object(["x"] * hvd.rank()) == [["x"] * rank for rank in everyone()]


def test_exchange_in_process_sets(run, pair: hvd.ProcessSet) -> None:
    if not pair.included():
        return
    gathered = run(lambda x: hvd.allgather(x, process_set=pair), jnp.full(1, hvd.rank()))
    assert gathered.tolist() == pair.ranks
    root = pair.ranks[-1]
    sent = run(lambda x: hvd.broadcast(x, root, process_set=pair), jnp.full(1, hvd.rank()))
    assert sent.tolist() == [root]
    rows = run(lambda x: hvd.alltoall(x, process_set=pair), jnp.full(pair.size(), hvd.rank()))
    assert rows.tolist() == pair.ranks
    block = run(
        lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=pair), jnp.arange(pair.size())
    )
    assert block.tolist() == [pair.size() * pair.rank()]
    assert hvd.allgather_object(hvd.rank(), process_set=pair) == pair.ranks
