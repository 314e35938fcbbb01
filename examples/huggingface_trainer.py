"""Transformers' Trainer on Sirtaki's groups: one line before `TrainingArguments`.

    horovodrun -np 2 python examples/huggingface_trainer.py
    torchrun --nproc-per-node 2 examples/huggingface_trainer.py
    accelerate launch --multi_gpu --num_processes 2 examples/huggingface_trainer.py

`--multi_gpu` is what makes `accelerate launch` start several processes, on CPUs too.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

import sirtaki.torch.distributed


class Line(nn.Module):
    """A Trainer trains what returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.layer(inputs)
        return {"loss": nn.functional.mse_loss(found, labels), "logits": found}


parser = argparse.ArgumentParser(description="Transformers' Trainer on Sirtaki's groups.")
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

sirtaki.torch.distributed.init()  # the one line
torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs @ torch.randn(8, 1)
data = [{"inputs": row, "labels": wanted} for row, wanted in zip(inputs, targets, strict=True)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=16,
        num_train_epochs=args.epochs,
        learning_rate=0.1,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        log_level="error",
    )
    trainer = Trainer(Line(), arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
if trainer.is_world_process_zero():
    moved_by = sirtaki.torch.distributed.moved_by()
    print(f"loss {loss:.5f}\n{arguments.world_size} processes, moved by {moved_by}", flush=True)
