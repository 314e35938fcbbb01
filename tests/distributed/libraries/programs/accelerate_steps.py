"""Accelerate, which knows Gloo alone on CPUs and makes its group itself."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from small import network, rows, tell
from torch import nn
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = network()
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(rows(), batch_size=4)
)
for inputs, wanted in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.mse_loss(model(inputs), wanted)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
assert accelerator.gather(torch.tensor([accelerator.process_index])).tolist() == [0, 1]
assert accelerator.reduce(torch.ones(2)).tolist() == [2.0, 2.0]
tell(model.parameters())
accelerator.end_training()
