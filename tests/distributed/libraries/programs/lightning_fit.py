"""Lightning's Trainer with its strategies, which take the name of any backend."""

from __future__ import annotations

import sys
import warnings

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from small import network, rows, tell
from torch import nn
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")
backend, kind = sys.argv[1:]


class Module(lightning.LightningModule):
    """What is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss; its mean over the ranks is logged."""
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        self.log("rows", torch.tensor(len(batch[0])), sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self) -> None:
        """Tell while the group is there."""
        tell(self.parameters())


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=DDPStrategy(process_group_backend=backend),
    max_epochs=2,
    accumulate_grad_batches=3 if kind == "accumulation" else 1,
    gradient_clip_val=0.5,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), DataLoader(rows(), batch_size=4))
