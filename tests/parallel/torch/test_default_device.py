"""A default device other than the CPU changes nothing: here one that holds no data at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import sirtaki.torch as hvd
from tests.parallel.torch.models import (
    Data,
    data_of,
    distributed,
    loss_of,
    model,
    sgd,
)


@pytest.fixture
def data() -> Data:
    return data_of(hvd.rank())


@pytest.fixture
def cpu() -> torch.Tensor:
    return torch.full((hvd.size(), 2), float(hvd.rank()))


@pytest.fixture
def meta(data: Data, cpu: torch.Tensor) -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


pytestmark = pytest.mark.usefixtures("meta")


def test_collectives_that_move_rows(cpu: torch.Tensor) -> None:
    splits = torch.ones(hvd.size(), dtype=torch.int32, device="cpu")
    for output in (
        hvd.allgather(cpu),
        hvd.allgather(cpu[:0]),
        hvd.alltoall(cpu),
        *hvd.alltoall(cpu, splits),
        *hvd.alltoall(cpu, [1] * hvd.size()),
        hvd.reducescatter(cpu),
    ):
        assert output.device.type == "cpu"


def test_gradients_of_an_allgather(cpu: torch.Tensor) -> None:
    x = cpu.requires_grad_()
    hvd.allgather(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 1.0]] * hvd.size()


def test_sparse_allreduce(cpu: torch.Tensor) -> None:
    sparse = (cpu + 1).to_sparse()
    total = hvd.synchronize(hvd.sparse_allreduce_async(sparse, name="default", op=hvd.Sum))
    assert total.device.type == "cpu"
    assert total.to_dense()[0, 0] == sum(range(1, hvd.size() + 1))


def test_objects() -> None:
    tensor = torch.ones(2, device="cpu")
    assert hvd.broadcast_object({"rank": hvd.rank(), "t": tensor}, 0)["rank"] == 0
    assert len(hvd.allgather_object((hvd.rank(), tensor))) == hvd.size()


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"op": hvd.Adasum}], ids=str)
def test_training(data: Data, options) -> None:
    with torch.device("cpu"):
        net = model()
    optimizer = distributed(net, **options)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(net, data).backward()
        optimizer.step()
    assert all(p.device.type == "cpu" for p in net.parameters())


def test_a_search_with_everybodys_loss(data: Data) -> None:
    def lbfgs(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(net.parameters(), max_iter=3)

    with torch.device("cpu"):
        net = model()
    optimizer = hvd.DistributedOptimizer(lbfgs(net))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(net, data)
        loss.backward()
        return loss

    assert optimizer.step(closure).device.type == "cpu"


def test_optimizer_state(data: Data) -> None:
    with torch.device("cpu"):
        net = model()
        optimizer = sgd(net)
        if hvd.rank() == 0:
            loss_of(net, data).backward()
            optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for p in net.parameters():
        assert optimizer.state[p]["momentum_buffer"].device.type == "cpu"


def test_normalised_batches(cpu: torch.Tensor) -> None:
    with torch.device("cpu"):
        layer, batch = hvd.SyncBatchNorm(2), torch.cat([cpu, cpu])
    assert layer(batch).device.type == "cpu"


def test_missing_sparse_gradients() -> None:
    with torch.device("cpu"):
        net = nn.Embedding(4, 2, sparse=True)
        used = torch.tensor([1])
    optimizer = distributed(net, op=hvd.Sum)
    if hvd.rank() == 0:
        net(used).sum().backward()
    optimizer.step()
    if hvd.size() > 1:
        assert net.weight.grad.device.type == "cpu"
        assert net.weight.grad.to_dense()[1].tolist() == [1.0, 1.0]
