"""Batches as tensors, and losses of several outputs with weights."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Loss = Callable[..., torch.Tensor]


def tensor(array: Any, shape: Sequence[int] | None = None) -> torch.Tensor:
    """Return an array or tensor as a tensor, in a shape such as [-1, 28, 28] if given."""
    made = torch.as_tensor(array)
    return made if shape is None else made.reshape(*shape)


def tensors(
    rows: Mapping[str, Any], names: Sequence[str], shapes: Sequence[Sequence[int]] | None
) -> list[torch.Tensor]:
    """Return some columns of a batch as tensors."""
    each: Sequence[Sequence[int] | None] = shapes or [None] * len(names)
    return [tensor(rows[name], shape) for name, shape in zip(names, each, strict=True)]


def as_list(outputs: Any) -> list[torch.Tensor]:
    """Return the outputs of a model, one for each label."""
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def losses_of(given: Any, labels: int) -> list[Loss]:
    """Return a loss for each label; a single one is repeated. Raises ValueError."""
    losses = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(losses) == 1:
        losses *= labels
    if len(losses) != labels:
        raise ValueError(f"{len(losses)} losses were given for {labels} label columns")
    return losses


def by_sample(loss: Loss) -> Loss:
    """Return a loss with a value for each sample, to be multiplied by weights.

    Raises:
        ValueError: It lacks the `reduction` of `torch.nn` and `torch.nn.functional` losses.
    """
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        copied = copy.copy(loss)
        copied.reduction = "none"  # type: ignore[assignment]
        return copied
    if "reduction" in inspect.signature(loss).parameters:
        return functools.partial(loss, reduction="none")
    raise ValueError(
        f"sample_weight_col needs a loss for each sample, and {loss!r} has no parameter "
        "'reduction': take one of torch.nn"
    )


def total_loss(
    outputs: Sequence[torch.Tensor],
    labels: Sequence[torch.Tensor],
    losses: Sequence[Loss],
    weights: Sequence[float] | None,
    sample_weights: torch.Tensor | None,
) -> torch.Tensor:
    """Return the loss of a batch: the weighted sum over labels, the mean over samples.

    sample_weights: if given, `losses` come from `by_sample`.
    """
    shares = weights or [1 / len(labels)] * len(labels)
    total = outputs[0].new_zeros(())
    for output, label, loss, share in zip(outputs, labels, losses, shares, strict=True):
        value = loss(output, alike(label, output))
        if sample_weights is not None:
            value = (value.reshape(len(sample_weights), -1).mean(1) * sample_weights).mean()
        total = total + share * value
    return total


def alike(label: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return labels in the shape of outputs with as many numbers.

    Losses would broadcast [n] and [n, 1] to [n, n] without an error.
    """
    return label.reshape(output.shape) if label.numel() == output.numel() else label
