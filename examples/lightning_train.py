"""Lightning's Trainer on Sirtaki: the strategy's name is all that a script changes.

    horovodrun -np 2 python examples/lightning_train.py
    torchrun --nproc-per-node 2 examples/lightning_train.py

The network learns which points lie within a circle.
"""

from __future__ import annotations

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import horovod.lightning  # noqa: F401  (registers the strategies "sirtaki" and "horovod")


class Circle(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        points, inside = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(points), inside)

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        points, inside = batch
        right = ((self.net(points) > 0) == (inside > 0.5)).float().mean()
        self.log("accuracy", right, sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def circle(count: int) -> TensorDataset:
    points = torch.rand(count, 2) * 2 - 1
    return TensorDataset(points, (points.square().sum(1, keepdim=True) < 0.5).float())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    lightning.seed_everything(1, verbose=False)  # the same points on all ranks
    trainer = lightning.Trainer(
        strategy="sirtaki",
        accelerator="cpu",
        devices=1,  # the starter says how many ranks there are
        max_epochs=args.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # Lightning gives each rank rows of its own.
    trainer.fit(Circle(), DataLoader(circle(2000), 32, shuffle=True), DataLoader(circle(500), 100))
    if trainer.is_global_zero:
        accuracy = float(trainer.callback_metrics["accuracy"])
        print(f"{trainer.world_size} ranks, accuracy {accuracy:.2f}", flush=True)


if __name__ == "__main__":
    main()
