"""A small convolutional network in PyTorch, and the operations of its ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from shapes import KINDS
from torch import nn
from torch.nn import functional

import sirtaki.torch as hvd

FRAMEWORK = "PyTorch"
BATCH_SIZE = 512  # images per step and process


class Network:
    """Learns the kinds of shapes.

    Args:
        exchange: Average the gradients over all processes; else each process learns for itself.
    """

    def __init__(self, exchange: bool = True) -> None:
        torch.manual_seed(0)  # all processes start from the same weights
        self.model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1568, 64),
            nn.ReLU(),
            nn.Linear(64, KINDS),
        )
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.model.parameters(), lr=0.005)
        if exchange:
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer, named_parameters=self.model.named_parameters()
            )

    def step(self, images: np.ndarray, kinds: np.ndarray) -> float:
        """Learn from a batch; return the loss."""
        self.optimizer.zero_grad()
        output = self.model(torch.from_numpy(images).unsqueeze(1))
        loss = functional.cross_entropy(output, torch.from_numpy(kinds))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, images: np.ndarray, kinds: np.ndarray) -> float:
        """Return the share of images that are recognised."""
        found = self.model(torch.from_numpy(images).unsqueeze(1)).argmax(1)
        return (found == torch.from_numpy(kinds)).float().mean().item()

    def elastic_state(self, **more: Any) -> hvd.elastic.TorchState:
        """Return the state that processes keep when others are lost."""
        return hvd.elastic.TorchState(self.model, self.optimizer, **more)


def mean(value: float, name: str) -> float:
    """Return the mean over all processes."""
    return hvd.allreduce(torch.tensor(value), name=name).item()
