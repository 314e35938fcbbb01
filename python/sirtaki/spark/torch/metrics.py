"""The metrics of `TorchEstimator`: functions, or a group of them for each label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name in the history.
        function: Takes outputs and labels, and returns a number for a batch.
        label: The index of its label; None: it receives all labels, as lists.
    """

    name: str
    function: Callable[..., Any]
    label: int | None

    def of(self, outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor]) -> float:
        """Return its value for a batch, with labels in the shape of the outputs."""
        if self.label is None:
            return float(self.function(outputs, labels))
        return float(self.function(outputs[self.label], labels[self.label]))


def metrics_of(given: Sequence[Any] | None, labels: Sequence[str]) -> list[Metric]:
    """Return the metrics of an estimator.

    Args:
        given: Functions; or, as in Horovod, lists of functions, one list for each label or one for
            all labels.
        labels: The label columns.

    Raises:
        ValueError: Functions and lists are mixed, or the lists are neither one nor as many as the
            labels.
    """
    listed = list(given or [])
    groups = [each for each in listed if isinstance(each, list | tuple)]
    if groups and len(groups) < len(listed):
        raise ValueError("metrics: give functions, or lists of functions for each label, not both")
    if groups:
        found = _of_groups(groups, labels)
    else:
        label = 0 if len(labels) == 1 else None
        found = [Metric(_name(each), each, label) for each in listed]
    return _numbered(found)


def _numbered(metrics: Sequence[Metric]) -> list[Metric]:
    """Return metrics with unique names, since all lambdas have the same name."""
    seen: dict[str, int] = {}
    named = []
    for each in metrics:
        number = seen[each.name] = seen.get(each.name, -1) + 1
        named.append(replace(each, name=f"{each.name}_{number}") if number else each)
    return named


def _of_groups(groups: list[Any], labels: Sequence[str]) -> list[Metric]:
    if len(groups) == 1:
        groups = groups * len(labels)
    if len(groups) != len(labels):
        raise ValueError(
            f"metrics: {len(groups)} lists of functions were given for {len(labels)} label columns"
        )
    prefixes = [""] if len(labels) == 1 else [f"{label}_" for label in labels]
    return [
        Metric(prefix + _name(each), each, number)
        for number, (prefix, group) in enumerate(zip(prefixes, groups, strict=True))
        for each in group
    ]


def _name(metric: Callable[..., Any]) -> str:
    return getattr(metric, "__name__", type(metric).__name__)
