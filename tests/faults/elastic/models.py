"""Small models of handwritten digits, and the hash of all that their training has made."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

CLASSES = 10


def digits(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first pictures of scikit-learn's digits, (count, 1, 8, 8), and their labels."""
    package = importlib.util.find_spec("sklearn")  # not imported, which takes a second
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets/data/digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(path, np.float32, delimiter=",", max_rows=count))
    return rows[:, :-1].reshape(count, 1, 8, 8) / 16, rows[:, -1].long()


class Transformer(torch.nn.Module):
    """Attends to the rows of a picture, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(8, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, CLASSES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.layers(self.embed(pictures.flatten(0, 1)))
        out: torch.Tensor = self.head(rows.mean(1))
        return out


def lenet(norm: bool) -> torch.nn.Module:
    layers: Iterable[torch.nn.Module] = (
        torch.nn.Conv2d(1, 6, 3),
        torch.nn.BatchNorm2d(6) if norm else torch.nn.Identity(),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(54, 32),
        torch.nn.Tanh(),
        torch.nn.Linear(32, CLASSES),
    )
    return torch.nn.Sequential(*layers)


def model_of(name: str) -> torch.nn.Module:
    """Return a "transformer" with dropout, or LeNet: "norm" with batch normalization, "plain"."""
    return Transformer() if name == "transformer" else lenet(name == "norm")


def digest(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Return the SHA-256 of a model's parameters and buffers and of the optimizer's state."""
    moments = [
        value
        for kept in optimizer.state_dict()["state"].values()
        for value in kept.values()
        if isinstance(value, torch.Tensor)
    ]
    found = hashlib.sha256()
    for tensor in (*model.state_dict().values(), *moments):
        found.update(tensor.detach().numpy().tobytes())
    return found.hexdigest()
