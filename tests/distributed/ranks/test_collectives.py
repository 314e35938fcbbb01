"""The collectives give what their definitions say, for all forms of tensors."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.distributed as dist

from sirtaki.core.errors import MismatchError


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def values(of: int, dtype: torch.dtype, shape: tuple[int, ...] = (3, 5)) -> torch.Tensor:
    """Small whole numbers, other ones on each rank."""
    made = torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(of + 1))
    if dtype.is_complex:
        return torch.complex(made.double(), made.flip(0).double()).to(dtype)
    return made.to(dtype)


def everyones(dtype: torch.dtype, shape: tuple[int, ...] = (3, 5)) -> torch.Tensor:
    return torch.stack([values(of, dtype, shape) for of in range(size())])


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OPERATORS = {
    "SUM": lambda all_of: all_of.sum(0),
    "PRODUCT": lambda all_of: all_of.prod(0),
    "MIN": lambda all_of: all_of.amin(0),
    "MAX": lambda all_of: all_of.amax(0),
    "AVG": lambda all_of: all_of.double().mean(0),
}
BITWISE = {
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_all_reduce_applies_every_operator(name: str, dtype: torch.dtype) -> None:
    tensor = values(rank(), dtype)
    wanted = OPERATORS[name](everyones(dtype)).to(dtype)
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
    torch.testing.assert_close(tensor, wanted)


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
@pytest.mark.parametrize("name", BITWISE)
def test_bits_are_combined(name: str, dtype: torch.dtype) -> None:
    tensor = values(rank(), dtype)
    wanted = values(0, dtype)
    for of in range(1, size()):
        wanted = BITWISE[name](wanted, values(of, dtype))
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
    assert torch.equal(tensor, wanted)


def test_the_bits_of_floats_cannot_be_combined() -> None:
    for name in BITWISE:
        with pytest.raises(ValueError, match="needs integers or bools"):
            dist.all_reduce(torch.ones(2), op=getattr(dist.ReduceOp, name))


@pytest.mark.parametrize("factor", [0.5, torch.tensor([2.0])], ids=("number", "tensor"))
def test_premul_sum_multiplies_first(factor: Any) -> None:
    tensor = torch.tensor([rank() + 1.0, 1.0])
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
    total = size() * (size() + 1) / 2
    assert torch.equal(tensor, float(factor) * torch.tensor([total, float(size())]))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_are_summed(dtype: torch.dtype) -> None:
    tensor = values(rank(), dtype)
    dist.all_reduce(tensor)
    torch.testing.assert_close(tensor, everyones(dtype).sum(0))


def test_complex_numbers_reach_the_group_as_what_they_are() -> None:
    dtype, group = torch.complex64, dist.group.WORLD
    assert group is not None
    options = dist.AllreduceOptions()
    conjugate = values(rank(), dtype).conj()
    group.allreduce([conjugate], options).wait()
    torch.testing.assert_close(conjugate, everyones(dtype).sum(0).conj())
    options.reduceOp = dist.ReduceOp.PRODUCT
    product = values(rank(), dtype)
    group.allreduce([product], options).wait()
    torch.testing.assert_close(product, everyones(dtype).prod(0))
    options.reduceOp = dist.ReduceOp.MIN
    with pytest.raises(ValueError, match="no minimum"):
        group.allreduce([product], options)


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_unsigned_integers_are_summed(dtype: torch.dtype) -> None:
    tensor = values(rank(), dtype)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, everyones(torch.int64).sum(0).to(dtype))


LAYOUTS = {
    "contiguous": lambda: torch.full((4, 3), float(rank())),
    "transposed": lambda: torch.full((3, 4), float(rank())).t(),
    "strided": lambda: torch.full((8, 3), float(rank()))[::2],
    "scalar": lambda: torch.tensor(float(rank())),
    "empty": lambda: torch.zeros(0, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_reduced_and_broadcast_in_place(layout: str) -> None:
    reduced, sent = LAYOUTS[layout](), LAYOUTS[layout]()
    dist.all_reduce(reduced)
    assert torch.equal(reduced, torch.full(reduced.shape, size() * (size() - 1) / 2))
    dist.broadcast(sent, src=size() - 1)
    assert torch.equal(sent, torch.full(sent.shape, size() - 1.0))


MOVED = [torch.complex64, torch.float8_e4m3fn, torch.uint16, torch.bool, torch.bfloat16]


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_what_only_moves_may_have_any_type(dtype: torch.dtype) -> None:
    def mine(of: int) -> torch.Tensor:
        return values(of, torch.complex64 if dtype.is_complex else torch.float32).to(dtype)

    gathered = [torch.zeros_like(mine(0)) for _ in range(size())]
    dist.all_gather(gathered, mine(rank()))
    sent = mine(rank())
    dist.broadcast(sent, src=0)
    for of, found in enumerate(gathered):
        assert torch.equal(found.view(torch.uint8), mine(of).view(torch.uint8))
    assert torch.equal(sent.view(torch.uint8), mine(0).view(torch.uint8))


def test_rooted_operations_serve_the_root() -> None:
    root = size() - 1
    reduced = values(rank(), torch.float32)
    dist.reduce(reduced, dst=root)
    parts = [torch.zeros(3, 5) for _ in range(size())] if rank() == root else None
    dist.gather(values(rank(), torch.float32), parts, dst=root)
    received = torch.zeros(3, 5)
    scattered = list(everyones(torch.float32)) if rank() == root else None
    dist.scatter(received, scattered, src=root)
    assert torch.equal(received, values(rank(), torch.float32))
    if rank() == root:
        assert parts is not None
        assert torch.equal(reduced, everyones(torch.float32).sum(0))
        assert torch.equal(torch.stack(parts), everyones(torch.float32))


@pytest.mark.parametrize("name", OPERATORS)
def test_reduce_scatter_gives_each_rank_its_part(name: str) -> None:
    shape = (size() * 4, 3)
    wanted = OPERATORS[name](everyones(torch.float32, shape)).float().chunk(size())[rank()]
    operator = getattr(dist.ReduceOp, name)
    single, listed = torch.zeros(4, 3), torch.zeros(4, 3)
    mine = values(rank(), torch.float32, shape)
    dist.reduce_scatter_tensor(single, mine, op=operator)
    dist.reduce_scatter(listed, list(mine.chunk(size())), op=operator)
    torch.testing.assert_close(single, wanted)
    torch.testing.assert_close(listed, wanted)


def test_all_to_all_exchanges_uneven_parts() -> None:
    sent = [torch.full((to + 1, 2), 10.0 * rank() + to) for to in range(size())]
    received = [torch.zeros(rank() + 1, 2) for _ in range(size())]
    dist.all_to_all(received, sent)
    joined = torch.zeros(size() * (rank() + 1), 2)
    rows = [to + 1 for to in range(size())]
    dist.all_to_all_single(joined, torch.cat(sent), [rank() + 1] * size(), rows)
    wanted = [torch.full((rank() + 1, 2), 10.0 * of + rank()) for of in range(size())]
    assert torch.equal(torch.cat(received), torch.cat(wanted))
    assert torch.equal(joined, torch.cat(wanted))


@pytest.mark.parametrize("name", ["_allgather_base", "allgather_into_tensor_coalesced"])
def test_pytorch_gathers_by_older_names(name: str) -> None:
    out, mine = torch.zeros(size() * 2), torch.full((2,), float(rank()))
    arguments = ([out], [mine]) if name.endswith("coalesced") else (out, mine)
    getattr(dist.group.WORLD, name)(*arguments).wait()
    assert out.tolist() == [float(of) for of in range(size()) for _ in range(2)]


@pytest.mark.parametrize("name", ["_reduce_scatter_base", "reduce_scatter_tensor_coalesced"])
def test_pytorch_scatters_sums_by_older_names(name: str) -> None:
    out, mine = torch.zeros(2), torch.arange(2.0 * size())
    arguments = ([out], [mine]) if name.endswith("coalesced") else (out, mine)
    getattr(dist.group.WORLD, name)(*arguments).wait()
    assert out.tolist() == [2.0 * rank() * size(), (2.0 * rank() + 1) * size()]


def test_pytorch_exchanges_by_an_older_name() -> None:
    out, mine = torch.zeros(size()), torch.arange(float(size())) + 10 * rank()
    options = torch._C._distributed_c10d.AllToAllOptions()
    dist.group.WORLD.alltoall_base(out, mine, [], [], options).wait()
    assert out.tolist() == [10.0 * of + rank() for of in range(size())]


def test_sparse_tensors_are_summed() -> None:
    tensor = torch.sparse_coo_tensor([[rank(), size()]], [1.0, 2.0], (size() + 1,))
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [1.0] * size() + [2.0 * size()]


def test_objects_of_any_kind_are_exchanged() -> None:
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, {"rank": rank(), "text": "x" * rank()})
    assert found == [{"rank": of, "text": "x" * of} for of in range(size())]
    sent = [rank(), "first"]
    dist.broadcast_object_list(sent, src=0)
    assert sent == [0, "first"]


def test_an_operation_may_go_on_while_the_program_does() -> None:
    tensors = [torch.full((1000,), float(rank() + n)) for n in range(5)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    for n, (future, tensor) in enumerate(zip(futures, tensors, strict=True)):
        assert future.wait()[0] is tensor
        assert tensor[0] == size() * (size() - 1) / 2 + n * size()
    assert all(work.is_completed() and work.is_success() for work in works)


def test_coalesced_operations_are_one() -> None:
    tensors = [torch.full((n + 1,), float(rank())) for n in range(4)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(bool((tensor == size() * (size() - 1) / 2).all()) for tensor in tensors)


def test_groups_are_in_flight_side_by_side() -> None:
    everyone = list(range(size()))
    groups = [dist.new_group(everyone) for _ in range(3)]
    tensors = [torch.full((100_000,), float(rank())) for _ in groups]
    # In another order on each rank.
    order = [(n + rank()) % len(groups) for n in range(len(groups))]
    works = [dist.all_reduce(tensors[n], group=groups[n], async_op=True) for n in order]
    for work in works:
        work.wait()
    assert all(tensor[0] == size() * (size() - 1) / 2 for tensor in tensors)
    for group in groups:
        dist.destroy_process_group(group)


def test_a_group_that_was_destroyed_says_so() -> None:
    group = dist.new_group(list(range(size())))
    backend = group._get_backend(torch.device("cpu"))
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="the process group has been destroyed"):
        backend.barrier()


def test_only_members_use_a_group() -> None:
    alone = dist.new_group([0])
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=alone)
    assert tensor.item() == 1
    assert (alone is dist.GroupMember.NON_GROUP_MEMBER) == (rank() != 0)


@pytest.mark.skipif(
    torch.__version__ >= (2, 15),
    reason="the next new_group of all ranks hangs in PyTorch 2.15, over Gloo too",
)
def test_a_group_is_made_by_its_members_alone() -> None:
    if rank() != 0:
        return
    alone = dist.new_group([0], use_local_synchronization=True)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=alone)
    assert tensor.item() == 1
    dist.destroy_process_group(alone)


def test_a_group_of_another_backend_stands_beside_ours() -> None:
    gloo = dist.new_group(list(range(size())), backend="gloo")
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=gloo)
    assert tensor.item() == size()
    dist.destroy_process_group(gloo)


def test_shapes_that_differ_are_an_error_on_all_ranks() -> None:
    if size() == 1:
        pytest.skip("one rank cannot differ from itself")
    with pytest.raises(MismatchError, match="rank 0 has"):
        dist.all_reduce(torch.ones(3 + (rank() == 0)))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0] == size()


def test_dtypes_that_differ_are_an_error_on_all_ranks() -> None:
    if size() == 1:
        pytest.skip("one rank cannot differ from itself")
    with pytest.raises(MismatchError, match="float64"):
        dist.broadcast(torch.ones(3, dtype=torch.float64 if rank() else torch.float32), 0)


def test_wrong_arguments_are_found_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="elements"):
        dist.all_gather_into_tensor(torch.zeros(5 * size() + 1), torch.zeros(5))
    with pytest.raises(ValueError, match="one tensor for each"):
        dist.all_gather([torch.zeros(1)] * (size() + 1), torch.zeros(1))
    with pytest.raises(ValueError, match="can be sent"):
        dist.all_reduce(torch.zeros(2, dtype=torch.float8_e5m2))
    dist.barrier()


CALLS = {
    "all_reduce": lambda tensor: dist.all_reduce(tensor),
    "broadcast": lambda tensor: dist.broadcast(tensor, 0),
    "all_gather": lambda tensor: dist.all_gather([torch.zeros(2) for _ in range(size())], tensor),
    "all_to_all": lambda tensor: dist.all_to_all_single(torch.zeros(2 * size()), tensor),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_without_memory_is_refused_before_anything_is_sent(name: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match="meta"):
        CALLS[name](torch.zeros(2, device="meta"))
    dist.barrier()


def test_a_tensor_lives_until_its_operation_is_done() -> None:
    outputs = [torch.zeros(50_000 * size()) for _ in range(20)]
    works = [
        dist.all_gather_into_tensor(
            output, torch.full((50_000,), float(rank() + turn)), async_op=True
        )
        for turn, output in enumerate(outputs)
    ]
    gc.collect()
    reused = [torch.full((50_000,), -1.0) for _ in outputs]
    for turn, (work, output) in enumerate(zip(works, outputs, strict=True)):
        work.wait()
        parts = [part.unique().tolist() for part in output.chunk(size())]
        assert parts == [[float(of + turn)] for of in range(size())]
    assert all(bool((other == -1).all()) for other in reused)
