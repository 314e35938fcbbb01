"""Pipeline schedules, and checkpoints that are saved meanwhile, on our groups."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

MICROBATCHES = 8


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def layer(number: int) -> nn.Module:
    torch.manual_seed(number)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh()).double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(99)
    shape = (2 * MICROBATCHES, 6)
    inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(shape, generator=generator, dtype=torch.float64)


def gradients_of_one_process() -> tuple[float, list[torch.Tensor]]:
    """The loss, and the gradients of this rank's layer in the whole model."""
    layers = [layer(number) for number in range(size())]
    inputs, targets = batch()
    loss = nn.functional.mse_loss(nn.Sequential(*layers)(inputs), targets)
    loss.backward()
    found = [p.grad for p in layers[rank()].parameters()]
    return loss.item(), [grad for grad in found if grad is not None]


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
def test_a_pipeline_learns_what_one_process_does(schedule: type) -> None:
    own = layer(rank())
    stage = PipelineStage(own, rank(), size(), torch.device("cpu"))
    pipeline = schedule(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    inputs, targets = batch()
    losses: list[torch.Tensor] = []
    last = rank() == size() - 1
    labels = {"target": targets, "losses": losses} if last else {}
    pipeline.step(*([inputs] if rank() == 0 else []), **labels)
    loss, wanted = gradients_of_one_process()
    for parameter, gradient in zip(own.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    if last:
        assert sum(each.item() for each in losses) / MICROBATCHES == pytest.approx(loss)


def test_a_checkpoint_is_saved_while_the_program_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder: list[str | None] = [str(tmp_path_factory.mktemp("saved")) if rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    assert folder[0] is not None
    mesh = init_device_mesh("cpu", (size(),))
    wanted = torch.arange(4.0 * size())
    sharded = distribute_tensor(wanted, mesh, [Shard(0)])
    # Of its own: the thread that saves must not come between our operations.
    group = dist.new_group(list(range(size())))
    saving = checkpoint.async_save(
        {"sharded": sharded}, checkpoint_id=Path(folder[0]), process_group=group
    )
    for _ in range(20):
        dist.all_reduce(torch.ones(1000))
    sharded.to_local().zero_()
    saving.result()
    loaded: dict[str, DTensor] = {"sharded": distribute_tensor(0 * wanted, mesh, [Shard(0)])}
    checkpoint.load(loaded, checkpoint_id=Path(folder[0]))
    assert torch.equal(loaded["sharded"].full_tensor(), wanted)
