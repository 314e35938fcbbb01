"""Which operations of different ranks' programs belong together."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import sirtaki.jax as hvd
from sirtaki.core.world.snapshot import exposed_of
from sirtaki.core.world.state import snapshot
from sirtaki.hang.answers import exposed_share


def ordered(count: int) -> list[int]:
    """Numbers that odd ranks have the other way round."""
    numbers = list(range(count))
    return numbers[::-1] if hvd.rank() % 2 else numbers


def test_named_operations_in_opposite_orders() -> None:
    @jax.jit
    def f(x):
        results = {}
        for i in ordered(10):
            work = jnp.tanh(x @ x) * 0 + i  # what XLA may do before or after
            results[i] = hvd.allreduce(work, op=hvd.Sum, name=f"opposite.{i}")
        return [results[i] for i in range(10)]

    x = jnp.ones((150, 150))
    for _ in range(10):
        results = f(x)
        assert [float(result[0, 0]) for result in results] == [i * hvd.size() for i in range(10)]


def test_equal_unnamed_operations_of_a_program_do_not_mix() -> None:
    @jax.jit
    def f(x):
        return [hvd.allreduce(x + i, op=hvd.Sum) for i in range(8)]

    for _ in range(10):
        assert [float(result[0]) for result in f(jnp.zeros(50_000))] == [
            i * hvd.size() for i in range(8)
        ]


def test_a_rank_that_traces_once_more_still_meets_the_others() -> None:
    @jax.jit
    def f(x, y):
        return hvd.allreduce(x, op=hvd.Sum), hvd.allreduce(y, op=hvd.Sum)

    alone = hvd.ProcessSet([hvd.rank()])
    for shape in ((2,), (3,), (4,)):
        if hvd.rank() == 0:
            # More programs of the same function than the others make.
            jax.jit(f.__wrapped__).lower(jnp.ones(9), jnp.ones(shape))
            f.clear_cache()
        a, b = f(jnp.ones(shape), 2 * jnp.ones(shape))
        assert a.tolist() == [hvd.size()] * shape[0]
        assert b.tolist() == [2 * hvd.size()] * shape[0]
    assert alone.process_set_id is None


def test_programs_that_are_called_one_after_another_keep_their_order() -> None:
    @jax.jit
    def f(x):
        return hvd.allreduce(jnp.sin(x @ x) * 0 + x[0, 0], op=hvd.Sum)

    # None waits for the one before; all have one name.
    results = [f(jnp.full((200, 200), float(i))) for i in range(20)]
    assert [float(result[0, 0]) for result in results] == [i * hvd.size() for i in range(20)]


def test_eager_loops() -> None:
    for i in range(200):
        assert hvd.allreduce(jnp.float32(i), op=hvd.Sum) == i * hvd.size()


def test_eager_gradients_in_a_loop() -> None:
    grad = jax.grad(lambda x: hvd.allreduce(x * x))
    for i in range(20):
        assert grad(float(i)) == 2 * i


def test_an_eager_call_between_compiled_ones() -> None:
    f = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    x = jnp.ones(100_000)
    for i in range(5):
        compiled = f(x + i)
        eager = hvd.allreduce(x * i, op=hvd.Sum)
        assert float(compiled[0]) == (1 + i) * hvd.size()
        assert float(eager[0]) == i * hvd.size()


def test_a_compiled_function_inside_another_is_called_twice_in_turn() -> None:
    @jax.jit
    def layer(x):
        return hvd.allreduce(x, op=hvd.Sum) / hvd.size() + 1

    assert jax.jit(lambda x: layer(layer(x)))(jnp.zeros(2)).tolist() == [2.0, 2.0]


def total(x):
    return hvd.allreduce(x, op=hvd.Sum)


def looping(x):
    """A loop whose rounds do not depend on each other, two of them written out."""
    return jax.lax.scan(lambda _, row: (None, total(row)), None, x[None].repeat(2, 0), unroll=2)[1]


# Of each JAX makes one function or piece of a program where it can, however often it is called.
HELPERS = {
    "jit": jax.jit(total),
    "named": jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="total")),
    "jit_within_jit": jax.jit(lambda x: jax.jit(total)(x)),
    "inlined": jax.jit(total, inline=True),
    "checkpoint": jax.checkpoint(total),
    "vmap": jax.vmap(jax.jit(total)),
    "loop": jax.jit(looping),
    "gradient": jax.jit(jax.grad(lambda x: (total(x) ** 2).sum() / 2)),
}
helpers = pytest.mark.parametrize("helper", HELPERS.values(), ids=HELPERS)


@helpers
def test_every_occurrence_in_a_program_has_a_name_of_its_own(helper) -> None:
    program = jax.jit(lambda x, y: (helper(x), helper(y))).lower(jnp.ones(2), jnp.ones(2))
    calls = [line for line in program.compile().as_text().splitlines() if "custom-call(" in line]
    names = [re.search(r'\bname = "([^"]+)"', call)[1] for call in calls]
    assert len(names) >= 2
    assert len(set(names)) == len(names)


@helpers
def test_a_helper_is_called_twice_at_once(helper) -> None:
    f = jax.jit(lambda x, y: (helper(x), helper(y)))
    [factor] = np.unique(helper(jnp.ones(2)))
    for _ in range(10):
        a, b = f(jnp.ones(50_000), 2 * jnp.ones(50_000))
        assert (np.unique(a).tolist(), np.unique(b).tolist()) == ([factor], [2 * factor])


# Programs of any size, however fast they are compiled.
CACHE_OF_ALL = {
    "jax_compilation_cache_dir": None,
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def test_the_persistent_cache_gives_the_same_program(tmp_path) -> None:
    hits = []
    jax.monitoring.register_event_listener(
        lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None
    )
    before = {name: getattr(jax.config, name) for name in CACHE_OF_ALL}
    for name, value in {**CACHE_OF_ALL, "jax_compilation_cache_dir": str(tmp_path)}.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # else it stays as the first program of the process found it
    try:
        for read in (0, 1):
            jax.clear_caches()
            f = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="cached"))
            hits.clear()
            assert np.asarray(f(np.ones(3, np.float32))).tolist() == [hvd.size()] * 3
            assert len(hits) == read
            assert len(list(tmp_path.glob("jit*-cache"))) == 1
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_what_a_program_waits_for_is_not_seen_and_said_not_to_be():
    """Nobody knows what XLA does meanwhile, so no share of the time is called exposed."""

    @jax.jit
    def f(x):
        return hvd.allreduce(x, op=hvd.Sum, name="unseen")

    f(jnp.ones(4)).block_until_ready()
    before = look()
    for _ in range(3):
        f(jnp.ones(4)).block_until_ready()
    assert exposed_share(before, look()) is None


def look():
    """What two looks at this rank are compared by."""
    doing = snapshot(1, 0.0)[hvd.rank()].doing
    return {"completed": doing.completed, **exposed_of(doing)}
