"""Lightning's Trainer and Fabric with a strategy, told by name; prints what each run learns.

Arguments: the strategy, the backend that is to move the data, and a folder of all ranks.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
import torchmetrics
from lightning.pytorch.callbacks import ModelCheckpoint
from small import network, rows
from torch import nn
from torch.utils.data import DataLoader

import sirtaki.torch.distributed as ours

strategy, backend, folder = sys.argv[1:]
if strategy != "ddp":
    import horovod.lightning  # noqa: F401
warnings.simplefilter("ignore")


class Module(lightning.LightningModule):
    """What is trained, with all that needs other ranks."""

    def __init__(self, batch_size: int = 4) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.net = network()
        self.error = torchmetrics.MeanSquaredError()
        self.seen: list[int] = []

    def train_dataloader(self) -> DataLoader[Any]:
        """Return all rows, which Lightning shards."""
        return DataLoader(rows(), batch_size=self.batch_size)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss; its mean over the ranks, and a metric of all rows, are logged."""
        self.seen.append(len(batch[0]))
        out = self.net(batch[0])
        loss = nn.functional.mse_loss(out, batch[1])
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        self.error(out, batch[1])
        self.log("error", self.error, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimizer and a schedule."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def trainer(**options: Any) -> lightning.Trainer:
    """Return a Trainer without anything that writes."""
    given = {"callbacks": [], "enable_checkpointing": False, **options}
    return lightning.Trainer(
        accelerator="cpu",
        devices=2 if strategy == "ddp" else 1,
        strategy=strategy,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **given,
    )


def told(parameters: Iterable[torch.Tensor]) -> list[float]:
    """Return numbers that show the parameters, the same on both ranks."""
    flat = torch.cat([p.detach().double().flatten() for p in parameters])
    both = [torch.empty_like(flat) for _ in range(2)]
    dist.all_gather(both, flat)
    assert torch.equal(*both)
    return flat[:8].tolist()


def fit(accumulated: int) -> dict[str, Any]:
    """Train with clipping, logged means, and a metric of all rows."""
    torch.manual_seed(0)
    module = Module()
    runs = trainer(
        max_epochs=2,
        accumulate_grad_batches=accumulated,
        gradient_clip_val=0.5,
    )
    runs.fit(module)
    metrics = {name: float(value) for name, value in runs.callback_metrics.items()}
    rate = runs.optimizers[0].param_groups[0]["lr"]
    return {
        "weights": told(module.parameters()),
        "metrics": metrics,
        "rows": sum(module.seen),
        "rate": rate,
    }


def resumed() -> list[float]:
    """Train for an epoch, save, and train another one from the checkpoint."""
    torch.manual_seed(0)
    saver = ModelCheckpoint(dirpath=folder, filename=strategy, save_weights_only=False)
    trainer(max_epochs=1, callbacks=[saver], enable_checkpointing=True).fit(Module())
    module = Module()
    trainer(max_epochs=2).fit(module, ckpt_path=Path(folder, f"{strategy}.ckpt"))
    return told(module.parameters())


def by_fabric() -> list[float]:
    """Train by Fabric, with accumulation and clipping."""
    fabric = lightning.Fabric(
        accelerator="cpu", devices=2 if strategy == "ddp" else 1, strategy=strategy
    )
    fabric.launch()
    torch.manual_seed(fabric.global_rank)
    net = network()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    loader = fabric.setup_dataloaders(DataLoader(rows(), batch_size=4))
    for number, (inputs, targets) in enumerate(loader):
        adds = number % 2 == 0
        with fabric.no_backward_sync(model, enabled=adds):
            fabric.backward(nn.functional.mse_loss(model(inputs), targets))
        if not adds:
            fabric.clip_gradients(model, optimizer, max_norm=0.5)
            optimizer.step()
            optimizer.zero_grad()
    assert float(fabric.all_reduce(torch.tensor(float(fabric.global_rank)))) == 0.5
    return told(model.parameters())


learned = {
    "each batch": fit(1),
    "accumulation": fit(3),
    "resumed": resumed(),
    "fabric": by_fabric(),
}
assert ours.moved_by() == backend, ours.moved_by()
if dist.get_rank() == 0:
    print("@" + json.dumps(learned), flush=True)
dist.destroy_process_group()
