"""Callbacks that keep and commit the state of elastic training while ``fit`` runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sirtaki.keras.library import keras

if TYPE_CHECKING:
    from sirtaki.elastic import State


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps ``state.batch``, the number of completed batches of the epoch.

    After a loss the first epoch does the rest of the interrupted one, and the others are complete,
    whether the program passes ``fit(steps_per_epoch=steps)`` or subtracts ``state.batch`` itself: a
    program that has read ``state.batch`` in this world is assumed to have subtracted it.

    Args:
        state: A state with an attribute ``batch``.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0
        self._epochs: _Epochs | None = None
        # The steps of the epochs after the first, if their number differs.
        self._later: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Determine the rest of the epoch."""
        subtracted, done = getattr(self.state, "_tells_batch", True), self.state.batch
        self._epochs = found = _running() if done else None
        if found is None:
            return
        self._later = found.given
        if subtracted:
            if found.given is None:
                _say_short_epochs()
                self._epochs = None
            else:
                self._later = found.given + done
                if found.given < 1:
                    found.have(1)
        elif found.steps is not None:
            found.have(max(1, found.steps - done))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Continue at the state's batch."""
        self._done = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the batch."""
        self.state.batch = self._done + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reset the batch for the next epoch."""
        self.state.batch = 0
        found, self._epochs = self._epochs, None
        if found is not None:
            found.have(self._later)


def _say_short_epochs() -> None:
    print(
        "sirtaki: fit() has no steps_per_epoch, so all its epochs have as few batches as are left "
        "of the first: give steps_per_epoch=steps, and data for whole epochs",
        file=sys.stderr,
        flush=True,
    )


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps ``state.epoch``, the number of completed epochs.

    Args:
        state: Has an attribute ``epoch``; ``fit(epochs=epochs - state.epoch)`` does the remaining
            epochs, and so does ``fit(epochs=epochs, initial_epoch=state.epoch)``.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0
        self._first: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Continue at the state's epoch."""
        self._done, self._first = self.state.epoch, None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Record the number with which ``fit`` begins."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch."""
        self.state.epoch = self._done + epoch - (self._first or 0) + 1


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits a state while ``fit`` runs, and at the end of each epoch.

    Args:
        state: The state.
        batches_per_commit: The number of batches between two commits.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit
        self._epochs: _Epochs | None = None
        # Of the same fit: they count committed progress, in any order of callbacks.
        self._counters: list[UpdateBatchStateCallback | UpdateEpochStateCallback] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Start counting."""
        self.batches_remaining = self.batches_per_commit
        self._epochs = found = _running()
        counting = (UpdateBatchStateCallback, UpdateEpochStateCallback)
        self._counters = [
            each
            for each in (found.callbacks if found else ())
            if isinstance(each, counting) and each.state is self.state
        ]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit if due, but do not separate the last batch from the end of its epoch."""
        self.batches_remaining -= 1
        is_last = self._epochs is not None and batch + 1 == self._epochs.steps
        if self.batches_remaining > 0 or is_last:
            return
        for each in self._counters:
            each.on_train_batch_end(batch, logs)
        self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit the epoch."""
        for each in self._counters:
            each.on_epoch_end(epoch, logs)
        self._commit()

    def _commit(self) -> None:
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class _Epochs:
    """The epochs of a running `fit`; Keras gives all of them the same number of steps.

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


class _EpochsOfKeras2(_Epochs):
    """The epochs of a Keras 2 `fit`. loop: its data handler."""

    def __init__(self, loop: Any, callbacks: Sequence[Any]) -> None:
        self._loop = loop
        self.callbacks = callbacks
        self.given = loop._steps_per_epoch

    @property
    def steps(self) -> int | None:
        """See `_Epochs`."""
        steps: int | None = self._loop.inferred_steps
        return steps

    def have(self, steps: int | None) -> None:
        """See `_Epochs`."""
        loop = self._loop
        loop._steps_per_epoch = steps
        loop._inferred_steps = loop._infer_steps(steps, loop._dataset)
        if hasattr(loop._adapter, "_user_steps"):
            loop._adapter._user_steps = steps  # whether the data restart in each epoch


def _running() -> _Epochs | None:
    """Return the epochs of the `fit` that calls this callback, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        # Keras does not pass them to callbacks.
        names = frame.f_locals if frame.f_code.co_name == "fit" else {}
        if "epoch_iterator" in names:
            return _Epochs(names["epoch_iterator"], names["callbacks"].callbacks)
        if "data_handler" in names:
            return _EpochsOfKeras2(names["data_handler"], names["callbacks"].callbacks)
        frame = frame.f_back  # type: ignore[assignment]
    return None
