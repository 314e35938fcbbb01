"""Reductions in place that were done before under the same name, on the same tensors or others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import sirtaki.torch as hvd

SHAPE = (4, 4)


def _ranked(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(16).reshape(SHAPE) * (hvd.rank() + 1)).to(dtype)


def _transposed() -> torch.Tensor:
    return _ranked().t_()


def _negated() -> torch.Tensor:
    return torch._neg_view(_ranked())


def _conjugated() -> torch.Tensor:
    return (_ranked(torch.complex64) * 1j).conj()


class _Derived(torch.Tensor):
    pass


def _sum_of(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return what `make` returns, summed over all ranks by plain operations."""
    own = make().resolve_neg().resolve_conj().contiguous()
    return hvd.allgather(own.reshape(1, *own.shape)).sum(0).to(own.dtype)


@pytest.mark.parametrize("times", [2, 3])
def test_a_tensor_is_reduced_again(times: int) -> None:
    tensor = _ranked()
    before = tensor._version
    expected = _ranked()
    for _ in range(times):
        expected = hvd.allreduce(expected, op=hvd.Sum)
        handle = hvd.allreduce_async_(tensor, name="again", op=hvd.Sum)
        assert hvd.synchronize(handle) is tensor
        assert torch.equal(tensor, expected)
    assert tensor._version == before + times


@pytest.mark.parametrize(
    "make",
    [
        _ranked,
        _transposed,
        _negated,
        _conjugated,
        lambda: _ranked(torch.float64),
        lambda: _ranked(torch.int32),
        lambda: _ranked()[:2].clone(),
        lambda: _ranked().flatten(),
        lambda: _ranked().as_subclass(_Derived),
        lambda: torch.nn.Parameter(_ranked(), requires_grad=False),
        lambda: torch.empty(0),
        lambda: torch.tensor(hvd.rank() + 1.0),
    ],
)
def test_another_tensor_may_have_the_name(make: Callable[[], torch.Tensor]) -> None:
    dtype = make().dtype
    for first in (_ranked(), _ranked(dtype), _ranked()):
        hvd.synchronize(hvd.allreduce_async_(first, name="another", op=hvd.Sum))
        tensor = make()
        result = hvd.synchronize(hvd.allreduce_async_(tensor, name="another", op=hvd.Sum))
        assert result is tensor
        assert torch.equal(tensor, _sum_of(make))


def test_another_reduction_may_have_the_name() -> None:
    for op, scale in ((hvd.Sum, 1.0), (hvd.Max, 1.0), (hvd.Sum, 0.5), (hvd.Sum, 1.0)):
        for _ in range(2):
            tensor = _ranked()
            handle = hvd.allreduce_async_(tensor, name="other", op=op, prescale_factor=scale)
            expected = hvd.allreduce(_ranked(), op=op, prescale_factor=scale)
            assert torch.equal(hvd.synchronize(handle), expected)


def test_another_process_set_may_have_the_name() -> None:
    alone = [hvd.add_process_set([rank]) for rank in range(hvd.size())] if hvd.size() > 1 else []
    for _ in range(2):
        for chosen in [*alone[hvd.rank() : hvd.rank() + 1], hvd.global_process_set]:
            tensor = _ranked()
            hvd.allreduce_(tensor, name="sets", op=hvd.Sum, process_set=chosen)
            assert torch.equal(tensor, hvd.allreduce(_ranked(), op=hvd.Sum, process_set=chosen))
    for each in alone:
        hvd.remove_process_set(each)


def test_the_name_of_an_operation_in_flight_is_refused_again() -> None:
    tensor, other = _ranked(), _ranked()
    for _ in range(3):
        handle = hvd.allreduce_async_(tensor, name="taken")
        with pytest.raises(ValueError, match="currently being processed"):
            hvd.allreduce_async_(other, name="taken")
        hvd.synchronize(handle)


def test_a_tensor_without_memory_is_refused_again() -> None:
    tensor = _ranked()
    for _ in range(2):
        hvd.allreduce_(tensor, name="freed")
    tensor.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="has no memory"):
        hvd.allreduce_(tensor, name="freed")


def test_a_group_is_reduced_again_and_told_from_other_groups() -> None:
    def of(*makes: Callable[[], torch.Tensor]) -> None:
        group = [make() for make in makes]
        before = [tensor._version for tensor in group]
        results = hvd.grouped_allreduce_(group, name="group", op=hvd.Sum)
        assert isinstance(results, list)
        for result, tensor, make, version in zip(results, group, makes, before, strict=True):
            assert result is tensor
            assert torch.equal(tensor, _sum_of(make))
            assert tensor._version > version

    for _ in range(2):
        of(_ranked, _ranked)
        of(_ranked, _ranked)
        of(_ranked, _negated)
        of(_transposed, _ranked)
        of(_ranked)
        of(_ranked, lambda: _ranked(torch.float64))


def test_a_group_whose_tensors_share_memory_is_refused_again() -> None:
    whole = _ranked()
    apart, shared = [whole[:2], whole[2:]], [whole[:2], whole[1:3]]
    for _ in range(2):
        hvd.grouped_allreduce_(apart, name="parts")
    with torch.no_grad():
        results = hvd.grouped_allreduce_(shared, name="parts")
    assert len(results) == 2


@pytest.mark.parametrize(
    "odd", [lambda: torch.zeros(SHAPE).t(), lambda: torch._neg_view(torch.zeros(SHAPE))]
)
def test_a_gradient_may_lie_differently_in_memory_from_step_to_step(
    odd: Callable[[], torch.Tensor],
) -> None:
    weights = [torch.nn.Parameter(torch.zeros(SHAPE)) for _ in range(2)]
    named = [(f"odd.{i}", weight) for i, weight in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), named, op=hvd.Sum)
    for step in range(6):
        optimizer.zero_grad()
        if step in (3, 5):
            weights[1].grad = odd()
        sum((_ranked() * weight).sum() for weight in weights).backward()
        optimizer.step()
    for weight in weights:
        assert torch.equal(weight, -6 * _sum_of(_ranked))
