"""All operations on MPI give what the core's kernels give."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki import _core
from sirtaki.core.operations import codes
from sirtaki.core.world import state

pytestmark = pytest.mark.usefixtures("mpi", "world")

CODES = {
    np.bool_: codes.BOOL,
    np.uint8: codes.U8,
    np.int8: codes.I8,
    np.int16: codes.I16,
    np.int32: codes.I32,
    np.int64: codes.I64,
    np.float16: codes.F16,
    np.float32: codes.F32,
    np.float64: codes.F64,
    np.uint16: codes.U16,
    np.uint32: codes.U32,
    np.uint64: codes.U64,
    np.complex64: codes.C64,
    np.complex128: codes.C128,
}
COMPLEX = (np.complex64, np.complex128)
ORDERS = (hvd.Min, hvd.Max)
OPS = (hvd.Sum, hvd.Average, hvd.Product, *ORDERS)
REDUCTIONS = [(t, op) for t in CODES for op in OPS if not (t in COMPLEX and op in ORDERS)]


def values(dtype: Any, count: int, rank: int) -> np.ndarray:
    """Values for which the order of a sum of more than two matters little."""
    bits = np.random.default_rng(1000 * rank + count)
    if np.issubdtype(dtype, np.floating):
        made = bits.normal(size=count).astype(dtype)
        made[rank::7] = np.nan
        return made
    if dtype in COMPLEX:
        return (bits.normal(size=count) + 1j * bits.normal(size=count)).astype(dtype)
    if dtype is np.bool_:
        return bits.integers(0, 2, count).astype(bool)
    return bits.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, count, dtype, endpoint=True)


def expected(parts: list[np.ndarray], op: int, pre: float, post: float) -> np.ndarray:
    if op == hvd.Average and not np.issubdtype(parts[0].dtype, np.integer):
        post *= 1.0 / len(parts)
    target = np.empty_like(parts[0])
    code = CODES[parts[0].dtype.type]
    places = [part.ctypes.data for part in parts]
    _core.reduce(target.ctypes.data, places, code, op, target.size, pre, post)
    return target


def assert_equal_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    if hvd.size() == 2 or not np.issubdtype(found.dtype, np.inexact):
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.5, 3.0)])
@pytest.mark.parametrize(("dtype", "op"), REDUCTIONS)
def test_every_reduction_is_that_of_the_kernels(
    dtype: Any, op: int, scales: tuple[float, float]
) -> None:
    pre, post = scales
    for count in (0, 1, 5, 4099):
        parts = [values(dtype, count, rank) for rank in range(hvd.size())]
        mine = parts[hvd.rank()]
        kept = mine.copy()
        found = hvd.allreduce(mine, op=op, prescale_factor=pre, postscale_factor=post)
        assert_equal_bits(found, expected(parts, op, pre, post))
        np.testing.assert_array_equal(mine, kept)
        hvd.allreduce_(mine, op=op, prescale_factor=pre, postscale_factor=post)
        assert mine.tobytes() == found.tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_arrays_larger_than_a_call_are_reduced_and_broadcast(dtype: Any) -> None:
    count = (36 << 20) // np.dtype(dtype).itemsize + 3
    mine = np.full(count, hvd.rank() + 1, dtype)
    mine[-1] = 7
    found = hvd.allreduce(mine, op=hvd.Sum)
    assert found[0] == found[-2] == sum(range(1, hvd.size() + 1))
    assert found[-1] == 7 * hvd.size()
    root = hvd.size() - 1
    assert np.all(hvd.broadcast(mine, root)[:-1] == root + 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.bool_])
def test_a_group_of_small_and_large_arrays_is_reduced_as_one(dtype: Any) -> None:
    sizes = (1, 0, 300, 700_001, 2, 2_500_003, 5)
    mine = [values(dtype, size, hvd.rank()) for size in sizes]
    found = hvd.grouped_allreduce(mine, op=hvd.Max)
    for size, array in zip(sizes, found, strict=True):
        parts = [values(dtype, size, rank) for rank in range(hvd.size())]
        np.testing.assert_array_equal(array, expected(parts, hvd.Max, 1.0, 1.0))


def adasum_of_two(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (1 - a @ b / (2 * (a @ a))) * a + (1 - a @ b / (2 * (b @ b))) * b


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 1000, 1_500_000])
def test_adasum_is_that_of_its_definition(dtype: Any, count: int) -> None:
    made = [np.random.default_rng(rank).normal(size=count) for rank in range(hvd.size())]
    level = [each.astype(dtype) for each in made]
    found = hvd.allreduce(level[hvd.rank()], op=hvd.Adasum)
    if hvd.size() > 2:
        return
    wide = [each.astype(np.float64) for each in level]
    wanted = adasum_of_two(*wide) if hvd.size() == 2 else wide[0]
    tolerance = {np.float16: 4e-3, np.float32: 1e-5, np.float64: 1e-12}[dtype]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def submit(
    kind: int,
    arrays: list[np.ndarray],
    outputs: list[np.ndarray],
    root: int,
    op: int = hvd.Sum,
    codec: int = codes.NO_CODEC,
) -> _core.Handle:
    code = CODES[arrays[0].dtype.type]
    return state.current_world().engine.submit(
        _core.Request(
            kind,
            dtype=code,
            reduce=op,
            root=root,
            codec=codec,
            shapes=[array.shape for array in (arrays[:1] if kind == codes.SCATTER else arrays)],
            inputs=[array.ctypes.data for array in arrays],
            outputs=[array.ctypes.data for array in outputs],
            waits=True,
        ),
        (arrays, outputs),
    )


@pytest.mark.parametrize("op", OPS)
def test_what_is_rounded_on_its_way_is_reduced_as_16_bit_floats(op: int) -> None:
    if hvd.size() == 1:
        pytest.skip("a result is rounded again only where there is a way")
    for count in (0, 5, 4099):
        parts = [values(np.float32, count, rank) for rank in range(hvd.size())]
        mine = parts[hvd.rank()]
        found = np.empty_like(mine)
        submit(codes.ALLREDUCE, [mine], [found], 0, op, [*codes.FORMATS].index("float16"))
        rounded = [part.astype(np.float16) for part in parts]
        wanted = expected(rounded, op, 1.0, 1.0).astype(np.float32)
        np.testing.assert_array_equal(found, wanted)


def test_what_has_no_dtype_is_refused_on_all_ranks() -> None:
    if hvd.size() == 1:
        pytest.skip("a result is encoded again only where there is a way")
    mine = np.ones(5, np.float32)
    with pytest.raises(ValueError, match="int8 can only be summed by"):
        submit(codes.ALLREDUCE, [mine], [mine], 0, hvd.Sum, [*codes.FORMATS].index("int8"))
    submit(codes.ALLREDUCE, [mine], [mine], 0)  # the world goes on


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.bool_, np.int64])
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Min])
def test_only_the_root_of_a_reduction_gets_its_result(dtype: Any, op: int) -> None:
    for root in range(hvd.size()):
        parts = [values(dtype, 1001, rank) for rank in range(hvd.size())]
        target = np.zeros(1001, dtype)
        submit(codes.REDUCE, [parts[hvd.rank()]], [target], root, op)
        if hvd.rank() == root:
            assert_equal_bits(target, expected(parts, op, 1.0, 1.0))
        else:
            assert not target.any()


def test_rows_are_gathered_at_the_root() -> None:
    mine = np.full((hvd.rank() + 1, 3), hvd.rank(), np.int32)
    root = hvd.size() - 1
    found = submit(codes.GATHER, [mine], [], root).outputs()
    if hvd.rank() == root:
        ((data, shape),) = found
        rows = [rank for rank in range(hvd.size()) for _ in range(rank + 1)]
        assert shape == (len(rows), 3)
        assert data.view(np.int32).reshape(shape)[:, 0].tolist() == rows


def test_parts_are_scattered_from_the_root() -> None:
    root = hvd.size() - 1
    parts = [np.full(11, 10 * rank, np.int16) for rank in range(hvd.size())]
    target = np.zeros(11, np.int16)
    submit(codes.SCATTER, parts, [target], root)
    assert target.tolist() == [10 * hvd.rank()] * 11


def test_a_process_set_runs_its_own_operations_and_can_be_made_again() -> None:
    if hvd.size() == 1:
        pytest.skip("the only set is the world")
    last = hvd.size() - 1
    for _ in range(3):
        alone = hvd.add_process_set([last])
        if hvd.rank() == last:
            found = hvd.allreduce(np.arange(3.0), op=hvd.Sum, process_set=alone)
            assert found.tolist() == [0, 1, 2]
        assert hvd.remove_process_set(alone)


def test_the_script_may_use_mpi_at_the_same_time(mpi: Any) -> None:
    if not state.mpi_threads_supported():
        pytest.skip("this MPI is called from one thread at a time")
    comm = mpi.COMM_WORLD.Dup()
    sums: list[int] = []

    def own_traffic() -> None:
        sums.extend(comm.allreduce(step) for step in range(200))

    thread = threading.Thread(target=own_traffic)
    thread.start()
    for step in range(200):
        assert hvd.allreduce(np.full(100, step), op=hvd.Sum)[0] == step * hvd.size()
    thread.join()
    assert sums == [step * hvd.size() for step in range(200)]
    comm.Free()
