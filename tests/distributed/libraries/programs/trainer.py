"""The Trainer of transformers, which starts as Accelerate does."""

from __future__ import annotations

import tempfile

import torch
from small import network, rows, tell
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed


class Model(nn.Module):
    """What a Trainer trains: it returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss and what it is of."""
        found = self.net(inputs)
        return {"loss": nn.functional.mse_loss(found, labels), "logits": found}


set_seed(5)
data = [{"inputs": inputs, "labels": wanted} for inputs, wanted in rows()]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=4,
        num_train_epochs=2,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="no",
        eval_strategy="epoch",
        disable_tqdm=True,
        seed=5,
    )
    trainer = Trainer(Model(), arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
tell(trainer.model.parameters())
