from __future__ import annotations

import time

import pytest
import torch

import sirtaki.torch as hvd

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *UNSIGNED]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def of_rank(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = (3, 4)) -> torch.Tensor:
    """Small whole numbers that tell ranks and positions apart: sums are exact in any type."""
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) % 5 + rank
    return numbers.to(dtype)


def mine(dtype: torch.dtype, shape: tuple[int, ...] = (3, 4)) -> torch.Tensor:
    return of_rank(hvd.rank(), dtype, shape)


def total(dtype: torch.dtype, shape: tuple[int, ...] = (3, 4)) -> torch.Tensor:
    ranks = [of_rank(rank, torch.int64, shape) for rank in range(hvd.size())]
    return torch.stack(ranks).sum(0).to(dtype)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (17,), (3, 4), (2, 3, 5)], ids=str)
def test_sum_is_exact(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    result = hvd.allreduce(mine(dtype, shape), op=hvd.Sum)
    assert result.dtype == dtype
    assert torch.equal(result, total(dtype, shape))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product], ids=["min", "max", "product"])
def test_min_max_and_product_are_elementwise(dtype: torch.dtype, op: int) -> None:
    ranks = torch.stack([of_rank(rank, torch.int64) for rank in range(hvd.size())])
    expected = {
        hvd.Min: ranks.amin(0),
        hvd.Max: ranks.amax(0),
        hvd.Product: ranks.prod(0),
    }[op]
    assert torch.equal(hvd.allreduce(mine(dtype), op=op), expected.to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_average_is_what_happens_by_default(dtype: torch.dtype) -> None:
    values = mine(dtype) * hvd.size()
    assert torch.equal(hvd.allreduce(values), total(dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_average_of_integers_is_truncated_toward_zero(dtype: torch.dtype) -> None:
    size = hvd.size()
    values = torch.tensor([0, 1, -1, size, -size, 3 * size + 1], dtype=dtype)
    only_root = values if hvd.rank() == 0 else torch.zeros_like(values)
    one = 1 // size
    expected = torch.tensor([0, one, -one, 1, -1, 3 + one], dtype=dtype)
    assert torch.equal(hvd.allreduce(only_root, op=hvd.Average), expected)


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_unsigned_integers_have_an_order_of_their_own(dtype: torch.dtype) -> None:
    large = torch.iinfo(dtype).max
    values = torch.tensor([large if hvd.rank() == 0 else 1], dtype=dtype)
    assert hvd.allreduce(values, op=hvd.Max).tolist() == [large]
    assert hvd.allreduce(values, op=hvd.Min).tolist() == [large if hvd.size() == 1 else 1]


def test_sum_of_booleans_is_or_and_product_is_and() -> None:
    rank, last = hvd.rank(), hvd.size() - 1
    values = torch.tensor([True, False, rank == 0, rank == last])
    one_rank = last == 0
    assert hvd.allreduce(values, op=hvd.Sum).tolist() == [True, False, True, True]
    assert hvd.allreduce(values, op=hvd.Product).tolist() == [True, False, one_rank, one_rank]
    assert hvd.allreduce(values, op=hvd.Max).tolist() == [True, False, True, True]
    assert hvd.allreduce(values, op=hvd.Min).tolist() == [True, False, one_rank, one_rank]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_prescale_multiplies_before_and_postscale_after(dtype: torch.dtype) -> None:
    result = hvd.allreduce(mine(dtype), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(result, total(dtype) * 2)


def test_scaled_integers_are_truncated_before_and_after() -> None:
    ones = torch.tensor([1, 2, 3, -3], dtype=torch.int32)
    result = hvd.allreduce(ones, op=hvd.Sum, prescale_factor=0.5)
    assert torch.equal(result, torch.tensor([0, 1, 1, -1], dtype=torch.int32) * hvd.size())
    result = hvd.allreduce(ones, op=hvd.Max, postscale_factor=0.5)
    assert result.tolist() == [0, 1, 1, -1]


def test_sixteen_bit_floats_are_added_in_single_precision() -> None:
    # 2048 + 1 is 2048 in float16, so adding in float16 would lose the ones of all other ranks.
    value = torch.tensor([2048.0 if hvd.rank() == 0 else 1.0], dtype=torch.float16)
    expected = torch.tensor([2048.0 + hvd.size() - 1]).to(torch.float16)
    assert torch.equal(hvd.allreduce(value, op=hvd.Sum), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 1000, 300_001])
def test_all_ranks_get_the_same_bits_every_time(dtype: torch.dtype, count: int) -> None:
    generator = torch.Generator().manual_seed(hvd.rank())
    values = torch.randn(count, generator=generator).to(dtype)
    first = hvd.allreduce(values)
    second = hvd.allreduce(values)
    bits = first.view(torch.int16 if dtype == torch.bfloat16 else torch.int32)
    everywhere = hvd.allgather(bits).view(hvd.size(), count)
    assert (everywhere == everywhere[0]).all()
    assert torch.equal(first, second)


def test_the_deprecated_average_argument_chooses_between_average_and_sum() -> None:
    values = torch.full((2,), float(hvd.rank()))
    ranks = sum(range(hvd.size()))
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(values, average=False).tolist() == [ranks] * 2
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(values, average=True).tolist() == [ranks / hvd.size()] * 2


def test_the_functional_form_leaves_its_input_alone() -> None:
    values = mine(torch.float32)
    before = values.clone()
    hvd.allreduce(values, op=hvd.Sum)
    assert torch.equal(values, before)


def test_in_place_returns_the_tensor_it_was_given() -> None:
    values = mine(torch.float32)
    result = hvd.allreduce_(values, op=hvd.Sum)
    assert result is values
    assert torch.equal(values, total(torch.float32))


def test_a_transposed_tensor_is_reduced_by_position() -> None:
    values = mine(torch.float32).t()
    assert torch.equal(hvd.allreduce(values, op=hvd.Sum), total(torch.float32).t())


@pytest.mark.parametrize("view", [lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:, 1:3]])
def test_in_place_fills_a_view_and_nothing_around_it(view) -> None:
    base = mine(torch.float32, (4, 6))
    expected = base.clone()
    view(expected).copy_(view(total(torch.float32, (4, 6))))
    values = view(base)
    assert hvd.allreduce_(values, op=hvd.Sum) is values
    assert torch.equal(base, expected)


def test_ranks_may_give_the_same_values_in_different_memory_formats() -> None:
    values = mine(torch.float32, (2, 3, 4, 5))
    if hvd.rank() == 0:
        values = values.to(memory_format=torch.channels_last)
    hvd.allreduce_(values, op=hvd.Sum)
    assert torch.equal(values, total(torch.float32, (2, 3, 4, 5)))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)], ids=str)
def test_a_tensor_without_elements_keeps_its_shape(shape: tuple[int, ...]) -> None:
    assert hvd.allreduce(torch.empty(shape)).shape == shape


def test_a_parameter_is_reduced_like_a_tensor() -> None:
    parameter = torch.nn.Parameter(mine(torch.float32))
    result = hvd.allreduce_(parameter, op=hvd.Sum)
    assert result is parameter
    assert torch.equal(parameter.detach(), total(torch.float32))


def test_named_operations_may_be_submitted_in_any_order() -> None:
    names = [f"tensor.{i}" for i in range(8)]
    if hvd.rank() % 2:
        names.reverse()
    handles = {
        name: hvd.allreduce_async(torch.tensor([float(name[-1])]), name=name, op=hvd.Sum)
        for name in names
    }
    for name, handle in handles.items():
        assert hvd.synchronize(handle).item() == float(name[-1]) * hvd.size()


def test_many_operations_may_be_under_way_at_once() -> None:
    tensors = [mine(torch.float32) * i for i in range(200)]
    handles = [hvd.allreduce_async_(t, op=hvd.Sum) for t in tensors]
    for i, handle in enumerate(handles):
        assert hvd.synchronize(handle) is tensors[i]
        assert torch.equal(tensors[i], total(torch.float32) * i)


def test_poll_says_no_at_first() -> None:
    handle = hvd.allreduce_async(torch.ones(4))
    time.sleep(0.05)
    assert not hvd.poll(handle)
    hvd.synchronize(handle)


def test_a_tensor_that_is_negated_when_read_is_reduced_as_it_reads() -> None:
    negated = torch._neg_view(torch.ones(3))
    assert hvd.allreduce(negated, op=hvd.Sum).tolist() == [-hvd.size()] * 3
    hvd.allreduce_(negated, op=hvd.Sum)
    assert negated.tolist() == [-hvd.size()] * 3
    assert hvd.broadcast(torch._neg_view(torch.ones(3)), 0).tolist() == [-1] * 3


def test_poll_tells_when_synchronize_returns_at_once() -> None:
    handle = hvd.allreduce_async(mine(torch.float32))
    while not hvd.poll(handle):
        pass
    hvd.synchronize(handle)


def test_a_name_can_be_used_again_once_its_operation_is_done() -> None:
    for i in range(5):
        assert hvd.allreduce(torch.tensor(float(i)), name="again").item() == i


def test_the_tensor_may_be_dropped_before_the_operation_completes() -> None:
    handles = [hvd.allreduce_async(mine(torch.float32, (1000,)), op=hvd.Sum) for _ in range(20)]
    for handle in handles:
        assert torch.equal(hvd.synchronize(handle), total(torch.float32, (1000,)))


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression_restores_the_type(compression: type) -> None:
    for dtype in (torch.float32, torch.float64, torch.int32):
        result = hvd.allreduce(mine(dtype), compression=compression, op=hvd.Sum)
        assert result.dtype == dtype
        assert torch.equal(result, total(dtype))


def test_compression_by_fp16_is_that_of_its_type() -> None:
    third = torch.tensor([1.0 / 3.0])
    result = hvd.allreduce(third, compression=hvd.Compression.fp16)
    assert result.item() == third.half().float().item()


def test_compression_can_be_defined_by_the_user() -> None:
    class Halves:
        @staticmethod
        def compress(tensor):
            return tensor / 2, 2

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * ctx

    result = hvd.allreduce(mine(torch.float32), compression=Halves, op=hvd.Sum)
    assert torch.equal(result, total(torch.float32))


class TestGroups:
    def test_each_tensor_is_reduced(self) -> None:
        shapes = [(2,), (3, 4), (), (0, 2)]
        results = hvd.grouped_allreduce(
            [mine(torch.float32, shape) for shape in shapes], op=hvd.Sum, name="group"
        )
        for shape, result in zip(shapes, results, strict=True):
            assert torch.equal(result, total(torch.float32, shape))

    def test_members_may_differ_in_type(self) -> None:
        dtypes = [torch.float32, torch.float16, torch.int64]
        results = hvd.grouped_allreduce([mine(dtype) for dtype in dtypes], op=hvd.Sum)
        for dtype, result in zip(dtypes, results, strict=True):
            assert torch.equal(result, total(dtype))

    def test_in_place_returns_the_tensors_it_was_given(self) -> None:
        tensors = [mine(torch.float32), mine(torch.float32, (5, 2)).t()]
        results = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
        assert all(a is b for a, b in zip(results, tensors, strict=True))
        assert torch.equal(tensors[0], total(torch.float32))
        assert torch.equal(tensors[1], total(torch.float32, (5, 2)).t())

    def test_a_group_has_one_handle(self) -> None:
        handle = hvd.grouped_allreduce_async((mine(torch.float32), mine(torch.float64)))
        results = hvd.synchronize(handle)
        assert [result.dtype for result in results] == [torch.float32, torch.float64]

    def test_in_place_and_asynchronous(self) -> None:
        tensors = [mine(torch.float32), mine(torch.float32)]
        hvd.synchronize(hvd.grouped_allreduce_async_(tensors, op=hvd.Sum))
        assert all(torch.equal(t, total(torch.float32)) for t in tensors)

    def test_a_group_of_one_gives_a_list_of_one(self) -> None:
        (result,) = hvd.grouped_allreduce([mine(torch.float32)], op=hvd.Sum)
        assert torch.equal(result, total(torch.float32))

    def test_compression_applies_to_each_member(self) -> None:
        results = hvd.grouped_allreduce(
            [mine(torch.float32), mine(torch.int32)],
            compression=hvd.Compression.fp16,
            op=hvd.Sum,
        )
        assert torch.equal(results[0], total(torch.float32))
        assert torch.equal(results[1], total(torch.int32))


class TestSparse:
    def tensor(self) -> torch.Tensor:
        """Row 0 is everybody's, row rank + 1 this rank's alone."""
        indices = torch.tensor([[0, hvd.rank() + 1]])
        values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        shape = (hvd.size() + 1, 2)
        return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)

    def expected(self) -> torch.Tensor:
        dense = torch.tensor([[3.0, 4.0]]).repeat(hvd.size() + 1, 1)
        dense[0] = torch.tensor([1.0, 2.0]) * hvd.size()
        return dense

    def test_entries_at_the_same_place_are_added(self) -> None:
        result = hvd.sparse_allreduce_async(self.tensor(), name="sparse", op=hvd.Sum)()
        assert result.is_sparse
        assert torch.equal(result.to_dense(), self.expected())

    def test_average_divides_by_the_number_of_ranks(self) -> None:
        handle = hvd.sparse_allreduce_async(self.tensor(), name="sparse", op=hvd.Average)
        result = hvd.synchronize(handle)
        assert torch.equal(result.to_dense(), self.expected() / hvd.size())

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
    def test_averages_of_integers_are_exact(self, dtype: torch.dtype) -> None:
        limits = torch.iinfo(dtype)
        values = torch.tensor([limits.max, limits.min, limits.max - 1], dtype=dtype)
        tensor = torch.sparse_coo_tensor(torch.arange(3)[None], values, (3,), check_invariants=True)
        result = hvd.sparse_allreduce_async(tensor, name="sparse", op=hvd.Average)()
        assert torch.equal(result.to_dense(), values)

    def test_a_rank_may_have_no_entries(self) -> None:
        tensor = self.tensor() if hvd.rank() == 0 else torch.zeros_like(self.tensor())
        result = hvd.sparse_allreduce_async(tensor, name="sparse", op=hvd.Sum)()
        expected = torch.zeros(hvd.size() + 1, 2)
        expected[:2] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        assert torch.equal(result.to_dense(), expected)
