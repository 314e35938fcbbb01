"""What is trained: each makes a model and a batch of inputs and targets."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]

# Of `Waiting`: seconds of a step, and the part of them that is the backward pass.
LAYERS = 20
COMPUTE_SECONDS = 0.3
BACKWARD_SHARE = 2 / 3


@dataclass(frozen=True)
class Mlp:
    """Linear layers of width x width, each followed by ReLU."""

    layers: int
    width: int
    batch: int

    def model(self) -> nn.Module:
        pairs = ((nn.Linear(self.width, self.width), nn.ReLU()) for _ in range(self.layers))
        return nn.Sequential(*(module for pair in pairs for module in pair))

    def data(self) -> Batch:
        return torch.randn(self.batch, self.width), torch.randn(self.batch, self.width)


@dataclass(frozen=True)
class Convolutions:
    """Twenty 3x3 convolutions of 32 channels on 32x32 images, halved after every fifth."""

    batch: int

    def model(self) -> nn.Module:
        modules: list[nn.Module] = []
        for layer in range(20):
            modules += [nn.Conv2d(32 if layer else 3, 32, 3, padding=1), nn.ReLU()]
            if layer % 5 == 4:
                modules.append(nn.MaxPool2d(2))
        return nn.Sequential(*modules, nn.Flatten(), nn.Linear(32 * 4, 10))

    def data(self) -> Batch:
        return torch.randn(self.batch, 3, 32, 32), torch.randn(self.batch, 10)


class _Scattered(nn.Module):
    """Many parameters whose gradients cost next to nothing to compute."""

    def __init__(self, count: int, elements: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.randn(elements) for _ in range(count))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat(tuple(self.parts)) * inputs


@dataclass(frozen=True)
class ManySmall:
    """Parameters of so many float32 elements each, in an elementwise product."""

    count: int
    elements: int

    def model(self) -> nn.Module:
        return _Scattered(self.count, self.elements)

    def data(self) -> Batch:
        total = self.count * self.elements
        return torch.randn(total), torch.randn(total)


class _Wait(torch.autograd.Function):
    """Takes as long as a layer's computation, without needing a core for it."""

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, seconds: float
    ) -> torch.Tensor:
        time.sleep(seconds * (1 - BACKWARD_SHARE) / LAYERS)
        ctx.save_for_backward(weight)
        ctx.seconds = seconds
        return inputs + 0

    @staticmethod
    def backward(ctx: Any, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        time.sleep(ctx.seconds * BACKWARD_SHARE / LAYERS)
        (weight,) = ctx.saved_tensors
        return output, torch.ones_like(weight), None


class Waiting(nn.Module):
    """Layers whose gradients cost time and no computing."""

    def __init__(self, gradient_bytes: int, seconds: float = COMPUTE_SECONDS) -> None:
        super().__init__()
        self.seconds = seconds
        elements = gradient_bytes // 4 // LAYERS
        self.layers = nn.ParameterList(torch.zeros(elements) for _ in range(LAYERS))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for weight in self.layers:
            inputs = _Wait.apply(inputs, weight, self.seconds)
        return inputs


Task = Mlp | Convolutions | ManySmall
