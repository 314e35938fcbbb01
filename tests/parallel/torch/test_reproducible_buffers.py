"""Buffers of models in reproducible training, and parts that fail."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.torch.reproducible.buffers import exact_mean
from tests.parallel.torch.test_reproducible import PARTS, Counting, Weight, gradient_of, state_of

several = pytest.mark.skipif("hvd.size() == 1", reason="one rank has what it has sent")


def run(state: Any, *models: torch.nn.Module, inputs: Any = None) -> None:
    """Take a step whose parts call these modules."""
    for part in state.parts():
        with part:
            given = torch.full((3,), float(part.index)) if inputs is None else inputs(part.index)
            torch.stack([model(given).sum() for model in models]).sum().backward()


class Replacing(Weight):
    """Puts another tensor where its buffer was."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + gradient[:2]
        return super().forward(gradient)


def test_a_buffer_that_is_replaced_is_the_mean_of_the_parts() -> None:
    state = state_of(Replacing())
    for step in (1, 2):
        run(state, state.model)
        assert state.model.seen.tolist() == [5.5 * step] * 2
        state.optimizer.step()
        state.sampler.record_step()


def test_buffers_of_two_models_may_have_the_same_name() -> None:
    model, other = Counting(torch.float32), Counting(torch.float32)
    made = state_of(model)
    state = hvd.elastic.TorchState(model, made.optimizer, sampler=made.sampler, other=other)
    run(state, model, other)
    assert other.seen.tolist() == model.seen.tolist() == [5.5, 5.5]


def test_batch_statistics_of_a_module_in_two_models_are_folded_once() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    made = state_of(model)
    state = hvd.elastic.TorchState(model, made.optimizer, sampler=made.sampler, inner=model[0])
    run(state, model, inputs=lambda _: torch.randn(4, 4))
    norm = model[0]
    assert isinstance(norm, torch.nn.BatchNorm1d)
    assert (norm.momentum, int(norm.num_batches_tracked or 0)) == (0.1, PARTS)


def test_statistics_of_instances_are_the_mean_of_the_parts() -> None:
    model = torch.nn.InstanceNorm1d(2, affine=True, track_running_stats=True)
    run(state_of(model), model, inputs=lambda part: torch.full((1, 2, 3), float(part)))
    torch.testing.assert_close(model.running_mean, torch.full((2,), 0.55))


def test_batch_statistics_of_bfloat16_are_folded() -> None:
    model = torch.nn.BatchNorm1d(2).bfloat16()
    run(state_of(model), model, inputs=lambda _: torch.randn(4, 2, dtype=torch.bfloat16))
    assert int(model.num_batches_tracked or 0) == PARTS


def test_the_mean_of_infinite_scalars_is_a_scalar() -> None:
    mean = exact_mean([np.array(np.inf, np.float32)] * 2)
    assert (mean.shape, float(mean)) == ((), np.inf)


def test_an_error_in_a_part_that_is_caught_fails_the_step_on_all_ranks() -> None:
    state = state_of(Weight())

    def go_on_after_an_error() -> None:
        for part in state.parts():
            with contextlib.suppress(ArithmeticError), part:
                state.model(torch.ones(3)).backward()
                if part.index == 0:
                    raise ArithmeticError

    with pytest.raises(RuntimeError, match="a rank left the loop"):
        go_on_after_an_error()
    assert gradient_of(state, lambda part: torch.full((3,), float(part))).tolist() == [5.5] * 3


@several
def test_adagrad_loads_its_state_after_a_broadcast() -> None:
    model = Weight()
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.Adagrad(model.parameters()), model.named_parameters(), reproducible=True
    )
    sampler = hvd.elastic.ConstantBatchSampler(range(100), 2, PARTS)
    gradient_of(
        hvd.elastic.TorchState(model, optimizer, sampler=sampler), lambda part: torch.ones(3)
    )
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    optimizer.load_state_dict(optimizer.state_dict())
