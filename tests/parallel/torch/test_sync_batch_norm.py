"""SyncBatchNorm over parts of a batch is BatchNorm over the whole of it."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd

CHANNELS = 3


def whole(rows: list[int], *dims: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    shape = (sum(rows), CHANNELS, *dims)
    return torch.randn(shape, generator=generator, dtype=dtype) * 3 + 5


def part(batch: torch.Tensor, rows: list[int]) -> torch.Tensor:
    return batch.split(rows)[hvd.rank()]


def even() -> list[int]:
    return [4] * hvd.size()


def uneven() -> list[int]:
    return [2 + rank for rank in range(hvd.size())]


def with_an_empty_rank() -> list[int]:
    return [5] + [0] * (hvd.size() - 1)


def train_both(
    rows: list[int], dims: tuple[int, ...], dtype: torch.dtype, **options
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Forward and backward of two batches; what this rank has, and what it should have."""
    mine = hvd.SyncBatchNorm(CHANNELS, **options).to(dtype)
    reference = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
    theirs = reference[len(dims)](CHANNELS, **options).to(dtype)
    for layer in (mine, theirs):
        if layer.affine:
            with torch.no_grad():
                layer.weight.copy_(torch.tensor([1.0, 2.0, 0.5]))
                layer.bias.copy_(torch.tensor([0.0, -1.0, 3.0]))
    got, expected = {}, {}
    for i in range(2):
        batch = whole(rows, *dims, dtype=dtype) * (i + 1)
        weights = torch.linspace(-1, 1, batch.numel(), dtype=dtype).view_as(batch)
        x = part(batch, rows).clone().requires_grad_()
        all_x = batch.clone().requires_grad_()
        y, all_y = mine(x), theirs(all_x)
        (y * part(weights, rows)).sum().backward()
        (all_y * weights).sum().backward()
        got |= {f"output {i}": y, f"input gradient {i}": x.grad}
        expected |= {
            f"output {i}": part(all_y, rows),
            f"input gradient {i}": part(all_x.grad, rows),
        }
    for name in ("weight", "bias"):
        if mine.affine:
            total = hvd.allreduce(getattr(mine, name).grad, op=hvd.Sum)
            got[f"{name} gradient"] = total
            expected[f"{name} gradient"] = getattr(theirs, name).grad
    got |= dict(mine.named_buffers())
    expected |= dict(theirs.named_buffers())
    return got, expected


@pytest.mark.parametrize("rows", [even, uneven, with_an_empty_rank])
@pytest.mark.parametrize("dims", [(), (7,), (4, 5), (2, 3, 4)], ids=["0d", "1d", "2d", "3d"])
def test_double_precision_agrees_to_the_last_digits(rows, dims) -> None:
    got, expected = train_both(rows(), dims, torch.float64)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=1e-11, atol=1e-11, msg=name)


@pytest.mark.parametrize("rows", [even, uneven])
def test_single_precision_agrees_to_a_millionth(rows) -> None:
    got, expected = train_both(rows(), (4, 5), torch.float32)
    for name, value in expected.items():
        scale = value.double().abs().max().item()
        torch.testing.assert_close(got[name], value, rtol=0, atol=1e-6 * max(scale, 1.0), msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {"affine": False},
        {"momentum": None},
        {"momentum": 0.5},
        {"track_running_stats": False},
        {"eps": 0.1},
    ],
    ids=str,
)
def test_options_mean_what_they_mean_to_batch_norm(options) -> None:
    got, expected = train_both(uneven(), (4,), torch.float64, **options)
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=1e-11, atol=1e-11, msg=name)


def test_channels_last_input_is_normalised_alike() -> None:
    batch = whole(even(), 4, 5)
    layer = hvd.SyncBatchNorm(CHANNELS).double()
    expected = nn.BatchNorm2d(CHANNELS).double()(batch)
    x = part(batch, even()).to(memory_format=torch.channels_last)
    torch.testing.assert_close(layer(x), part(expected, even()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bit_input_is_normalised_in_single_precision(dtype: torch.dtype) -> None:
    batch = whole(even(), 4, 5, dtype=torch.float32).to(dtype)
    x = part(batch, even()).clone().requires_grad_()
    y = hvd.SyncBatchNorm(CHANNELS)(x)
    assert y.dtype == dtype
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype
    expected = nn.BatchNorm2d(CHANNELS)(batch.float()).to(dtype)
    torch.testing.assert_close(y, part(expected, even()), rtol=1e-2, atol=1e-2)


def test_evaluation_uses_the_running_statistics_and_asks_nobody() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS).double()
    layer(part(whole(even(), 4), even()))
    layer.eval()
    assert layer.running_mean is not None
    assert layer.running_var is not None
    if hvd.rank() == 0:  # the others do not take part
        x = whole([3], 4)
        mean, var = layer.running_mean.view(1, -1, 1), layer.running_var.view(1, -1, 1)
        torch.testing.assert_close(layer(x), (x - mean) / torch.sqrt(var + layer.eps))


def test_a_process_set_shares_a_batch(pair: hvd.ProcessSet) -> None:
    if not pair.included():
        return
    rows = [4] * pair.size()
    batch = whole(rows, 5)
    layer = hvd.SyncBatchNorm(CHANNELS, process_set=pair).double()
    mine = batch.split(rows)[pair.rank()]
    expected = nn.BatchNorm1d(CHANNELS).double()(batch).split(rows)[pair.rank()]
    torch.testing.assert_close(layer(mine), expected)


def test_one_value_per_channel_is_too_few() -> None:
    rows = [1] + [0] * (hvd.size() - 1)
    with pytest.raises(ValueError, match="more than"):
        hvd.SyncBatchNorm(CHANNELS).double()(part(whole(rows), rows))


def test_input_needs_a_channel_dimension() -> None:
    with pytest.raises(ValueError, match="2 dimensions"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(CHANNELS))


def assert_normalises_the_whole_batch(layer: nn.Module) -> None:
    batch = whole(even(), 4)
    expected = nn.BatchNorm1d(CHANNELS).double()(batch)
    torch.testing.assert_close(layer(part(batch, even())), part(expected, even()))


def test_a_copy_of_a_layer_works_with_those_of_the_other_ranks() -> None:
    assert_normalises_the_whole_batch(copy.deepcopy(hvd.SyncBatchNorm(CHANNELS).double()))


def test_a_model_saved_by_a_job_of_one_rank_works_with_those_of_the_other_ranks(
    tmp_path: Path,
) -> None:
    saved = None
    if hvd.rank() == 0:
        program = f"""
import sys, torch
import sirtaki.torch as hvd
hvd.init()
torch.save(hvd.SyncBatchNorm({CHANNELS}).double(), sys.argv[1])
"""
        of_torch = os.environ.get("SIRTAKI_SET_FOR_TORCH", "").split(",")
        own = ("HOROVOD_", "SIRTAKI_", *filter(None, of_torch))
        alone = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        file = tmp_path / "model.pt"
        subprocess.run([sys.executable, "-c", program, file], check=True, env=alone)
        saved = file.read_bytes()
    mine = tmp_path / "received.pt"
    mine.write_bytes(hvd.broadcast_object(saved, 0))
    assert_normalises_the_whole_batch(torch.load(mine, weights_only=False))
