"""Arrays that ranks share are moved directly, with the results of any others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import sirtaki as hvd
from sirtaki.core.world.state import current_world, mpi_enabled

Array = NDArray[np.float32]
COUNT = 1 << 19


@pytest.fixture(autouse=True)
def several_ranks() -> None:
    hvd.init()
    if hvd.size() == 1:
        pytest.skip("one rank moves nothing")
    if mpi_enabled():
        pytest.skip("MPI moves the data")
    if hvd.local_size() < hvd.size():
        pytest.skip("between hosts nothing is moved directly")


def filled(rank: int) -> Array:
    """What a rank has: numbers of which sums are exact."""
    array = hvd.empty((COUNT,), np.float32)
    array[:] = np.arange(COUNT) % 1000 + rank
    return array


def summed() -> Array:
    expected = np.zeros(COUNT, np.float32)
    for rank in range(hvd.size()):
        expected += np.arange(COUNT) % 1000 + rank
    return expected


def direct_bytes(work: Callable[[], None]) -> int:
    """Do it until it has moved something directly: at first members may not ask for that."""
    for _ in range(17):
        before = current_world().engine.direct()[1]
        work()
        if moved := current_world().engine.direct()[1] - before:
            return moved
    return 0


def test_an_allreduce_in_place_moves_all_of_a_tensor_directly() -> None:
    def work() -> None:
        array = filled(hvd.rank())
        hvd.allreduce_(array, op=hvd.Sum)
        np.testing.assert_array_equal(array, summed())

    assert direct_bytes(work) == COUNT * 4


def test_an_allreduce_whose_result_lies_elsewhere_is_exact() -> None:
    array = filled(hvd.rank())
    np.testing.assert_array_equal(hvd.allreduce(array, op=hvd.Sum), summed())
    np.testing.assert_array_equal(array, filled(hvd.rank()))


def test_a_broadcast_reads_the_root_s_tensor() -> None:
    def work() -> None:
        array = filled(hvd.rank())
        hvd.broadcast_(array, root_rank=1)
        np.testing.assert_array_equal(array, filled(1))

    assert direct_bytes(work) == COUNT * 4


def test_an_allgather_reads_every_rank_s_tensor() -> None:
    def work() -> None:
        gathered = hvd.allgather(filled(hvd.rank()))
        expected = np.concatenate([filled(rank) for rank in range(hvd.size())])
        np.testing.assert_array_equal(gathered, expected)

    assert direct_bytes(work) == COUNT * 4 * hvd.size()


def test_a_reducescatter_reads_every_rank_s_tensor() -> None:
    def work() -> None:
        part = hvd.reducescatter(filled(hvd.rank()), op=hvd.Sum)
        np.testing.assert_array_equal(part, np.array_split(summed(), hvd.size())[hvd.rank()])

    assert direct_bytes(work) == COUNT * 4


def test_an_alltoall_reads_every_rank_s_tensor() -> None:
    def work() -> None:
        size = hvd.size()
        array = filled(hvd.rank())[: COUNT // size * size]
        got = hvd.alltoall(array)
        each = COUNT // size
        mine = slice(hvd.rank() * each, (hvd.rank() + 1) * each)
        expected = np.concatenate([filled(rank)[mine] for rank in range(size)])
        np.testing.assert_array_equal(got[0] if isinstance(got, tuple) else got, expected)

    assert direct_bytes(work) > 0
