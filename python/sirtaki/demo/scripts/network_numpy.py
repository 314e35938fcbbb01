"""A network of two layers in NumPy, and the operations of its ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from shapes import KINDS, SIDE

import sirtaki as hvd
from sirtaki import elastic

FRAMEWORK = "NumPy"
BATCH_SIZE = 2048  # images per step and process
HIDDEN = 256
LEARNING_RATE = 0.4


class Network:
    """Learns the kinds of shapes.

    Args:
        exchange: Average the gradients over all processes; else each process learns for itself.
    """

    def __init__(self, exchange: bool = True) -> None:
        random = np.random.default_rng(0)  # all processes start from the same weights
        self.exchange = exchange
        self.holder: Any = SimpleNamespace(
            weights=[
                random.normal(0, 0.03, (SIDE * SIDE, HIDDEN)).astype(np.float32),
                np.zeros(HIDDEN, np.float32),
                random.normal(0, 0.05, (HIDDEN, KINDS)).astype(np.float32),
                np.zeros(KINDS, np.float32),
            ]
        )

    def step(self, images: np.ndarray, kinds: np.ndarray) -> float:
        """Learn from a batch; return the loss."""
        hidden, shares = self._forward(images)
        each = np.arange(len(kinds))
        loss = -np.log(shares[each, kinds]).mean()
        shares[each, kinds] -= 1
        output = shares / np.float32(len(kinds))
        back = (output @ self.holder.weights[2].T) * (hidden > 0)
        flat = images.reshape(len(images), -1)
        gradients = [flat.T @ back, back.sum(0), hidden.T @ output, output.sum(0)]
        if self.exchange:
            hvd.grouped_allreduce_(gradients, name="gradients")
        for weight, gradient in zip(self.holder.weights, gradients, strict=True):
            weight -= LEARNING_RATE * gradient
        return float(loss)

    def accuracy(self, images: np.ndarray, kinds: np.ndarray) -> float:
        """Return the share of images that are recognised."""
        _, shares = self._forward(images)
        return float((shares.argmax(1) == kinds).mean())

    def _forward(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden layer, and the probability of each kind for each image."""
        into, bias, out, last = self.holder.weights
        hidden = np.maximum(images.reshape(len(images), -1) @ into + bias, 0)
        scores = hidden @ out + last
        shares = np.exp(scores - scores.max(1, keepdims=True))
        return hidden, shares / shares.sum(1, keepdims=True)

    def elastic_state(self, **more: Any) -> elastic.ObjectState:
        """Return the state that processes keep when others are lost."""
        self.holder = elastic.ObjectState(
            hvd.broadcast_object, hvd.rank, weights=self.holder.weights, **more
        )
        return self.holder


def mean(value: float, name: str) -> float:
    """Return the mean over all processes."""
    return float(hvd.allreduce(np.array(value), name=name))
