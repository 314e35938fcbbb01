"""Mistakes are told before anything is sent, disagreements on all ranks; the job goes on."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse
from jax.sharding import NamedSharding, PartitionSpec

import sirtaki.jax as hvd

several = pytest.mark.skipif("hvd.size() == 1", reason="one rank cannot disagree with itself")


@pytest.fixture(autouse=True)
def the_job_goes_on() -> Iterator[None]:
    yield
    assert hvd.allreduce(jnp.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    f = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    assert f(jnp.ones(2)).tolist() == [hvd.size()] * 2


@several
class TestRanksDisagree:
    @pytest.mark.parametrize("other", [jnp.ones(3), jnp.ones((1, 2)), jnp.ones(2, jnp.int32)])
    def test_eager(self, other) -> None:
        with pytest.raises(hvd.MismatchError, match="allreduce 'eager'"):
            hvd.allreduce(jnp.ones(2) if hvd.rank() == 0 else other, name="eager")

    @pytest.mark.parametrize("other", [jnp.ones(3), jnp.ones((1, 2)), jnp.ones(2, jnp.int32)])
    def test_in_jit(self, other) -> None:
        f = jax.jit(lambda x: hvd.allreduce(x))
        with pytest.raises(jax.errors.JaxRuntimeError, match="the ranks asked for different"):
            jax.block_until_ready(f(jnp.ones(2) if hvd.rank() == 0 else other))

    def test_on_the_op_in_jit(self) -> None:
        op = hvd.Sum if hvd.rank() == 0 else hvd.Max
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT.*'op'"):
            jax.block_until_ready(jax.jit(lambda x: hvd.allreduce(x, op=op, name="op"))(1.0))

    def test_on_rows_that_xla_must_know(self) -> None:
        rows = jnp.ones((1 + (hvd.rank() == 0), 2))
        with pytest.raises(jax.errors.JaxRuntimeError, match="same shape on all ranks"):
            jax.block_until_ready(jax.jit(hvd.allgather)(rows))

    @pytest.mark.parametrize("gather", [hvd.allgather, lambda x: hvd.grouped_allgather([x[:1], x])])
    def test_on_rows_of_which_some_rank_has_the_average(self, gather) -> None:
        rows = jnp.ones((1 + hvd.rank(), 2))  # at three ranks, what rank 1 gets is what fits there
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"the ranks bring .*1, 2.* rows"):
            jax.block_until_ready(jax.jit(gather)(rows))

    def test_on_rows_that_another_rank_was_to_send(self) -> None:
        swapped = (2, 0, *[1] * (hvd.size() - 2))  # as many together as really come
        exchange = jax.jit(lambda x: hvd.alltoall(x, [1] * hvd.size(), received_splits=swapped))
        with pytest.raises(jax.errors.JaxRuntimeError, match="was compiled for 2, 0"):
            jax.block_until_ready(exchange(jnp.ones(hvd.size())))


class TestBadArguments:
    """The same called as it is and compiled."""

    @pytest.mark.parametrize("value", ["text", None, [1.0], object()])
    def test_what_is_no_array(self, value) -> None:
        with pytest.raises(TypeError, match="allreduce: expected an array, not"):
            hvd.allreduce(value)

    def test_types_that_are_only_moved(self, run) -> None:
        with pytest.raises(ValueError, match="float8_e4m3fn cannot be reduced; broadcast"):
            run(hvd.allreduce, jnp.ones(2).astype("float8_e4m3fn"))

    @pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Adasum])
    def test_complex_numbers_have_no_order(self, run, op: int) -> None:
        with pytest.raises(ValueError, match="not complex64"):
            run(lambda x: hvd.allreduce(x, op=op), jnp.ones(2, "complex64"))

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (np.ma.array([1.0]), r"MaskedArray would lose its mask: give x\.filled"),
            (np.asmatrix([[1.0]]), "a matrix may give its elements another meaning"),
            (np.array(["a"]), "<U1 is not supported; send it with broadcast_object"),
            (np.array([None]), "object is not supported; send it with broadcast_object"),
            (np.ones(2, "M8[s]"), r"datetime64\[s\] is not supported; give x\.view"),
            (np.ones(2, ">f4"), r"its bytes are in another order: give x\.astype"),
            (np.ones(2, np.longdouble), "is not supported; give x.astype"),
            (np.array([2**40]), "JAX would cut numbers of type int64 to 32 bits"),
            (2**40, "JAX would cut numbers of type int64 to 32 bits"),
            (2**80, "object is not supported"),
            (sparse.BCOO.fromdense(jnp.eye(2)), r"not BCOO: give x\.todense"),
        ],
    )
    def test_what_jax_would_take_for_something_else(self, value, message: str) -> None:
        for call in (hvd.allreduce, hvd.allgather, hvd.broadcast, hvd.alltoall, hvd.reducescatter):
            with pytest.raises((TypeError, ValueError), match=message):
                call(value)
        with pytest.raises((TypeError, ValueError), match=message):
            hvd.allreduce_tree({"gradient": value})

    def test_arrays_of_64_bits_where_they_are_off(self) -> None:
        jax.config.update("jax_enable_x64", True)
        try:
            wide = jnp.array([2**40])
            assert hvd.allreduce(wide, op=hvd.Max).tolist() == [2**40]
        finally:
            jax.config.update("jax_enable_x64", False)
        with pytest.raises(ValueError, match="JAX would cut numbers of type int64"):
            hvd.allreduce(wide)

    def test_a_program_for_another_platform(self) -> None:
        traced = jax.jit(lambda x: hvd.allreduce(x)).trace(jnp.ones(3))
        with pytest.raises(NotImplementedError, match=r"on CPUs only, and this .* for cuda"):
            traced.lower(lowering_platforms=("cuda",))

    def test_random_keys(self, run) -> None:
        with pytest.raises(ValueError, match=r"give jax\.random\.key_data"):
            run(hvd.allgather, jax.random.split(jax.random.key(1), 2))

    def test_an_unknown_op(self, run) -> None:
        with pytest.raises(ValueError, match="op=17 is not a reduction"):
            run(lambda x: hvd.allreduce(x, op=17), jnp.ones(2))

    @pytest.mark.parametrize("call", [hvd.allreduce, hvd.reducescatter])
    def test_adasum_where_there_is_none(self, run, call) -> None:
        with pytest.raises(ValueError, match="Adasum"):
            run(lambda x: call(x, op=hvd.Adasum), jnp.ones(2, jnp.int32))

    @pytest.mark.parametrize("call", [hvd.allgather, hvd.alltoall, hvd.reducescatter])
    def test_rows_of_a_number(self, run, call) -> None:
        with pytest.raises(ValueError, match="needs rows"):
            run(call, jnp.float32(1))

    def test_a_name_that_is_no_text(self, run) -> None:
        with pytest.raises(TypeError, match="name must be a str, not int"):
            run(lambda x: hvd.allreduce(x, name=5), jnp.ones(2))

    def test_a_root_outside_of_the_set(self, run, pair: hvd.ProcessSet) -> None:
        if hvd.size() == 3 and pair.included():
            with pytest.raises(ValueError, match="root_rank 1 is not in the process set"):
                run(lambda x: hvd.broadcast(x, 1, process_set=pair), jnp.ones(2))

    def test_a_set_that_this_rank_is_not_in(self, run, pair: hvd.ProcessSet) -> None:
        if not pair.included():
            with pytest.raises(ValueError, match="rank 1 is not in the process set"):
                run(lambda x: hvd.allreduce(x, process_set=pair), jnp.ones(2))

    def test_a_set_that_is_not_registered(self, run) -> None:
        with pytest.raises(ValueError, match="is not registered"):
            run(lambda x: hvd.allreduce(x, process_set=hvd.ProcessSet([0])), jnp.ones(2))

    @pytest.mark.parametrize("splits", [[1], [-1, 1], [9, 9, 9], [[1]], 1.5])
    def test_splits_that_do_not_fit(self, run, splits) -> None:
        with pytest.raises(ValueError, match="splits"):
            run(
                lambda x: hvd.alltoall(x, splits, received_splits=[1] * hvd.size()),
                jnp.ones(0),
            )

    def test_splits_without_what_comes_back_in_jit(self) -> None:
        with pytest.raises(ValueError, match="needs received_splits"):
            jax.jit(lambda x: hvd.alltoall(x, [1] * hvd.size()))(jnp.ones(hvd.size()))

    def test_splits_that_are_not_known_in_jit(self) -> None:
        with pytest.raises(ValueError, match="must be known when the function is traced"):
            jax.jit(hvd.alltoall)(jnp.ones(hvd.size()), jnp.ones(hvd.size(), jnp.int32))

    @several
    def test_rows_that_cannot_be_divided(self, run) -> None:
        with pytest.raises(ValueError, match="divisible by"):
            run(hvd.alltoall, jnp.ones(hvd.size() + 1))


class TestSeveralDevices:
    """Arrays that XLA spreads have to be worked on part by part."""

    def sharded(self) -> jax.Array:
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("devices",))
        return jax.device_put(jnp.arange(4.0), NamedSharding(mesh, PartitionSpec("devices")))

    def test_a_call_says_what_to_do(self, run) -> None:
        with pytest.raises(ValueError, match=r"over 2 devices.*call it within jax\.shard_map"):
            run(hvd.allreduce, self.sharded())
