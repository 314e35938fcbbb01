"""Accelerate on Sirtaki's groups: one line before `Accelerator`, whatever starts the processes.

    horovodrun -np 2 python examples/huggingface_accelerate.py
    torchrun --nproc-per-node 2 examples/huggingface_accelerate.py

The line serves `TrainingArguments(use_cpu=True)` of transformers too.
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sirtaki.torch.distributed

parser = argparse.ArgumentParser(description="Accelerate on Sirtaki's groups.")
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

sirtaki.torch.distributed.init()  # the one line
accelerator = Accelerator(cpu=True)

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs @ torch.randn(8, 1)
loader = DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=True)
model = nn.Linear(8, 1)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), loader
)
for epoch in range(args.epochs):
    for batch, wanted in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), wanted)
        accelerator.backward(loss)
        optimizer.step()
    mean = accelerator.gather(loss.detach().reshape(1)).mean()
    accelerator.print(f"epoch {epoch}: loss {mean:.5f}")
moved_by = sirtaki.torch.distributed.moved_by()
accelerator.print(f"{accelerator.num_processes} processes, moved by {moved_by}")
accelerator.end_training()
