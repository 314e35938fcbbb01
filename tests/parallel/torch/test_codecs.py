"""Float32 that is rounded to 16 bits on its way: bit for bit what a model in NumPy says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sirtaki.torch as hvd

Floats = NDArray[np.float32]
CODECS = {"float16": hvd.Compression.fp16, "bfloat16": hvd.Compression.bf16}
several = pytest.mark.skipif("hvd.size() == 1", reason="needs several ranks")
each_codec = pytest.mark.parametrize("codec", CODECS)

SPECIAL = np.array(
    [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x00000001, 0x80000000,
     0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x477FF000, 0x33000000],
    np.uint32,
).view(np.float32)  # fmt: skip


def rounded(codec: str, numbers: Floats) -> Floats:
    """Nearest 16-bit numbers, ties to even."""
    if codec == "float16":
        with np.errstate(over="ignore"):
            return numbers.astype(np.float16).astype(np.float32)
    bits = numbers.view(np.uint32)
    upper = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(numbers), np.float32("nan"), upper.view(np.float32))


def given(rank: int, count: int) -> Floats:
    """What a rank contributes: any numbers, and at the beginning and the end the special ones."""
    random = np.random.default_rng(rank)
    numbers = random.standard_normal(count).astype(np.float32)
    numbers *= np.float32(10) ** random.integers(-6, 5, count).astype(np.float32)
    several_times = np.roll(np.tile(SPECIAL, 4), 3 * rank)[:count]
    numbers[: several_times.size] = several_times
    numbers[count - several_times.size :] = several_times
    return numbers


def folded(
    codec: str, inputs: list[Floats], op: int, before: float = 1.0, after: float = 1.0
) -> Floats:
    """The sum in float32, in the order of the ranks, of what each of them has rounded once."""
    with np.errstate(all="ignore"):
        result, *others = (rounded(codec, mine) * np.float32(before) for mine in inputs)
        for other in others:
            result = result + other
        return result * np.float32(after / hvd.size() if op == hvd.Average else after)


def expected(codec: str, count: int, op: int, before: float = 1.0, after: float = 1.0) -> Floats:
    return folded(codec, [given(k, count) for k in range(hvd.size())], op, before, after)


def assert_same_bits(result: torch.Tensor, wanted: Floats) -> None:
    """NaNs are compared as one: whose payload a sum has is left open."""
    numbers = result.detach().numpy()
    assert numbers.dtype == np.float32
    nan = np.isnan(wanted)
    assert np.array_equal(np.isnan(numbers), nan)
    assert np.array_equal(numbers.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


@each_codec
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=["sum", "average"])
@pytest.mark.parametrize("count", [0, 1, 100, 5_000, 300_001])
def test_each_contribution_is_rounded_once_and_the_sum_not_at_all(
    codec: str, op: int, count: int
) -> None:
    mine = torch.from_numpy(given(hvd.rank(), count))
    before = mine.clone()
    result = hvd.allreduce(mine, op=op, compression=CODECS[codec])
    assert_same_bits(result, expected(codec, count, op))
    assert torch.equal(mine.view(torch.int32), before.view(torch.int32))


@each_codec
def test_factors_are_applied_in_float32_around_the_sum(codec: str) -> None:
    for count in (100, 50_000):
        result = hvd.allreduce(
            torch.from_numpy(given(hvd.rank(), count)),
            op=hvd.Sum,
            compression=CODECS[codec],
            prescale_factor=0.3,
            postscale_factor=1 / 3,
        )
        assert_same_bits(result, expected(codec, count, hvd.Sum, 0.3, 1 / 3))


@each_codec
def test_in_a_group_float32_is_rounded_and_integers_are_not(codec: str) -> None:
    counts = torch.full((5,), 16_777_217, dtype=torch.int64)
    floats = torch.from_numpy(given(hvd.rank(), 9_000))
    first, second, third = hvd.grouped_allreduce(
        [floats, counts, floats[:100]], op=hvd.Sum, compression=CODECS[codec]
    )
    assert_same_bits(first, expected(codec, 9_000, hvd.Sum))
    assert second.tolist() == [16_777_217 * hvd.size()] * 5
    inputs = [given(k, 9_000)[:100] for k in range(hvd.size())]
    assert_same_bits(third, folded(codec, inputs, hvd.Sum))


@several
@each_codec
@pytest.mark.parametrize("groups", [None, 1])
def test_the_optimizer_reduces_gradients_in_place(codec: str, groups: int | None) -> None:
    weights = [torch.nn.Parameter(torch.zeros(count)) for count in (100, 70_000)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(weights, lr=0.1),
        [(f"weight{i}", weight) for i, weight in enumerate(weights)],
        compression=CODECS[codec],
        groups=groups,
    )
    for weight in weights:
        weight.grad = torch.from_numpy(given(hvd.rank(), weight.numel()))
    gradients = [weight.grad for weight in weights]
    optimizer.synchronize()
    for weight, gradient in zip(weights, gradients, strict=True):
        assert weight.grad is gradient
        assert_same_bits(gradient, expected(codec, weight.numel(), hvd.Average))


@each_codec
def test_the_gradient_of_a_rounded_reduction_is_rounded_likewise(codec: str) -> None:
    x = torch.zeros(200, requires_grad=True)
    y = hvd.allreduce(x, op=hvd.Sum, compression=CODECS[codec])
    y.backward(torch.from_numpy(given(hvd.rank(), 200)))
    assert_same_bits(x.grad, expected(codec, 200, hvd.Sum))


@several
def test_ranks_that_differ_in_the_codec_are_told_who_has_which() -> None:
    compression = hvd.Compression.bf16 if hvd.rank() == 0 else hvd.Compression.none
    with pytest.raises(
        hvd.HorovodInternalError, match=r"codecs: rank 0 has bfloat16, rank \d+ has none"
    ):
        hvd.allreduce(torch.ones(3), name="codec", compression=compression)
    assert hvd.allreduce(torch.ones(3), name="codec").tolist() == [1.0] * 3


def test_a_class_derived_from_a_compression_does_what_it_says() -> None:
    class Ones(hvd.Compression.bf16):
        @classmethod
        def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
            return torch.ones_like(tensor), tensor.dtype

    assert hvd.allreduce(torch.zeros(3), compression=Ones).tolist() == [1.0] * 3


@several
def test_who_has_joined_contributes_zeros() -> None:
    if hvd.rank() > 0:
        hvd.join()
        return
    third = torch.full((4,), 1 / 3)
    result = hvd.allreduce(third, op=hvd.Sum, compression=hvd.Compression.bf16)
    assert result.tolist() == third.bfloat16().float().tolist()
    hvd.join()
