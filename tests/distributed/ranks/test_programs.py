"""What PyTorch builds on a process group works on ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 4)).double()


def batch(of: int) -> torch.Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(of)).double()


def alone(steps: int = 3) -> nn.Module:
    """What one process learns from all ranks' batches."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sum(model(batch(of)).square().mean() for of in range(size())) / size()
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch(rank())).square().mean().backward()
        optimizer.step()


def assert_equal_to_alone(state: dict[str, torch.Tensor]) -> None:
    wanted = alone().state_dict()
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, wanted[name.removeprefix("module.")])


@pytest.mark.parametrize("view", [False, True])
def test_ddp_learns_what_one_process_does(view: bool) -> None:
    model = DistributedDataParallel(network(), gradient_as_bucket_view=view)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert_equal_to_alone(model.state_dict())


def gradient_of(model: nn.Module, of: int) -> torch.Tensor:
    """The first layer's gradient of one rank's batch."""
    model.zero_grad()
    model(batch(of)).sum().backward()
    return model[0].weight.grad.clone()


def test_ddp_synchronizes_only_when_it_is_to() -> None:
    alone = [gradient_of(network(), of) for of in range(size())]
    model = DistributedDataParallel(network())
    with model.no_sync():
        model(batch(rank())).sum().backward()
    torch.testing.assert_close(model.module[0].weight.grad, alone[rank()])
    model(batch(rank())).sum().backward()
    torch.testing.assert_close(model.module[0].weight.grad, 2 * sum(alone) / size())


@pytest.mark.parametrize("hook", ["fp16", "powersgd"])
def test_ddp_takes_communication_hooks(hook: str) -> None:
    model = DistributedDataParallel(network().float())
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    else:
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(batch(rank()).float()).square().mean().backward()
        optimizer.step()
    gathered = [torch.zeros_like(model.module[0].weight) for _ in range(size())]
    dist.all_gather(gathered, model.module[0].weight.detach())
    assert all(torch.equal(gathered[0], other) for other in gathered)


@pytest.mark.parametrize("by_all", [True, False])
def test_ddp_joins_ranks_with_less_data(by_all: bool) -> None:
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join(divide_by_initial_world_size=by_all):
        train(model, optimizer, steps=2 + rank())
    wanted = network()
    optimizer = torch.optim.SGD(wanted.parameters(), lr=0.1)
    for step in range(1 + size()):
        optimizer.zero_grad()
        active = [of for of in range(size()) if step < 2 + of]
        # Who has no more data counts with a gradient of zero, or does not count.
        counted = size() if by_all else len(active)
        sum(wanted(batch(of)).square().mean() / counted for of in active).backward()
        optimizer.step()
    for own, other in zip(model.module.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(own, other)


def test_zero_redundancy_optimizer_shards_its_state() -> None:
    model = DistributedDataParallel(network())
    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1))
    assert_equal_to_alone(model.state_dict())


def test_fsdp_learns_what_one_process_does() -> None:
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with FullyShardedDataParallel.summon_full_params(model):
        assert_equal_to_alone(dict(model.module.state_dict()))


def test_fsdp2_learns_what_one_process_does() -> None:
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (size(),)))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    full = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}
    assert_equal_to_alone(full)


def test_tensor_parallel_layers_give_what_whole_ones_do() -> None:
    mesh = init_device_mesh("cpu", (size(),))
    whole, cut = network(), network()
    parallelize_module(cut, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(cut(batch(1)), whole(batch(1)))


def test_distributed_tensors_change_their_placement() -> None:
    mesh = init_device_mesh("cpu", (size(),))
    tensor = torch.arange(12.0 * size()).view(4 * size(), 3)
    sharded = distribute_tensor(tensor, mesh, [Shard(0)])
    assert sharded.to_local().shape == (4, 3)
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), tensor)
    assert sharded.sum().full_tensor() == tensor.sum()


def test_functional_collectives_are_compiled() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return all_gather_tensor(all_reduce(x * 2, "sum", dist.group.WORLD), 0, dist.group.WORLD)

    x = torch.ones(3) * (rank() + 1)
    wanted = torch.full((3 * size(),), float(size() * (size() + 1)))
    compiled = torch.compile(program, backend="aot_eager")
    assert torch.equal(program(x), wanted)
    assert torch.equal(compiled(x), wanted)


def test_checkpoints_are_saved_and_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: list[str | None] = [str(tmp_path_factory.mktemp("saved")) if rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    assert folder[0] is not None
    saved = {"shared": torch.arange(5.0), "own": {f"rank {rank()}": torch.full((2,), rank() + 1.0)}}
    checkpoint.save(saved, checkpoint_id=Path(folder[0]))
    loaded = {"shared": torch.zeros(5), "own": {f"rank {rank()}": torch.zeros(2)}}
    checkpoint.load(loaded, checkpoint_id=Path(folder[0]))
    assert torch.equal(loaded["shared"], torch.arange(5.0))
    assert loaded["own"][f"rank {rank()}"].tolist() == [rank() + 1.0] * 2
