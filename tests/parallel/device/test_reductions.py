"""Reductions on an accelerator: launched in the agreed order, waited for on the stream."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.torch.ops import handles
from tests.parallel.device.fake_device import FakeDevice

OPERATORS = {
    "Average": hvd.Average,
    "Sum": hvd.Sum,
    "Min": hvd.Min,
    "Max": hvd.Max,
    "Product": hvd.Product,
}
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


def own_values(dtype: torch.dtype) -> torch.Tensor:
    """Small numbers, different ones on every rank."""
    return ((torch.arange(6) + hvd.rank()) % 3).to(dtype).view(2, 3)


def test_an_operation_reads_what_was_computed_before_it_and_is_read_after_it(
    device: FakeDevice,
) -> None:
    values = torch.arange(5.0)
    tensor = device.tensor(values + hvd.rank())
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="x")
    assert hvd.synchronize(handle) is tensor
    assert device.read(tensor).equal(values * hvd.size() + sum(range(hvd.size())))


def test_the_side_stream_does_not_overtake_the_scripts(device: FakeDevice) -> None:
    tensor = device.tensor(torch.ones(3))
    result = hvd.allreduce(tensor, op=hvd.Sum)
    device.finish()  # the side stream alone, as far as it may go
    assert device.read(result).tolist() == [hvd.size()] * 3


def test_synchronize_waits_for_nothing_but_the_launch(device: FakeDevice) -> None:
    tensor = device.tensor(torch.ones(3))
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert tensor.tolist() == [0.0] * 3
    assert device.read(tensor).tolist() == [hvd.size()] * 3


def test_the_input_stays_as_it_was(device: FakeDevice) -> None:
    tensor = device.tensor(torch.ones(3))
    result = device.read(hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=2.0))
    assert result.tolist() == [2.0 * hvd.size()] * 3
    assert tensor.tolist() == [1.0] * 3


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_result_is_that_of_the_hosts(device: FakeDevice, dtype: torch.dtype, op: str) -> None:
    with device.host_tensors():
        expected = hvd.allreduce(own_values(dtype), op=OPERATORS[op], name="host")
    result = device.read(
        hvd.allreduce(device.tensor(own_values(dtype)), op=OPERATORS[op], name="device")
    )
    assert result.dtype == dtype
    torch.testing.assert_close(result, expected)


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_averages_of_integers_are_exact(device: FakeDevice, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    same = [limits.max, limits.min, limits.max - 1, limits.min + 1, 7]
    each = [limits.max, limits.min] if hvd.rank() % 2 else [limits.min, limits.max]
    values = torch.tensor([*same, *each], dtype=dtype)
    with device.host_tensors():
        expected = hvd.allreduce(values, name="host")
    result = device.read(hvd.allreduce(device.tensor(values), name="device"))
    assert result.tolist() == expected.tolist()
    assert result.tolist()[:5] == same


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.float16, torch.float32], ids=str)
def test_factors_are_applied_before_and_after(device: FakeDevice, dtype: torch.dtype) -> None:
    factors = {"op": hvd.Sum, "prescale_factor": 1.5, "postscale_factor": 0.5}
    with device.host_tensors():
        expected = hvd.allreduce(own_values(dtype), name="host", **factors)
    result = hvd.allreduce(device.tensor(own_values(dtype)), name="device", **factors)
    torch.testing.assert_close(device.read(result), expected)


def test_integers_are_clamped_when_they_are_scaled(device: FakeDevice) -> None:
    tensor = device.tensor(torch.tensor([100, -100], dtype=torch.int8))
    result = hvd.allreduce(tensor, op=hvd.Max, prescale_factor=2.0)
    assert device.read(result).tolist() == [127, -128]


def test_averages_of_small_floats_do_not_overflow(device: FakeDevice) -> None:
    tensor = device.tensor(torch.full((4,), 60000.0, dtype=torch.float16))
    assert device.read(hvd.allreduce(tensor)).tolist() == pytest.approx([60000.0] * 4, rel=1e-3)


def test_ranks_may_submit_in_opposite_orders(device: FakeDevice) -> None:
    names = ["a", "b", "c"]
    tensors = {name: device.tensor(torch.full((3,), float(ord(name)))) for name in names}
    if hvd.rank() % 2:
        names.reverse()
    handles = {n: hvd.allreduce_async_(tensors[n], op=hvd.Sum, name=n) for n in names}
    for name in names:
        hvd.synchronize(handles[name])
    for name, tensor in tensors.items():
        assert device.read(tensor).tolist() == [ord(name) * hvd.size()] * 3


def test_a_group_is_reduced_together(device: FakeDevice) -> None:
    shapes = [(2, 3), (0,), (), (5,)]
    tensors = [device.tensor(torch.full(shape, float(i + 1))) for i, shape in enumerate(shapes)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="group")
    for i, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        assert device.read(result).equal(torch.full(shape, (i + 1.0) * hvd.size()))


def test_a_group_of_several_dtypes_is_reduced_in_place(device: FakeDevice) -> None:
    dtypes = [torch.float32, torch.int16, torch.float16, torch.int16]
    tensors = [device.tensor(torch.ones(3, dtype=dtype)) for dtype in dtypes]
    returned = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    assert all(result is tensor for result, tensor in zip(returned, tensors, strict=True))
    for tensor in tensors:
        assert device.read(tensor).tolist() == [hvd.size()] * 3


def test_a_tensor_that_is_not_contiguous_is_filled(eager_device: FakeDevice) -> None:
    whole = torch.ones(3, 2)
    hvd.allreduce_(whole.t(), op=hvd.Sum)
    assert whole.tolist() == [[hvd.size()] * 2] * 3
    assert eager_device.groups == 1


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compressed_tensors_never_leave_the_device(
    device: FakeDevice, compression: type[hvd.Compression]
) -> None:
    """What is computed on the fake one's stream is not in CPU memory when it is submitted."""
    result = hvd.allreduce(torch.full((4,), 1.5), op=hvd.Sum, compression=compression)
    assert result.dtype == torch.float32
    device.read(result)
    assert device.groups == 1


def test_adasum_goes_through_the_hosts(device: FakeDevice) -> None:
    result = hvd.allreduce(torch.ones(4), op=hvd.Adasum)
    assert result.tolist() == pytest.approx([1.0] * 4)
    assert device.groups == 0


@pytest.mark.parametrize("dtype", [torch.uint16, torch.complex64], ids=str)
def test_what_no_group_reduces_goes_through_the_hosts(
    device: FakeDevice, dtype: torch.dtype
) -> None:
    both = [torch.ones(3), torch.ones(2, dtype=dtype)]
    for result in hvd.grouped_allreduce(both, op=hvd.Sum):
        assert result.tolist() == [hvd.size()] * len(result)
    assert device.groups == 0


def test_a_process_set_has_a_group_of_its_own(device: FakeDevice) -> None:
    sets = [hvd.add_process_set([rank]) for rank in range(hvd.size())] if hvd.size() > 1 else []
    own = sets[hvd.rank()] if sets else hvd.global_process_set
    mine = device.tensor(torch.full((2,), float(hvd.rank())))
    everyones = device.tensor(torch.ones(2))
    hvd.allreduce_(mine, op=hvd.Sum, process_set=own)
    hvd.allreduce_(everyones, op=hvd.Sum)
    assert device.read(mine).tolist() == [hvd.rank()] * 2
    assert device.read(everyones).tolist() == [hvd.size()] * 2
    assert device.groups == len({1, hvd.size()})
    for process_set in sets:
        hvd.remove_process_set(process_set)


@pytest.mark.skipif("hvd.size() < 3", reason="needs sets that overlap")
def test_sets_that_overlap_are_served_in_one_order(device: FakeDevice) -> None:
    """In a circle of pairs any other order would leave each rank waiting for the next."""
    last = hvd.size() - 1
    pairs = [[0, 1], [1, last], [0, last]] if last > 1 else []
    sets = [hvd.add_process_set(pair) for pair in pairs]
    mine = [each for each in sets if each.included()]
    tensors = [device.tensor(torch.ones(2)) for _ in mine]
    handles = [
        hvd.allreduce_async_(tensor, op=hvd.Sum, name="x", process_set=each)
        for tensor, each in reversed(list(zip(tensors, mine, strict=True)))
    ]
    for handle in handles:
        hvd.synchronize(handle)
    assert [device.read(tensor).tolist() for tensor in tensors] == [[2.0, 2.0]] * len(mine)
    hvd.barrier()
    for process_set in sets:
        hvd.remove_process_set(process_set)


def test_ranks_that_have_joined_contribute_zeros(eager_device: FakeDevice) -> None:
    for i in range(hvd.rank() + 1):
        result = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"batch.{i}")
        assert result.tolist() == [hvd.size() - i] * 3
    assert hvd.join() == hvd.size() - 1
    assert eager_device.groups == 1


@pytest.mark.skipif("hvd.size() == 1", reason="nobody is left to try it")
def test_a_rank_may_join_before_it_has_used_its_device(eager_device: FakeDevice) -> None:
    if hvd.rank() > 0:
        result = hvd.grouped_allreduce([torch.ones(3), torch.ones(2, 2)], op=hvd.Sum)
        assert [tensor.tolist() for tensor in result] == [
            [hvd.size() - 1] * 3,
            [[hvd.size() - 1] * 2] * 2,
        ]
    hvd.join()
    assert eager_device.groups == 1


@pytest.mark.skipif("hvd.size() == 1", reason="nobody is left to try it")
def test_a_joined_rank_without_a_device_is_an_error(device: FakeDevice) -> None:
    tensor = device.tensor(torch.ones(3))
    if hvd.rank() == 0:
        with pytest.raises(hvd.HorovodInternalError, match="joined has no accelerator"):
            hvd.allreduce(tensor, name="x")
        hvd.join()
    else:
        handles.collectives.join(hvd.global_process_set)
