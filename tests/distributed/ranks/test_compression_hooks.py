"""DDP's gradients in compressed form: against oracles in NumPy that play all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import sirtaki.torch as hvd
from sirtaki.torch.distributed import CompressionState, compression_hook
from tests.compressed import approximations, given, sent, sums_of_largest

Compression = hvd.Compression
SHAPE = (60, 90)
several = pytest.mark.skipif("int(os.environ['WORLD_SIZE']) == 1", reason="needs several ranks")


class Model(torch.nn.Module):
    """A matrix and a vector of 0, whose gradients are its inputs."""

    def __init__(self, dtype: torch.dtype = torch.float32, *, alone: bool = False) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.zeros(SHAPE, dtype=dtype))
        self.vector = None if alone else torch.nn.Parameter(torch.zeros(200, dtype=dtype))

    def forward(self, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        loss = (self.matrix * matrix).sum()
        return loss if self.vector is None else loss + (self.vector * vector).sum()


class Training:
    def __init__(self, compression: Any, dtype: torch.dtype = torch.float32, **how: Any) -> None:
        self.model = Model(dtype, **how)
        self.ddp = DistributedDataParallel(self.model)
        self.state = CompressionState(compression)
        self.ddp.register_comm_hook(self.state, compression_hook)
        self.dtype = dtype

    def step(self, step: int) -> None:
        """Add the averaged gradients to the parameters."""
        self.ddp.zero_grad()
        inputs = (given(dist.get_rank(), step, shape) for shape in (SHAPE, (200,)))
        self.ddp(*(torch.from_numpy(each).to(self.dtype) for each in inputs)).backward()
        with torch.no_grad():
            for param in self.model.parameters():
                param += param.grad

    @property
    def values(self) -> list[Any]:
        return [param.detach().numpy().copy() for param in self.model.parameters()]


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_blocks_are_averaged_and_what_is_lost_is_added_to_the_next(name: str) -> None:
    training = Training(getattr(Compression, name))
    ranks = dist.get_world_size()
    shapes = [SHAPE, (200,)]
    lost = [[np.zeros(shape, np.float32) for shape in shapes] for _ in range(ranks)]
    wanted = [np.zeros(shape, np.float32) for shape in shapes]
    for step in range(4):
        training.step(step)
        for i, shape in enumerate(shapes):
            wholes = [given(r, step, shape).astype(np.float32) + lost[r][i] for r in range(ranks)]
            parts = [sent(whole, name) for whole in wholes]
            for r in range(ranks):
                lost[r][i] = wholes[r] - parts[r]
            mean = parts[0]
            for part in parts[1:]:
                mean = mean + part
            wanted[i] += mean * np.float32(1 / ranks)
    for value, expected in zip(training.values, wanted, strict=True):
        assert np.array_equal(value, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["none", "fp16", "bf16", "int8", "int4"])
def test_every_codec_takes_every_float(name: str, dtype: torch.dtype) -> None:
    training = Training(getattr(Compression, name), dtype)
    training.step(0)
    ranks = range(dist.get_world_size())
    for value, shape in zip(training.values, (SHAPE, (200,)), strict=True):
        exact = np.mean([given(r, 0, shape) for r in ranks], axis=0)
        assert value.dtype == np.dtype(str(dtype).removeprefix("torch."))
        assert np.abs(value - exact).max() < np.abs(exact).max() * 0.2


def test_powersgd_steps_as_the_oracle_does() -> None:
    training = Training(Compression.powersgd(2), torch.float64)
    # The gradient's name: that of its place in DDP's first bucket, which begins with the last one.
    names = [str(name) for name in ("0.0", "0.1")]
    ranks = dist.get_world_size()
    oracles = {name: approximations(name, SHAPE, 2, ranks) for name in names}
    wanted = {name: np.zeros(SHAPE) for name in names}
    vector = np.zeros(200)
    for step in range(4):
        training.step(step)
        for name in names:
            wanted[name] += next(oracles[name])
        vector += np.mean([given(r, step, (200,)) for r in range(ranks)], axis=0)
    found, flat = training.values
    np.testing.assert_allclose(flat, vector, rtol=1e-9)
    assert any(np.allclose(found, each, rtol=1e-9, atol=1e-9) for each in wanted.values())


def test_topk_steps_as_the_oracle_does_to_the_bit() -> None:
    training = Training(Compression.topk(0.02), alone=True)
    oracle = sums_of_largest([SHAPE], 0.02, dist.get_world_size())
    wanted = np.zeros(SHAPE, np.float32)
    for step, (mean,) in zip(range(4), oracle, strict=False):
        training.step(step)
        wanted += mean
    assert np.array_equal(training.values[0], wanted)


@pytest.mark.parametrize("compression", [Compression.powersgd(2), Compression.topk(0.02)])
def test_many_buckets_in_flight_do_not_mix(compression: Any) -> None:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(120, 120) for _ in range(12)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.05)
    state = CompressionState(compression)
    model.register_comm_hook(state, compression_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 120, generator=generator)).square().mean().backward()
        optimizer.step()
    for param in model.parameters():
        gathered = [torch.empty_like(param) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, param.detach())
        assert all(torch.equal(gathered[0], other) for other in gathered)


@pytest.mark.parametrize(
    "compression", [Compression.int4, Compression.powersgd(2), Compression.topk(0.02)]
)
def test_training_goes_on_where_its_state_was_saved(compression: Any) -> None:
    # Alone: DDP cuts other buckets after its first step, and so top-k other blocks.
    whole, first, second = (Training(compression, alone=True) for _ in range(3))
    for step in range(4):
        whole.step(step)
    for step in range(2):
        first.step(step)
    second.state.load_state_dict(
        first.state.state_dict(first.model.parameters()), second.model.parameters()
    )
    with torch.no_grad():
        for param, trained in zip(second.model.parameters(), first.values, strict=True):
            param.copy_(torch.from_numpy(trained))
    for step in (2, 3):
        second.step(step)
    for value, expected in zip(second.values, whole.values, strict=True):
        assert np.array_equal(value, expected)


@several
def test_another_compression_on_one_rank_is_an_error_on_all() -> None:
    rank = 2 if dist.get_rank() == 0 else 3
    training = Training(Compression.powersgd(rank))
    with pytest.raises(RuntimeError, match="differ"):
        training.step(0)


def test_the_group_must_be_ours() -> None:
    class Other:
        pass

    with pytest.raises(ValueError, match="compression_hook needs a group of the backend sirtaki"):
        CompressionState(Compression.int4, Other())  # type: ignore[arg-type]
