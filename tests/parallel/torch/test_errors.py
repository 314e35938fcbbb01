"""Mistakes are told as Horovod tells them, and the job goes on after them."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import sirtaki.torch as hvd

several = pytest.mark.skipif("hvd.size() == 1", reason="one rank cannot disagree with itself")


@pytest.fixture(autouse=True)
def the_job_goes_on() -> Iterator[None]:
    yield
    result = hvd.allreduce(torch.ones(2), op=hvd.Sum)
    assert result.tolist() == [hvd.size()] * 2


class TestRanksDisagree:
    """All ranks get the error, which tells what two of them asked for, and the job goes on."""

    pytestmark = several

    def expect(self, operation: str, what: str, of: Callable[[int], str], submit) -> None:
        """`of` says what a rank asked for; the error names any two ranks that differ."""
        with pytest.raises(hvd.MismatchError) as caught:
            hvd.synchronize(submit(hvd.rank()))
        assert isinstance(caught.value, hvd.HorovodInternalError)
        assert isinstance(caught.value, RuntimeError)
        pairs = itertools.combinations(range(hvd.size()), 2)
        assert str(caught.value) in {
            f"{operation}: the ranks asked for different {what}: "
            f"rank {a} has {of(a)}, rank {b} has {of(b)}"
            for a, b in pairs
            if of(a) != of(b)
        }

    def test_on_the_shape_of_an_allreduce(self) -> None:
        self.expect(
            "allreduce 's'",
            "tensor shapes",
            lambda rank: f"[{2 + rank}]",
            lambda rank: hvd.allreduce_async(torch.ones(2 + rank), name="s"),
        )

    def test_on_the_number_of_dimensions(self) -> None:
        self.expect(
            "allreduce 'd'",
            "tensor shapes",
            lambda rank: str([1] * (rank + 1)),
            lambda rank: hvd.allreduce_async(torch.ones([1] * (rank + 1)), name="d"),
        )

    def test_on_the_dtype_of_an_allreduce(self) -> None:
        dtypes = [torch.float32, torch.int32]
        self.expect(
            "allreduce 't'",
            "data types",
            lambda rank: ["float32", "int32"][rank % 2],
            lambda rank: hvd.allreduce_async(torch.ones(2, dtype=dtypes[rank % 2]), name="t"),
        )

    def test_on_the_op(self) -> None:
        ops = [hvd.Sum, hvd.Average]
        self.expect(
            "allreduce 'o'",
            "reduce operations",
            lambda rank: ["Sum", "Average"][rank % 2],
            lambda rank: hvd.allreduce_async(torch.ones(2), op=ops[rank % 2], name="o"),
        )

    def test_on_a_scale(self) -> None:
        self.expect(
            "allreduce 'f'",
            "scale factors",
            lambda rank: f"prescale {rank + 1}.000000 and postscale 1.000000",
            lambda rank: hvd.allreduce_async(
                torch.ones(2), op=hvd.Sum, prescale_factor=1.0 + rank, name="f"
            ),
        )

    def test_on_the_root_of_a_broadcast(self) -> None:
        self.expect(
            "broadcast 'r'",
            "root ranks",
            lambda rank: str(rank % 2),
            lambda rank: hvd.broadcast_async(torch.ones(2), rank % 2, name="r"),
        )

    def test_on_the_shape_of_a_broadcast(self) -> None:
        self.expect(
            "broadcast 'b'",
            "tensor shapes",
            lambda rank: f"[{2 + rank}]",
            lambda rank: hvd.broadcast_async(torch.ones(2 + rank), 0, name="b"),
        )

    def test_on_other_dimensions_of_an_allgather(self) -> None:
        self.expect(
            "allgather 'g'",
            "tensor shapes (only the first dimension may differ)",
            lambda rank: f"[2, {2 + rank}]",
            lambda rank: hvd.allgather_async(torch.ones(2, 2 + rank), name="g"),
        )

    def test_on_other_dimensions_of_an_alltoall(self) -> None:
        self.expect(
            "alltoall 'a'",
            "tensor shapes (only the first dimension may differ)",
            lambda rank: f"[*, {2 + rank}]",
            lambda rank: hvd.alltoall_async(torch.ones(hvd.size(), 2 + rank), name="a"),
        )

    def test_on_the_shape_of_a_reducescatter(self) -> None:
        self.expect(
            "reducescatter 'rs'",
            "tensor shapes",
            lambda rank: f"[{2 + rank}, 2]",
            lambda rank: hvd.reducescatter_async(torch.ones(2 + rank, 2), name="rs"),
        )

    def test_on_the_kind_of_operation(self) -> None:
        """The names differ by the operation, so neither is ever complete: unnamed ones meet."""
        with pytest.raises(hvd.MismatchError) as caught:
            hvd.synchronize(
                hvd.allreduce_async(torch.ones(2))
                if hvd.rank() % 2
                else hvd.allgather_async(torch.ones(2))
            )
        assert re.fullmatch(
            r"(allgather|allreduce) 'noname\.\d+': the ranks asked for different operations: "
            r"rank \d has (allgather, rank \d has allreduce|allreduce, rank \d has allgather)",
            str(caught.value),
        )

    def test_in_place_as_well(self) -> None:
        tensor = torch.ones(2 + hvd.rank())
        self.expect(
            "allreduce 'p'",
            "tensor shapes",
            lambda rank: f"[{2 + rank}]",
            lambda _: hvd.allreduce_async_(tensor, name="p"),
        )

    def test_in_a_group(self) -> None:
        self.expect(
            "allreduce 'group'",
            "tensor shapes of tensor 1",
            lambda rank: f"[{2 + rank}]",
            lambda rank: hvd.grouped_allreduce_async(
                [torch.ones(2), torch.ones(2 + rank)], name="group"
            ),
        )


@pytest.mark.parametrize("operation", [hvd.allgather, hvd.alltoall, hvd.reducescatter])
@pytest.mark.parametrize("wants_grad", [False, True])
def test_parts_of_a_number_without_dimensions_are_a_wrong_argument(
    operation, wants_grad: bool
) -> None:
    with pytest.raises(ValueError, match="a tensor without dimensions"):
        operation(torch.tensor(1.0, requires_grad=wants_grad))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_adasum_cannot_be_scattered(kind: type[Exception], dtype: torch.dtype) -> None:
    with pytest.raises(kind, match="Adasum") as told:
        hvd.reducescatter(torch.ones(4, dtype=dtype), op=hvd.Adasum)
    assert not isinstance(told.value, hvd.HorovodInternalError)


def test_a_name_can_be_under_way_only_once() -> None:
    # Rank 0 gives its second tensor only after all others were refused theirs.
    handle = None
    if hvd.rank() != 0 or hvd.size() == 1:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
        if hvd.size() > 1:
            with pytest.raises(ValueError, match="twice"):
                hvd.allreduce_async(torch.ones(2), name="twice")
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
    assert hvd.synchronize(handle).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "splits",
    [
        lambda size: torch.ones(size),
        lambda size: torch.ones(size, dtype=torch.int64),
        lambda size: torch.ones(size, 1, dtype=torch.int32),
        lambda size: [1] * (size + 1),
        lambda size: [2] + [1] * (size - 1),
        lambda size: [-1] + [1] * (size - 1),
        lambda size: ["one"] * size,
        lambda size: 3,
    ],
    ids=["floats", "int64", "2-D", "too many", "one row too many", "negative", "words", "a number"],
)
def test_wrong_splits_are_told_at_the_call(splits) -> None:
    with pytest.raises(ValueError, match="split"):
        hvd.alltoall_async(torch.ones(hvd.size()), splits(hvd.size()))


@several
def test_rows_that_cannot_be_shared_out_evenly_are_told_at_the_call() -> None:
    with pytest.raises(ValueError, match="split"):
        hvd.alltoall_async(torch.ones(hvd.size() + 1))


def test_sparse_tensors_are_refused_where_they_are_not_meant() -> None:
    tensor = torch.eye(3).to_sparse()
    for operation in (hvd.allreduce_async, hvd.allreduce_async_, hvd.allgather_async):
        with pytest.raises(ValueError, match="sparse"):
            operation(tensor)
    with pytest.raises(ValueError, match="sparse"):
        hvd.sparse_allreduce_async(torch.eye(3), name="dense", op=hvd.Sum)
    with pytest.raises(ValueError, match="op"):
        hvd.sparse_allreduce_async(tensor, name="max", op=hvd.Max)


def test_only_tensors_are_taken() -> None:
    for operation in (hvd.allreduce_async, hvd.allreduce_async_, hvd.allgather_async):
        with pytest.raises(TypeError, match="list"):
            operation([1.0, 2.0])
    with pytest.raises(TypeError, match="int"):
        hvd.broadcast_async_(3, root_rank=0)


def test_op_and_average_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="average"):
        hvd.allreduce(torch.ones(2), average=True, op=hvd.Sum)


def test_an_unknown_op_is_told_at_the_call() -> None:
    with pytest.raises(ValueError, match="op"):
        hvd.allreduce_async(torch.ones(2), op=17)


def test_a_root_that_does_not_exist_fails() -> None:
    told = f"root rank {hvd.size()} is not one of the {hvd.size()} ranks of the process set"
    with pytest.raises(ValueError, match=told):
        hvd.broadcast(torch.ones(2), root_rank=hvd.size())


def test_a_name_is_taken_until_the_operation_is_waited_for_even_if_it_is_done() -> None:
    handle = hvd.allreduce_async(torch.ones(2), name="taken")
    time.sleep(0.05)
    with pytest.raises(ValueError, match="same name"):
        hvd.allreduce_async(torch.ones(2), name="taken")
    hvd.synchronize(handle)
    assert hvd.allreduce(torch.ones(2), name="taken").tolist() == [1, 1]


def test_a_name_is_free_once_poll_says_so() -> None:
    handle = hvd.allreduce_async(torch.ones(2), name="polled")
    while not hvd.poll(handle):
        time.sleep(0.001)
    hvd.synchronize(hvd.allreduce_async(torch.ones(2), name="polled"))


def test_names_of_forgotten_operations_are_free_after_others_were_waited_for() -> None:
    forgotten = hvd.allreduce_async(torch.ones(2), name="forgotten")
    hvd.barrier()
    hvd.synchronize(hvd.allreduce_async(torch.ones(2), name="forgotten"))
    hvd.synchronize(forgotten)


def test_a_handle_can_be_used_only_once() -> None:
    handle = hvd.allreduce_async(torch.ones(2))
    hvd.synchronize(handle)
    with pytest.raises(ValueError, match="handle"):
        hvd.synchronize(handle)
    with pytest.raises(ValueError, match="handle"):
        hvd.poll(handle)
