"""Compression.int8 and int4: what they compute, to the bit, and what the optimizer gives back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sirtaki.torch as hvd
from tests.compressed import sent

Floats = NDArray[np.float32]
INT8 = hvd.Compression.int8
BLOCK = 60
each_codec = pytest.mark.parametrize("codec", ["int8", "int4"])
KEY = "compression_residuals"
several = pytest.mark.skipif("hvd.size() == 1", reason="needs several ranks")


def given(rank: int, count: int, step: int = 0) -> Floats:
    random = np.random.default_rng((rank, step, count))
    numbers = random.standard_normal(count).astype(np.float32)
    return numbers * np.float32(10) ** random.integers(-3, 3, count).astype(np.float32)


def reduced(inputs: list[Floats], op: int = hvd.Average, codec: str = "int8") -> Floats:
    """Return the sum in float32, in the order of the ranks, of what each of them sends."""
    result, *others = (sent(numbers, codec) for numbers in inputs)
    for other in others:
        result = result + other
    return result * np.float32(1 / len(inputs)) if op == hvd.Average else result


def everybodys(count: int, step: int = 0) -> list[Floats]:
    return [given(rank, count, step) for rank in range(hvd.size())]


def mine(count: int, step: int = 0) -> torch.Tensor:
    return torch.from_numpy(given(hvd.rank(), count, step))


@each_codec
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=["sum", "average"])
@pytest.mark.parametrize("count", [0, 1, 59, 60, 61, 5_000, 300_001])
def test_each_contribution_is_encoded_once_and_the_sum_not_at_all(
    op: int, count: int, codec: str
) -> None:
    tensor = mine(count)
    before = tensor.clone()
    result = hvd.allreduce(tensor, op=op, compression=getattr(hvd.Compression, codec))
    assert np.array_equal(result.numpy(), reduced(everybodys(count), op, codec))
    assert torch.equal(tensor, before)


def test_in_a_group_each_tensor_has_blocks_of_its_own_and_integers_are_not_encoded() -> None:
    small, large = mine(100) * 1e-6, mine(9_000) * 1e6
    ones = torch.full((5,), 16_777_217, dtype=torch.int64)
    first, second, third = hvd.grouped_allreduce([small, ones, large], compression=INT8)
    assert np.array_equal(first.numpy(), reduced([g * np.float32(1e-6) for g in everybodys(100)]))
    assert second.tolist() == [16_777_217] * 5
    assert np.array_equal(third.numpy(), reduced([g * np.float32(1e6) for g in everybodys(9_000)]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floats_are_encoded_as_float32(dtype: torch.dtype) -> None:
    result = hvd.allreduce(torch.full((200,), 1.5, dtype=dtype), compression=INT8)
    assert result.dtype == dtype
    assert result.tolist() == [1.5] * 200


@each_codec
def test_a_number_that_is_not_finite_is_seen_by_all_ranks_in_its_block_alone(codec: str) -> None:
    tensor = torch.ones(3 * BLOCK)
    if hvd.rank() == hvd.size() - 1:
        tensor[BLOCK + 3] = float("inf")
    compression = getattr(hvd.Compression, codec)
    result = hvd.allreduce(tensor, compression=compression).reshape(3, BLOCK)
    assert result.isnan().all(dim=1).tolist() == [False, True, False]
    assert result[0].tolist() == [1.0] * BLOCK


def test_what_is_not_a_sum_is_refused() -> None:
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        for name in ("int8", "int4"):
            with pytest.raises(ValueError, match=rf"Compression\.{name} is for allreduce with Sum"):
                hvd.allreduce(torch.ones(3), op=op, compression=getattr(hvd.Compression, name))
    with pytest.raises(ValueError, match=r"Compression\.int8 is for allreduce with Sum"):
        hvd.reducescatter(torch.ones(3), compression=INT8)
    weight = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ValueError, match=r"op=Adasum .* Compression\.int8"):
        hvd.DistributedOptimizer(torch.optim.SGD([weight]), compression=INT8, op=hvd.Adasum)


@several
def test_ranks_that_differ_in_the_codec_are_told_who_has_which() -> None:
    compression = hvd.Compression.bf16 if hvd.rank() == 0 else INT8
    with pytest.raises(
        hvd.HorovodInternalError, match=r"codecs: rank 0 has bfloat16, rank \d+ has int8"
    ):
        hvd.allreduce(torch.ones(3), name="int8", compression=compression)


@several
def test_who_has_joined_contributes_zeros() -> None:
    if hvd.rank() > 0:
        hvd.join()
        return
    tensor = mine(1000)
    result = hvd.allreduce(tensor, op=hvd.Sum, compression=INT8)
    assert np.array_equal(result.numpy(), sent(tensor.numpy()))
    hvd.join()


# ---- The optimizer ----


class Training:
    """An optimizer of some weights, which are given any gradients."""

    def __init__(
        self,
        shapes: tuple[tuple[int, ...], ...] = ((100,), (70, 1000)),
        compression: Any = INT8,
        **how: Any,
    ) -> None:
        self.weights = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.weights, lr=1.0), compression=compression, **how
        )

    def gradients(self, step: int, rank: int) -> list[Floats]:
        return [given(rank, w.numel(), step).reshape(w.shape) for w in self.weights]

    def step(self, step: int) -> None:
        for weight, gradient in zip(self.weights, self.gradients(step, hvd.rank()), strict=True):
            weight.grad = torch.from_numpy(gradient)
        self.optimizer.step()

    @property
    def residuals(self) -> dict[int, torch.Tensor]:
        kept: dict[int, torch.Tensor] = self.optimizer.state_dict()[KEY]["of"]
        return kept


@several
@each_codec
@pytest.mark.parametrize("groups", [None, 1], ids=["one by one", "grouped"])
def test_what_is_lost_of_a_gradient_is_added_to_the_next(groups: int | None, codec: str) -> None:
    training = Training(compression=getattr(hvd.Compression, codec), groups=groups)
    weights = [np.zeros(w.shape, np.float32) for w in training.weights]
    kept = [[np.zeros(w.shape, np.float32) for w in training.weights] for _ in range(hvd.size())]
    for step in range(3):
        training.step(step)
        for i, weight in enumerate(training.weights):
            inputs = [
                training.gradients(step, rank)[i] + kept[rank][i] for rank in range(hvd.size())
            ]
            for rank, numbers in enumerate(inputs):
                kept[rank][i] = numbers - sent(numbers, codec)
            weights[i] = weights[i] - reduced(inputs, codec=codec)
            assert np.array_equal(weight.detach().numpy(), weights[i])
            assert np.array_equal(training.residuals[i].numpy(), kept[hvd.rank()][i])


@several
def test_all_that_was_sent_and_what_is_kept_add_up_to_the_gradients() -> None:
    steps = 30
    training = Training()
    for step in range(steps):
        training.step(step)
    for i, weight in enumerate(training.weights):
        total = sum(
            training.gradients(step, rank)[i].astype(np.float64)
            for step in range(steps)
            for rank in range(hvd.size())
        )
        owed = hvd.allreduce(training.residuals[i].double(), op=hvd.Sum).numpy()
        updates = -weight.detach().numpy() * hvd.size()
        scale = np.abs(total).max()
        assert np.abs(updates + owed - total).max() < 1e-5 * scale
        assert np.abs(owed).max() > 1e-5 * scale  # without them it would not add up


@several
def test_an_optimizer_goes_on_where_its_state_was_saved() -> None:
    whole, first, second = Training(), Training(), Training()
    for step in range(4):
        whole.step(step)
    for step in range(2):
        first.step(step)
    saved = first.optimizer.state_dict()
    with torch.no_grad():
        for weight, trained in zip(second.weights, first.weights, strict=True):
            weight.copy_(trained)
    second.optimizer.load_state_dict(saved)
    first.step(99)  # what was loaded is a copy
    for step in (2, 3):
        second.step(step)
    for weight, expected in zip(second.weights, whole.weights, strict=True):
        assert torch.equal(weight, expected)


@several
def test_state_without_residuals_and_state_of_another_rank_begin_with_none() -> None:
    training, other = Training(), Training()
    training.step(0)
    state = training.optimizer.state_dict()
    old = {key: value for key, value in state.items() if key != KEY}
    foreign = {**state, KEY: {**state[KEY], "rank": hvd.size()}}
    for loaded in (old, foreign):
        other.optimizer.load_state_dict(state)
        assert KEY in other.optimizer.state_dict()
        other.optimizer.load_state_dict(loaded)
        assert KEY not in other.optimizer.state_dict()
    plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(w.shape)) for w in training.weights])
    plain.load_state_dict(state)


@several
def test_residuals_of_another_model_are_refused() -> None:
    training = Training()
    training.step(0)
    other = Training(((100,), (70, 1001)))
    with pytest.raises(ValueError, match=r"shape \(70, 1000\) for parameter 1"):
        other.optimizer.load_state_dict(training.optimizer.state_dict())


@several
def test_gradients_that_are_not_finite_leave_nothing_behind() -> None:
    training = Training(((100,),))
    training.weights[0].grad = torch.full((100,), float("nan"))
    training.optimizer.synchronize()
    assert training.weights[0].grad.isnan().all()
    assert training.residuals[0].tolist() == [0.0] * 100


@several
def test_a_gradient_of_any_layout_is_fed_back() -> None:
    weight = torch.nn.Parameter(torch.zeros(8, 4, 3, 3).to(memory_format=torch.channels_last))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=INT8)
    inputs = [given(rank, weight.numel()).reshape(weight.shape) for rank in range(hvd.size())]
    gradient = torch.from_numpy(inputs[hvd.rank()])
    weight.grad = gradient.to(memory_format=torch.channels_last)
    optimizer.step()
    assert np.array_equal(-weight.detach().numpy(), reduced(inputs))


def test_an_optimizer_of_a_process_set_feeds_back_in_it(pair: hvd.ProcessSet) -> None:
    training = Training(process_set=pair)
    training.step(0)
    ranks = pair.ranks if pair.included() else [hvd.rank()]
    assert ranks is not None
    for i, weight in enumerate(training.weights):
        inputs = [training.gradients(0, rank)[i] for rank in ranks]
        expected = reduced(inputs) if len(ranks) > 1 else inputs[0]
        assert np.array_equal(-weight.detach().numpy(), expected)
    assert (KEY in training.optimizer.state_dict()) == (len(ranks) > 1)
