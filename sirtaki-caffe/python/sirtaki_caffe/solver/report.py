"""Log lines of training and testing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Log = Callable[[str, str], None]


class LossWindow:
    """The mean of the losses of recent iterations.

    Args:
        size: The number of iterations.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.losses: list[float] = []
        self.mean = 0.0
        self._oldest = 0

    def add(self, loss: float) -> None:
        """Add the loss of an iteration."""
        if len(self.losses) < self._size:
            self.losses.append(loss)
            count = len(self.losses)
            self.mean = (self.mean * (count - 1) + loss) / count
            return
        self.mean += (loss - self.losses[self._oldest]) / self._size
        self.losses[self._oldest] = loss
        self._oldest = (self._oldest + 1) % self._size

    def in_order(self) -> list[float]:
        """Return the losses, oldest first."""
        return self.losses[self._oldest :] + self.losses[: self._oldest]


class LossWatch:
    """Warns of losses that are infinite or NaN, once until they are finite again.

    Args:
        warn: Called with warnings.
    """

    def __init__(self, warn: Log) -> None:
        self._warn = warn
        self._said: set[str] = set()

    def see(self, iteration: int, loss: float) -> None:
        """Check the loss of an iteration."""
        if math.isfinite(loss):
            self._said.clear()
        elif (shown := f"{abs(loss):g}") not in self._said:
            self._said.add(shown)
            self._warn(
                "solver.cpp",
                f"Iteration {iteration}: the loss is {loss:g}, and training goes on; look for data "
                "or weights that are no numbers, or take a lower base_lr or clip_gradients",
            )


def output_lines(
    kind: str,
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    loss_weights: dict[str, float],
) -> list[str]:
    """Return a line for each number of a net's outputs.

    Args:
        kind: "Train" or "Test".
        names: The output blobs.
        values: The values of each.
        loss_weights: The loss weights of the blobs that have one.
    """
    lines: list[str] = []
    for name, numbers in zip(names, values, strict=True):
        weight = loss_weights.get(name, 0.0)
        for value in numbers:
            shown = f"{name} = {value:g}{tail(name, value, weight)}"
            lines.append(f"    {kind} net output #{len(lines)}: {shown}")
    return lines


def tail(name: str, value: float, weight: float) -> str:
    """Return the rest of the line for an output with a loss weight."""
    return f" (* {weight:g} = {weight * value:g} {name})" if weight else ""
