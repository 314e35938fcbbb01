"""What allreduce gives, called as it is and compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sirtaki.jax as hvd

REDUCIBLE = ("bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32")


def ranks() -> range:
    return range(hvd.size())


@pytest.mark.parametrize("dtype", REDUCIBLE)
def test_the_sum_is_of_the_arrays_own_type(run, dtype: str) -> None:
    mine = jnp.array([[0, 1], [1, hvd.rank() % 2]], dtype)
    total = run(lambda x: hvd.allreduce(x, op=hvd.Max), mine)
    assert total.dtype == dtype
    assert total.tolist() == [[0, 1], [1, min(1, hvd.size() - 1)]]


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "complex64"])
def test_unsigned_and_complex_numbers_are_added(run, dtype: str) -> None:
    mine = jnp.array([1, 2]).astype(dtype) * (1 - 2j if dtype == "complex64" else 1)
    total = run(lambda x: hvd.allreduce(x, op=hvd.Sum), mine)
    assert total.dtype == dtype
    assert total.tolist() == (mine * hvd.size()).tolist()


def test_the_gradient_of_a_complex_sum_is_the_sum_of_the_gradients(run) -> None:
    weight = (1 + 3j) * (hvd.rank() + 1)
    loss = jax.grad(lambda x: jnp.real(jnp.sum(hvd.allreduce(x, op=hvd.Sum) * weight)))
    # JAX's gradient of Re(w z) is w.
    expected = (1 + 3j) * hvd.size() * (hvd.size() + 1) / 2
    assert run(loss, jnp.ones(2, "complex64")).tolist() == [expected] * 2


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_64_bits_where_jax_has_them(run, dtype: str) -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        total = run(lambda x: hvd.allreduce(x, op=hvd.Sum), jnp.array([2**40], dtype))
        assert total.dtype == dtype
        assert total.tolist() == [2**40 * hvd.size()]
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    ("op", "reduced"),
    [
        (hvd.Sum, lambda values: sum(values)),
        (hvd.Average, lambda values: sum(values) / len(values)),
        (hvd.Min, min),
        (hvd.Max, max),
        (hvd.Product, lambda values: float(np.prod(values))),
        (hvd.Adasum, lambda values: values[0] if len(values) == 1 else None),
    ],
)
def test_each_op(run, op: int, reduced) -> None:
    values = [float(rank + 1) for rank in ranks()]
    result = run(lambda x: hvd.allreduce(x, op=op), jnp.full(3, hvd.rank() + 1.0))
    expected = reduced(values)
    if expected is None:  # Adasum of parallel vectors lies between the shortest and the longest
        assert 1.0 <= float(result[0]) <= hvd.size()
    else:
        assert result.tolist() == pytest.approx([expected] * 3)


def test_the_average_is_the_default(run) -> None:
    result = run(hvd.allreduce, jnp.float32(hvd.rank()))
    assert float(result) == pytest.approx((hvd.size() - 1) / 2)


def test_the_average_of_integers_is_cut_off(run) -> None:
    result = run(hvd.allreduce, jnp.array([2 * hvd.rank() + 1, -1]))
    assert result.tolist() == [hvd.size(), -1]


def test_factors_scale_before_and_after(run) -> None:
    result = run(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
        jnp.array([4.0]),
    )
    assert result.tolist() == [6.0 * hvd.size()]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_any_shape(run, shape: tuple[int, ...]) -> None:
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum), jnp.ones(shape))
    assert result.shape == shape
    assert np.all(np.asarray(result) == hvd.size())


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.array([3.0], np.float32)])
def test_numbers_and_arrays_of_numpy_are_taken(value) -> None:
    result = hvd.allreduce(value, op=hvd.Sum)
    assert isinstance(result, jax.Array)
    assert np.all(np.asarray(result) == 3 * hvd.size())


def test_the_array_given_stays_as_it_is(run) -> None:
    mine = jnp.full(100, hvd.rank() + 1.0)
    run(hvd.allreduce, mine).block_until_ready()
    assert np.all(np.asarray(mine) == hvd.rank() + 1)


def test_a_group_may_have_several_types(run) -> None:
    group = [jnp.ones(2), jnp.ones(3, jnp.int32), jnp.full((), 2.0)]
    results = run(lambda *xs: hvd.grouped_allreduce(xs, op=hvd.Sum, name="mixed"), *group)
    assert [result.tolist() for result in results] == [
        [hvd.size()] * 2,
        [hvd.size()] * 3,
        2 * hvd.size(),
    ]
    assert [result.dtype for result in results] == ["float32", "int32", "float32"]


def test_an_empty_group_is_nothing_to_do(run) -> None:
    assert run(lambda: hvd.grouped_allreduce([])) == []


def test_a_tree_keeps_its_structure(run) -> None:
    tree = {"w": jnp.ones((2, 2)), "none": None, "steps": (jnp.array(1), jnp.zeros(0))}
    total = run(lambda t: hvd.allreduce_tree(t, op=hvd.Sum), tree)
    assert jax.tree.structure(total) == jax.tree.structure(tree)
    assert total["w"].tolist() == [[hvd.size()] * 2] * 2
    assert total["steps"][0] == hvd.size()
    assert total["steps"][1].shape == (0,)


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression_rounds_the_floats_that_each_rank_gives_and_not_their_sum(
    run, compression
) -> None:
    # 1 + 2**-12 is 1 in both types, which have no 2049 either.
    mine = 2048.0 if hvd.rank() == 0 else 1.0
    group = [jnp.array([mine, 1 + 2**-12]), jnp.array([2**20 + 1])]
    floats, integers = run(
        lambda *xs: hvd.grouped_allreduce(xs, op=hvd.Sum, compression=compression), *group
    )
    assert floats.dtype == "float32"
    assert floats.tolist() == [2048 + hvd.size() - 1, hvd.size()]
    assert integers.tolist() == [(2**20 + 1) * hvd.size()]


def test_int8_sends_steps_of_the_largest_number(run) -> None:
    group = [jnp.array([127.0, 1.4]), jnp.array([2**20 + 1]), jnp.array([127.0], jnp.bfloat16)]
    floats, integers, halves = run(
        lambda *xs: hvd.grouped_allreduce(xs, op=hvd.Sum, compression=hvd.Compression.int8), *group
    )
    assert floats.tolist() == [127.0 * hvd.size(), hvd.size()]
    assert integers.tolist() == [(2**20 + 1) * hvd.size()]
    assert halves.dtype == "bfloat16"
    with pytest.raises(ValueError, match=r"Compression\.int8 is for allreduce with Sum"):
        hvd.allreduce(jnp.ones(2), op=hvd.Max, compression=hvd.Compression.int8)


def test_int4_sends_eighths_of_the_largest_number(run) -> None:
    given = jnp.array([8.0, 1.4, -6.6])
    found = run(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.int4), given)
    assert found.tolist() == [8.0 * hvd.size(), hvd.size(), -7.0 * hvd.size()]


def test_many_elements(run) -> None:
    count = 300_001
    mine = jnp.arange(count, dtype=jnp.float32) % 1000 + hvd.rank()
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum), mine)
    expected = np.arange(count) % 1000 * hvd.size() + sum(ranks())
    assert np.array_equal(np.asarray(result), expected)


def test_operations_on_process_sets(run, pair: hvd.ProcessSet) -> None:
    if pair.included():
        result = run(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=pair), jnp.ones(2))
        assert result.tolist() == [pair.size()] * 2
