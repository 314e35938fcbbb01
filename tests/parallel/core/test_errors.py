"""Errors: their class, their moment, and that the job goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.operations import handles


@pytest.fixture
def several_ranks() -> None:
    if hvd.size() == 1:
        pytest.skip("needs ranks that can disagree")


@pytest.fixture(autouse=True)
def job_goes_on() -> Any:
    yield
    np.testing.assert_array_equal(hvd.allreduce(np.ones(3), op=hvd.Sum), np.full(3, hvd.size()))


def disagreeing(what: str) -> Callable[[], Any]:
    rank = hvd.rank()
    return {
        "tensor shapes": lambda: hvd.allreduce(np.ones(3 + rank)),
        "data types": lambda: hvd.allreduce(np.ones(3, (np.float32, np.int32)[rank % 2])),
        "reduce operations": lambda: hvd.allreduce(np.ones(3), op=(hvd.Sum, hvd.Max)[rank % 2]),
        "root ranks": lambda: hvd.broadcast(np.ones(3), root_rank=rank % 2),
        "scale factors": lambda: hvd.allreduce(np.ones(3), prescale_factor=1.0 + rank),
        "operations": lambda: (hvd.allreduce, hvd.allgather)[rank % 2](np.ones(3)),
        "numbers of tensors": lambda: hvd.grouped_allreduce([np.ones(3)] * (1 + rank)),
    }[what]


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize(
    "what",
    [
        "tensor shapes",
        "data types",
        "reduce operations",
        "root ranks",
        "scale factors",
        "operations",
        "numbers of tensors",
    ],
)
def test_a_mismatch_is_told_to_all_ranks_with_both_sides(what: str) -> None:
    with pytest.raises(hvd.MismatchError, match=f"different {what}.*: rank . has .*, rank . has "):
        disagreeing(what)()


def test_a_root_out_of_range_is_a_wrong_argument() -> None:
    with pytest.raises(ValueError, match="root rank 99"):
        hvd.broadcast(np.ones(3), root_rank=99)


def test_rows_cannot_be_gathered_from_a_scalar() -> None:
    with pytest.raises(ValueError, match="without dimensions"):
        hvd.allgather(np.ones(()))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: hvd.allreduce(np.ones(3, np.longdouble)), ValueError, "not supported"),
        (lambda: hvd.allreduce(np.ones(3, np.complex64), op=hvd.Min), ValueError, "an order"),
        (lambda: hvd.reduce(np.ones(3, np.complex128), 0, op=hvd.Max), ValueError, "an order"),
        (lambda: hvd.allreduce([1, 2]), TypeError, "list"),  # type: ignore[arg-type]
        (lambda: hvd.allreduce(np.ones(3), op=77), ValueError, "77"),
        (lambda: hvd.allreduce(np.ones(3), name=3), TypeError, "name"),  # type: ignore[arg-type]
        (lambda: hvd.allreduce(np.ones(3, np.int32), op=hvd.Adasum), ValueError, "floating"),
        (lambda: hvd.broadcast(np.ones(3), root_rank="0"), TypeError, "root_rank"),  # type: ignore[arg-type]
        (lambda: hvd.reducescatter(np.ones(())), ValueError, "without dimensions"),
        (lambda: hvd.alltoall(np.ones(9), [1] * 9), ValueError, "9 entries"),
        (lambda: hvd.alltoall(np.ones(9), [-1] * hvd.size()), ValueError, "negative"),
        (lambda: hvd.alltoall(np.ones(9), [10] * hvd.size()), ValueError, "sum to more"),
        (lambda: hvd.alltoall(np.ones(9), [1.5] * hvd.size()), ValueError, "integers"),
        (lambda: hvd.synchronize(10**9), ValueError, "handle"),
        (lambda: hvd.poll(10**9), ValueError, "handle"),
        (lambda: hvd.allreduce_(np.ones((3, 4)).T), ValueError, "contiguous"),
        (lambda: hvd.allreduce_(np.broadcast_to(np.ones(1), 1)), ValueError, "writable"),
        (
            lambda: hvd.allreduce(np.ones(3), process_set=hvd.ProcessSet([0])),
            ValueError,
            "not registered",
        ),
    ],
)
def test_a_wrong_argument_is_found_before_anything_is_sent(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.usefixtures("several_ranks")
def test_a_name_in_flight_cannot_be_used_again() -> None:
    if hvd.rank() == 0:
        first = hvd.allreduce_async(np.ones(3), name="twice", op=hvd.Sum)
        with pytest.raises(ValueError, match="same name"):
            hvd.allreduce_async(np.ones(3), name="twice", op=hvd.Sum)
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(np.ones(3), name="twice", op=hvd.Sum)
    np.testing.assert_array_equal(hvd.synchronize(first), np.full(3, hvd.size()))


@pytest.mark.usefixtures("several_ranks")
def test_operations_without_a_meaning_after_join_are_errors() -> None:
    if hvd.rank() == 0:
        hvd.join()
    else:
        with pytest.raises(hvd.HorovodInternalError, match="Join"):
            hvd.allgather(np.ones(3))
        hvd.join()


@pytest.mark.usefixtures("several_ranks")
def test_a_rank_outside_a_process_set_cannot_use_it() -> None:
    first = hvd.add_process_set([0])
    if hvd.rank() == 0:
        np.testing.assert_array_equal(hvd.allreduce(np.ones(3), process_set=first), np.ones(3))
    else:
        with pytest.raises(ValueError, match="not a member"):
            hvd.allreduce(np.ones(3), process_set=first)
    assert hvd.remove_process_set(first)


@pytest.mark.usefixtures("several_ranks")
def test_different_lists_for_one_process_set_are_an_error_on_all_ranks() -> None:
    with pytest.raises(hvd.MismatchError, match="lists of ranks"):
        hvd.add_process_set([hvd.rank()])


@pytest.mark.usefixtures("several_ranks")
def test_an_operation_that_failed_leaves_no_handle_behind() -> None:
    handle = hvd.allreduce_async(np.ones(3 + hvd.rank()))
    with pytest.raises(hvd.MismatchError):
        handles.synchronize(handle)
    assert handle not in handles._pending
