"""Ignite by its own backend for Horovod, which works as it is.

    horovodrun -np 2 python examples/ignite_train.py

The network learns which points lie within a circle.
"""

from __future__ import annotations

import argparse

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average
from torch import nn


def train(local_rank: int, epochs: int) -> None:
    torch.manual_seed(idist.get_rank())  # each rank draws points of its own
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    # These two broadcast the parameters and wrap the optimizer by `horovod.torch`.
    model = idist.auto_model(net)
    optimizer = idist.auto_optim(torch.optim.Adam(model.parameters(), lr=0.02))

    def step(engine: Engine, batch: torch.Tensor) -> float:
        inside = (batch.square().sum(1, keepdim=True) < 0.5).float()
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), inside)
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    Average().attach(trainer, "loss")  # over the batches of all ranks

    @trainer.on(Events.EPOCH_COMPLETED)
    @idist.one_rank_only()
    def tell(engine: Engine) -> None:
        print(f"epoch {engine.state.epoch}: loss {engine.state.metrics['loss']:.3f}", flush=True)

    trainer.run([torch.rand(64, 2) * 2 - 1 for _ in range(50)], max_epochs=epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    with idist.Parallel(backend="horovod") as parallel:
        parallel.run(train, args.epochs)


if __name__ == "__main__":
    main()
