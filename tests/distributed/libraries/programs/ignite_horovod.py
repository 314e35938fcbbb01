"""Ignite by its own backend for Horovod, which imports `horovod.torch`."""

from __future__ import annotations

import ignite.distributed as idist
import torch
from small import network, own_batches
from torch import nn

import horovod.torch as hvd


def train(_: int) -> None:
    """Train on one rank, and compare with the others."""
    assert idist.backend() == "horovod"
    assert (idist.get_rank(), idist.get_world_size()) == (hvd.rank(), hvd.size())
    model = idist.auto_model(network())
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    for inputs, wanted in own_batches():
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    learned = idist.all_gather(flat).reshape(idist.get_world_size(), -1)
    assert all(torch.equal(learned[0], other) for other in learned)
    assert idist.all_reduce(idist.get_rank() + 1) == 3
    assert idist.broadcast(torch.full((2,), float(idist.get_rank())), src=1).tolist() == [1.0, 1.0]
    idist.barrier()
    print(f"@equal on {idist.get_world_size()}")


with idist.Parallel(backend="horovod") as parallel:
    parallel.run(train)
