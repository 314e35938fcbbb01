"""A rank of lightning_fit.py: the same training by two strategies, in turn."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from dataclasses import dataclass
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from models import Mlp
from peers import GLOO
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from train_rank import OURS

import horovod.lightning  # noqa: F401
import horovod.torch as hvd

Cases = dict[str, dict[str, dict[str, float]]]
FIT, STEP, PROCESSOR = "fit", "step", "processor's time of a fit"


@dataclass(frozen=True)
class Work:
    """What is measured: models by name, batches of a fit, and turns of each contender."""

    models: dict[str, Mlp]
    steps: int
    rounds: int


class Trained(lightning.LightningModule):
    """A model, and when each of its batches began."""

    def __init__(self, mlp: Mlp) -> None:
        super().__init__()
        self.net = mlp.model()
        self.began: list[float] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        self.began.append(time.perf_counter())
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def measure(work: Work) -> Cases:
    """Return seconds by model and contender: of a whole fit, of a step in it, of the processor."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    hvd.shutdown()
    cases: Cases = {}
    for name, mlp in work.models.items():
        taken: dict[str, list[tuple[float, ...]]] = {OURS: [], GLOO: []}
        for turn in range(work.rounds + 1):
            for contender in sorted(taken, reverse=bool(turn % 2)):
                seconds = fit(mlp, contender, work.steps)
                # Of the first turn, modules are still loaded.
                taken[contender] += [seconds] * bool(turn)
        for number, what in enumerate((FIT, STEP, PROCESSOR)):
            cases[f"{name}, {what}"] = {
                contender: _summary([each[number] for each in seconds])
                for contender, seconds in taken.items()
            }
    return cases


def fit(mlp: Mlp, contender: str, steps: int) -> tuple[float, ...]:
    """Train from nothing; return seconds from making the Trainer to its end, and the others."""
    torch.manual_seed(0)
    module = Trained(mlp)
    inputs = torch.randn(2 * steps * mlp.batch, mlp.width)
    loader = DataLoader(TensorDataset(inputs, torch.tanh(inputs)), batch_size=mlp.batch)
    environment = dict(os.environ)
    _meet()
    began, used = time.perf_counter(), time.process_time()
    strategy = "sirtaki" if contender == OURS else DDPStrategy(process_group_backend="gloo")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1 if contender == OURS else 2,
        strategy=strategy,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    whole, used = time.perf_counter() - began, time.process_time() - used
    assert len(module.began) == steps, len(module.began)
    # The first step of DDP arranges its buckets anew.
    apart = [b - a for a, b in zip(module.began[1:], module.began[2:], strict=False)]
    dist.destroy_process_group()
    hvd.shutdown()
    # Lightning removes some when a fit ends.
    os.environ.update(environment)
    return whole, statistics.median(apart), used


def _meet() -> None:
    """Begin together, and with no world."""
    hvd.init()
    hvd.barrier()
    hvd.shutdown()


def _summary(seconds: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}
