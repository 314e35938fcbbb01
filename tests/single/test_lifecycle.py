"""What init, shutdown, process sets and the questions about the world promise."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import (
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    get_version_mismatch_message,
)
from sirtaki.backends import mpi
from sirtaki.launch.api import run

NOT_YET = "Horovod has not been initialized; use hvd.init"
PLACE = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous")
BUILT = {
    "mpi_enabled": False,
    "mpi_built": mpi.built(),
    "gloo_enabled": True,
    "gloo_built": True,
    "nccl_built": 0,
    "ddl_built": False,
    "ccl_built": False,
    "cuda_built": False,
    "rocm_built": False,
}

basics = HorovodBasics()


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    hvd.shutdown()
    yield
    hvd.shutdown()


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, str]:
    """The class and the message of what a call raises; "" and the result if nothing."""
    try:
        return "", str(call(*args, **kwargs))
    except Exception as error:
        return type(error).__name__, str(error)


def ones() -> np.ndarray:
    return np.ones(2, np.float32)


# ---- Before init and after shutdown ----


@pytest.mark.parametrize("name", [*PLACE, "mpi_threads_supported", "stop_timeline"])
@pytest.mark.parametrize("before", [True, False])
def test_without_a_world_questions_about_it_are_value_errors(name: str, before: bool) -> None:
    if not before:
        hvd.init()
        hvd.shutdown()
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match=NOT_YET):
        getattr(basics, name)()


def test_without_a_world_there_is_no_timeline_and_no_set() -> None:
    with pytest.raises(ValueError, match=NOT_YET):
        hvd.start_timeline("timeline.json")
    with pytest.raises(ValueError, match=NOT_YET):
        hvd.add_process_set([0])
    unknown = hvd.ProcessSet([0])
    assert not hvd.remove_process_set(unknown)
    assert (unknown.process_set_id, unknown.rank(), unknown.size()) == (None, None, None)
    assert unknown.mpi_comm is None
    with pytest.raises(TypeError, match=r"ProcessSet\(3\) takes a list of ranks"):
        hvd.ProcessSet(3)
    assert (hvd.global_process_set.process_set_id, hvd.global_process_set.ranks) == (0, None)
    assert hvd.global_process_set.included() is None


@pytest.mark.parametrize(
    "operation",
    [
        lambda: hvd.allreduce(ones()),
        lambda: hvd.allgather(ones()),
        lambda: hvd.broadcast(ones(), 0),
        lambda: hvd.alltoall(ones()),
        lambda: hvd.reducescatter(ones()),
        hvd.barrier,
        hvd.join,
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_without_a_world_operations_are_internal_errors(
    operation: Callable[[], Any], before: bool
) -> None:
    if not before:
        hvd.init()
        hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError, match=NOT_YET):
        operation()


# ---- A world of one ----


def test_alone_every_question_has_an_answer() -> None:
    hvd.init()
    assert [getattr(basics, name)() for name in PLACE] == [0, 1, 0, 1, 0, 1, True]
    assert basics._get_process_set_ids_and_ranks() == {0: [0]}
    assert hvd.is_initialized()


@pytest.mark.parametrize("name", BUILT)
def test_what_is_built_can_be_asked_at_any_time(name: str) -> None:
    for _ in range(2):
        assert getattr(basics, name)() == BUILT[name]
        hvd.init()


def test_mpi_threads_are_a_value_error_without_mpi() -> None:
    hvd.init()
    with pytest.raises(ValueError, match="MPI"):
        basics.mpi_threads_supported()


def test_init_again_does_nothing() -> None:
    hvd.init()
    handle = hvd.allreduce_async(ones())
    hvd.init()
    assert hvd.synchronize(handle).tolist() == [1, 1]


def test_shutdown_again_does_nothing() -> None:
    hvd.init()
    hvd.shutdown()
    hvd.shutdown()


def test_the_timeline_needs_its_variable_from_the_start() -> None:
    hvd.init()
    with pytest.raises(ValueError, match="HOROVOD_TIMELINE"):
        hvd.start_timeline("timeline.json")


@pytest.mark.parametrize("sets", ["static", ""])
def test_the_only_word_for_process_sets_is_dynamic(sets: str) -> None:
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets=sets)


def test_sets_cannot_be_added_or_removed_unless_dynamic() -> None:
    hvd.init()
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
        hvd.add_process_set([0])


def test_an_environment_that_contradicts_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RANK", "1")
    with pytest.raises(ValueError, match="HOROVOD_SIZE"):
        hvd.init()
    assert not hvd.is_initialized()


def test_a_world_of_neither_ranks_nor_a_communicator_is_refused() -> None:
    with pytest.raises(TypeError, match="a list of ranks or an mpi4py communicator"):
        hvd.init(comm=object())


def test_the_exceptions_of_horovod_are_there() -> None:
    assert issubclass(HostsUpdatedInterrupt, RuntimeError)
    assert HostsUpdatedInterrupt(skip_sync=True).skip_sync
    assert not issubclass(HostsUpdatedInterrupt, hvd.HorovodInternalError)
    error = HorovodVersionMismatchError("torch", "2.4", "2.5")
    assert isinstance(error, ImportError)
    assert str(error) == get_version_mismatch_message("torch", "2.4", "2.5")


# ---- Two ranks ----


def many_worlds() -> tuple[int, int]:
    for number in range(105):
        hvd.init()
        assert hvd.allreduce(ones(), op=hvd.Sum).tolist() == [2, 2], number
        hvd.shutdown()
    return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208


def test_worlds_can_follow_each_other_by_the_hundred_without_a_trace() -> None:
    few = run(lambda: (len(os.listdir("/proc/self/fd")), threading.active_count()), num_proc=2)  # noqa: PTH208
    for (files, threads), (before, alive) in zip(run(many_worlds, num_proc=2), few, strict=True):
        # The connection to the launcher, the shared arrays, and the file for stacks stay.
        assert files <= before + 4
        assert threads == alive


def sets_at_init() -> list[Any]:
    twice = outcome(hvd.init, process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    after = hvd.is_initialized()
    whole = outcome(hvd.init, process_sets=[hvd.ProcessSet([1, 0])])
    first, second = hvd.ProcessSet([0]), hvd.ProcessSet([1])
    hvd.init(process_sets=[first, second])
    known = basics._get_process_set_ids_and_ranks()
    member = second.included(), second.size(), outcome(second.rank)
    hvd.shutdown()
    return [twice, after, whole, known, member, first.process_set_id]


def test_sets_can_be_given_to_init_and_each_only_once() -> None:
    for rank, (twice, after, whole, known, member, forgotten) in enumerate(
        run(sets_at_init, num_proc=2)
    ):
        assert twice[0] == "ValueError"
        assert "process_sets entry number 1 is a duplicate" in twice[1]
        assert not after
        assert whole[0] == "ValueError"  # the global set has these ranks
        assert known == {0: [0, 1], 1: [0], 2: [1]}
        not_part = ("ValueError", "Process is not part of provided process set.")
        assert member == ((False, 1, not_part) if rank == 0 else (True, 1, ("", "0")))
        assert forgotten is None


def sets_while_running() -> list[Any]:
    hvd.init(process_sets="dynamic")
    me = hvd.rank()
    first = hvd.add_process_set([0])
    again = outcome(hvd.add_process_set, [0])
    differing = outcome(hvd.add_process_set, [me])
    outside = outcome(hvd.add_process_set, [0, 5])
    second = hvd.add_process_set(hvd.ProcessSet([1]))
    ids = [first.process_set_id, second.process_set_id]
    removed = [hvd.remove_process_set(first), hvd.remove_process_set(first)]
    ids += [first.process_set_id, hvd.add_process_set([0]).process_set_id]
    removed.append(hvd.remove_process_set(hvd.global_process_set))
    hvd.barrier()
    return [again, differing, outside, ids, removed, basics._get_process_set_ids_and_ranks()]


def test_sets_are_added_and_removed_by_all_ranks_together() -> None:
    for again, differing, outside, ids, removed, known in run(sets_while_running, num_proc=2):
        assert again[0] == "ValueError"
        assert "exists already" in again[1]
        assert differing[0] == "MismatchError"
        assert "rank 0 has [0], rank 1 has [1]" in differing[1]
        assert outside[0] == "ValueError"
        assert "outside the world" in outside[1]
        assert ids == [1, 2, None, 1]  # a freed id comes again
        assert removed == [True, False, False]
        assert known == {0: [0, 1], 1: [0], 2: [1]}


def some_ranks_alone() -> list[int]:
    launched = int(os.environ["HOROVOD_RANK"])
    hvd.init(comm=[2, 0] if launched != 1 else [1])
    total = hvd.allreduce(np.array([launched + 1]), op=hvd.Sum)
    return [hvd.rank(), hvd.size(), int(total[0])]


def test_a_list_of_ranks_makes_a_world_of_them_in_that_order() -> None:
    assert run(some_ranks_alone, num_proc=3) == [[1, 2, 4], [0, 1, 2], [0, 2, 4]]


def one_leaves() -> list[tuple[str, str]]:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 1:
        hvd.shutdown()
        return [outcome(hvd.allreduce, ones())]
    waiting = outcome(hvd.allreduce, ones(), name="gradient")
    return [waiting, outcome(hvd.allreduce, ones()), outcome(hvd.rank)]


def test_a_rank_that_leaves_ends_the_operations_of_the_others() -> None:
    (waiting, next_one, rank), (left,) = run(one_leaves, num_proc=2)
    for kind, message in (waiting, next_one):
        assert kind == "HorovodInternalError"
        assert "has been shut down: rank 1 (localhost) left" in message
    assert rank == ("", "0")
    assert left[0] == "HorovodInternalError"
    assert NOT_YET in left[1]


def one_raises() -> tuple[str, str]:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 1:
        raise KeyError("a bug")
    return outcome(hvd.allreduce, ones(), name="gradient")


def test_an_exception_on_one_rank_reaches_the_caller_of_run() -> None:
    with pytest.raises(RuntimeError, match="rank 1") as failed:
        run(one_raises, num_proc=2)
    assert isinstance(failed.value.__cause__, KeyError)


def same_name_twice() -> tuple[str, str]:
    hvd.init()
    hvd.barrier()
    found = ("", "")
    if hvd.rank() == 0:
        first = hvd.allreduce_async(ones(), name="gradient")
        found = outcome(hvd.allreduce_async, ones(), name="gradient")
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(ones(), name="gradient")
    hvd.synchronize(first)
    return found


def test_a_name_in_flight_cannot_be_used_again() -> None:
    kind, message = run(same_name_twice, num_proc=2)[0]
    assert kind == "ValueError"
    assert "allreduce 'gradient'" in message
    assert "the same name as another tensor that is currently being processed" in message
