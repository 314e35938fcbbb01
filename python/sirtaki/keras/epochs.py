"""The steps per epoch of a running `fit`: Keras gives all epochs the same number."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


class Epochs:
    """The epochs of a `fit`.

    loop: the iterator of Keras 3. callbacks: of the `fit`. given: its steps_per_epoch.
    """

    def __init__(self, loop: Any, callbacks: Sequence[Any]) -> None:
        self._loop = loop
        self.callbacks = callbacks
        self.given: int | None = loop.steps_per_epoch

    @property
    def steps(self) -> int | None:
        """Return the steps of the current epoch, or None if unknown."""
        steps: int | None = self._loop.num_batches
        return steps

    def have(self, steps: int | None) -> None:
        """Set the steps of epochs that have not begun; None: until the data end."""
        loop = self._loop
        loop.steps_per_epoch = steps
        there = loop.data_adapter.num_batches
        if steps and there is not None and loop._steps_seen + steps > there:
            loop._current_iterator = None  # restarts the data


class EpochsOfKeras2(Epochs):
    """The epochs of a Keras 2 `fit`. loop: its data handler."""

    def __init__(self, loop: Any, callbacks: Sequence[Any]) -> None:
        self._loop = loop
        self.callbacks = callbacks
        self.given = loop._steps_per_epoch

    @property
    def steps(self) -> int | None:
        """See `Epochs`."""
        steps: int | None = self._loop.inferred_steps
        return steps

    def have(self, steps: int | None) -> None:
        """See `Epochs`."""
        loop = self._loop
        loop._steps_per_epoch = steps
        loop._inferred_steps = loop._infer_steps(steps, loop._dataset)
        if hasattr(loop._adapter, "_user_steps"):
            loop._adapter._user_steps = steps  # whether the data restart in each epoch


def running() -> Epochs | None:
    """Return the epochs of the `fit` that calls this callback, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        # Keras does not pass them to callbacks.
        names = frame.f_locals if frame.f_code.co_name == "fit" else {}
        if "epoch_iterator" in names:
            return Epochs(names["epoch_iterator"], names["callbacks"].callbacks)
        if "data_handler" in names:
            return EpochsOfKeras2(names["data_handler"], names["callbacks"].callbacks)
        frame = frame.f_back  # type: ignore[assignment]
    return None
