"""Autograd and the optimizer with tensors on an accelerator."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd
from tests.parallel.device.fake_device import FakeDevice


def trained(**options: object) -> list[torch.Tensor]:
    """The parameters of a small model after three steps, each rank with data of its own."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
        **options,
    )
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 4, generator=generator)).square().sum().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 1e-6),
        ({"compression": hvd.Compression.fp16}, 2e-3),
        ({"groups": 1}, 1e-6),
        ({"op": hvd.Sum}, 1e-6),
        ({"gradient_predivide_factor": 2.0}, 1e-6),
    ],
    ids=["plain", "fp16", "one group", "sum", "predivided"],
)
def test_the_optimizer_steps_as_on_the_hosts(
    eager_device: FakeDevice, options: dict[str, object], tolerance: float
) -> None:
    on_device = trained(**options)
    with eager_device.host_tensors():
        on_host = trained(**options)
    torch.testing.assert_close(on_device, on_host, rtol=1e-6, atol=tolerance)
    assert eager_device.groups == 1


def test_gradients_flow_through_operations(eager_device: FakeDevice) -> None:
    leaf = torch.ones(hvd.rank() + 1, requires_grad=True)
    hvd.allgather(leaf).mul(3.0).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3.0] * (hvd.rank() + 1)


def test_batch_normalisation_is_synchronized(eager_device: FakeDevice) -> None:
    layer = hvd.SyncBatchNorm(2)
    values = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(hvd.rank()))
    on_device = layer(values)
    with eager_device.host_tensors():
        on_host = hvd.SyncBatchNorm(2)(values)
    torch.testing.assert_close(on_device, on_host)
