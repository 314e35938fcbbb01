"""Ranks that an mpirun started by hand find their place, and each other."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.world import state
from sirtaki.schedulers.table import find_start


def test_the_variables_of_this_mpirun_tell_what_mpi_tells(mpi: Any) -> None:
    found = find_start(os.environ)
    assert found is not None
    world, here = mpi.COMM_WORLD, mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    place = found.topology
    assert (place.rank, place.size) == (world.rank, world.size)
    assert (place.local_rank, place.local_size) == (here.rank, here.size)


@pytest.mark.parametrize("backend", ["native", "mpi"])
def test_ranks_meet_without_a_launcher(
    mpi: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("SIRTAKI_BACKEND", backend)
    hvd.init()
    try:
        assert (hvd.rank(), hvd.size()) == (mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size)
        assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
        assert state.current_world().engine.backend_name() == backend
        assert hvd.allgather(np.array([hvd.rank()])).tolist() == list(range(hvd.size()))
    finally:
        hvd.shutdown()


def test_it_is_said_what_moves_the_data(mpi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state.mpi_built()
    for backend in ("mpi", "native"):
        monkeypatch.setenv("SIRTAKI_BACKEND", backend)
        hvd.init()
        assert state.mpi_enabled() is (backend == "mpi")
        assert state.gloo_enabled() is (backend == "native")
        if backend == "mpi":
            multiple = mpi.Query_thread() == mpi.THREAD_MULTIPLE
            assert state.mpi_threads_supported() is multiple
        else:
            with pytest.raises(ValueError, match="not enabled"):
                state.mpi_threads_supported()
        hvd.shutdown()
    assert not state.mpi_enabled()


@pytest.mark.parametrize("backend", ["native", "mpi"])
def test_worlds_come_and_go(mpi: Any, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("SIRTAKI_BACKEND", backend)
    for cycle in range(20):
        hvd.init(process_sets=[hvd.ProcessSet([0])])
        result = hvd.allreduce(np.full(3, cycle), op=hvd.Sum)
        assert result.tolist() == [cycle * hvd.size()] * 3
        hvd.shutdown()


# ---- init(comm=…) ----


@pytest.mark.parametrize("backend", ["native", "mpi"])
def test_a_communicator_of_mpi_is_the_world_in_its_order(
    mpi: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("SIRTAKI_BACKEND", backend)
    comm = mpi.COMM_WORLD.Split(0, -mpi.COMM_WORLD.rank)
    hvd.init(comm=comm)
    assert (hvd.rank(), hvd.size()) == (comm.rank, comm.size)
    started_as = hvd.allgather(np.array([mpi.COMM_WORLD.rank]))
    assert started_as.tolist() == list(reversed(range(comm.size)))
    hvd.shutdown()
    comm.Free()


@pytest.mark.parametrize("backend", ["native", "mpi"])
def test_every_rank_can_be_a_world_of_its_own(
    mpi: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("SIRTAKI_BACKEND", backend)
    hvd.init(comm=mpi.COMM_SELF)
    assert (hvd.rank(), hvd.size()) == (0, 1)
    values = np.arange(5.0) + mpi.COMM_WORLD.rank
    result = hvd.allreduce(values, op=hvd.Sum, postscale_factor=2.0)
    assert result.tolist() == (2 * values).tolist()
    hvd.shutdown()


def test_a_list_of_ranks_is_the_world_in_its_order(
    mpi: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIRTAKI_BACKEND", "mpi")
    ranks = list(reversed(range(mpi.COMM_WORLD.size)))
    hvd.init(comm=ranks)
    assert hvd.rank() == ranks[mpi.COMM_WORLD.rank]
    assert hvd.broadcast(np.array([hvd.rank()]), 0).tolist() == [0]
    hvd.shutdown()


def test_a_communicator_without_this_process_or_with_two_groups_is_refused(mpi: Any) -> None:
    with pytest.raises(ValueError, match="intracommunicator"):
        hvd.init(comm=mpi.COMM_NULL)
    if mpi.COMM_WORLD.size == 1:
        return
    half = mpi.COMM_WORLD.Split(mpi.COMM_WORLD.rank % 2)
    both = half.Create_intercomm(0, mpi.COMM_WORLD, 1 - mpi.COMM_WORLD.rank % 2)
    with pytest.raises(ValueError, match="intracommunicator"):
        hvd.init(comm=both)
    both.Free()
    half.Free()


# ---- ProcessSet(communicator) ----


@pytest.mark.parametrize("backend", ["native", "mpi"])
def test_a_split_communicator_is_a_set_for_each_of_its_parts(
    mpi: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("SIRTAKI_BACKEND", backend)
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    world = mpi.COMM_WORLD
    if world.size == 1:
        return
    comm = world.Split(world.rank % 2)
    part = hvd.ProcessSet(comm)
    assert (part.mpi_comm, part.ranks, part.included()) == (comm, None, None)
    hvd.init(world, process_sets=[part])
    mine = list(range(world.rank % 2, world.size, 2))
    assert (part.ranks, part.rank(), part.size()) == (mine, comm.rank, comm.size)
    total = hvd.allreduce(np.array([hvd.rank()]), op=hvd.Sum, process_set=part)
    assert total.tolist() == [sum(mine)]
    assert hvd.remove_process_set(part)
    assert (part.process_set_id, part.ranks) == (None, None)
    hvd.add_process_set(part)
    assert part.included()
    hvd.shutdown()
    comm.Free()


def test_a_set_of_some_ranks_leaves_the_others_out_and_follows_the_worlds_order(mpi: Any) -> None:
    world = mpi.COMM_WORLD
    if world.size == 1:
        return
    first = world.rank == 0
    comm = world.Split(0 if first else mpi.UNDEFINED)
    alone = hvd.ProcessSet(comm)
    hvd.init(world.Split(0, -world.rank), process_sets=[alone])
    assert alone.included() is first
    assert alone.ranks == ([world.size - 1] if first else [])
    hvd.shutdown()


def test_a_communicator_that_is_not_of_this_world_is_refused_on_all_ranks(mpi: Any) -> None:
    world = mpi.COMM_WORLD
    if world.size == 1:
        return
    hvd.init(mpi.COMM_SELF, process_sets="dynamic")
    with pytest.raises(ValueError, match="rank 0: the communicator has processes that are not in"):
        hvd.add_process_set(hvd.ProcessSet(world))
    hvd.shutdown()


# ---- What cannot work is said ----


def test_a_place_that_contradicts_mpi_is_refused(mpi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    values = (mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size + 1, 0, 1, 0, 1)
    for name, value in zip(names, values, strict=True):
        monkeypatch.setenv(f"HOROVOD_{name}", str(value))
    monkeypatch.setenv("SIRTAKI_RENDEZVOUS", "unix:@nobody")
    with pytest.raises(ValueError, match="but for MPI rank"):
        hvd.init(comm=mpi.COMM_WORLD)
    assert not hvd.is_initialized()


def test_without_mpi4py_the_error_says_what_to_do(
    mpi: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIRTAKI_BACKEND", "mpi")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ValueError, match=r"mpi4py cannot be used .*SIRTAKI_BACKEND=native"):
        hvd.init()
    assert not hvd.is_initialized()


def test_the_names_of_horovod_tell_the_same(mpi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "MPI")
    monkeypatch.delenv("SIRTAKI_BACKEND", raising=False)
    hvd.init()
    assert state.mpi_enabled()
    hvd.shutdown()
