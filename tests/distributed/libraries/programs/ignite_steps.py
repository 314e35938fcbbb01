"""Ignite, which knows backends by name."""

from __future__ import annotations

import ignite.distributed as idist
import torch
from ignite.engine import Engine
from ignite.metrics import Average
from small import network, own_batches, tell
from torch import nn


def train(_: int) -> None:
    """Train on one rank."""
    model = idist.auto_model(network())
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))

    def step(_: Engine, batch: list[torch.Tensor]) -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    Average().attach(trainer, "loss")
    trainer.run(own_batches(), max_epochs=2)
    tell(model.parameters())


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(train)
