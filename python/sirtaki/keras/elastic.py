"""Elastic training with Keras on all its backends, mirrors ``horovod.keras.elastic``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state as world_state
from sirtaki.elastic import HostsUpdatedInterrupt, ObjectState, State, run, run_fn, sample_seed
from sirtaki.elastic.state import Version, require_shapes, say_uncommitted
from sirtaki.keras.library import BACKEND, LEGACY, keras

__all__ = [
    "CommitStateCallback",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
    "run_fn",
    "sample_seed",
]


class KerasState(ObjectState):
    """State of a model and its optimizer.

    Args:
        model: Built already.
        optimizer: Default: that of the model, if it is compiled.
        backend: Accepted: there is one backend in a process.
        every_step: Whether `commit`, to be called after each batch, copies no variables but those
            that are not trained: after a loss the newest step is used, which one of the survivors
            has whole. On JAX it copies all, for Keras donates the variables of a step to the next.
        kwargs: Objects that can be pickled, samplers and loaders; they become attributes.

    Raises:
        ValueError: The model has no variables yet, or `every_step` does not fit: without an
            optimizer; with several steps in one call (``steps_per_execution``).
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        backend: Any = None,
        every_step: bool = False,
        **kwargs: Any,
    ) -> None:
        if not model.built:
            raise ValueError(
                "the model has no variables yet: give its first layer an input shape, or call "
                "model.build(), before it becomes a state"
            )
        self.model = model
        self.optimizer: Any = optimizer or getattr(model, "optimizer", None)
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        self._kept = every_step and BACKEND != "jax"
        if every_step:
            _require_whole_steps(model, self.optimizer)
        self._saved_values: list[Any] = []
        self._save_variables()
        super().__init__(broadcast_object, world_state.rank, **kwargs)

    def _variables(self) -> list[Any]:
        if BACKEND == "jax":
            self.model.jax_state_sync()  # while it trains, its values are elsewhere
        own = [] if self.optimizer is None else self.optimizer.variables
        return [*self.model.variables, *(own() if callable(own) else own)]

    def _saved_variables(self) -> list[Any]:
        return list(self.model.non_trainable_variables) if self._kept else self._variables()

    def _save_variables(self) -> None:
        self._saved_values = values_of_variables(self._saved_variables(), self._saved_values)
        self._marked = self._applied()

    def _applied(self) -> int:
        # A state whose steps are counted has an optimizer.
        return int(self.optimizer.iterations) if self._kept and self.optimizer else 0

    def save(self) -> None:
        """Copy the state into this process's memory; with `every_step` not what is trained."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Return to what was saved last; with `every_step` to the last whole step."""
        if self._applied() != self._marked:
            say_uncommitted(self._applied())
            return
        # A backend may keep the memory of what it is given.
        assign_variables(self._saved_variables(), [each.copy() for each in self._saved_values])
        super().restore()

    def _version(self) -> Version:
        if not self._kept:
            return super()._version()
        # Objects that fit the variables come before newer variables.
        return (int(self._applied() == self._marked), self._applied(), self._commits)

    def _adopt(self, version: Version) -> None:
        super()._adopt(version[-1:])

    def _sync_from(self, root: int, version: Version) -> None:
        own = world_state.rank() == root
        mine = values_of_variables(self._variables()) if own else None
        values = broadcast_object(mine, root)
        super()._sync_from(root, version)
        # At last: the root may be lost on the way, and then this rank's step is needed again.
        assign_variables(self._variables(), values)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves: all of the state as it is, not as last committed."""
        values = values_of_variables(self._variables())
        return {"variables": values, "attributes": super().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned, and commit it.

        Raises:
            ValueError: It is of another model or optimizer.
        """
        require_shapes([variable.shape for variable in self._variables()], state_dict["variables"])
        assign_variables(self._variables(), state_dict["variables"])
        super().load_state_dict(state_dict["attributes"])

    def reset(self) -> None:
        """Have Keras compile anew what has the size of the old world in it."""
        for function in ("train_function", "test_function", "predict_function"):
            if getattr(self.model, function, None) is not None:
                setattr(self.model, function, None)


def _require_whole_steps(model: Any, optimizer: Any) -> None:
    if optimizer is None:
        why = "there is no optimizer, whose steps are counted"
    elif _steps_per_call(model) > 1:
        why = f"steps_per_execution is {_steps_per_call(model)}, so steps go by without a commit"
    else:
        return
    raise ValueError(
        f"KerasState(every_step=True) does not fit: {why}. Do without every_step, and commit, "
        "which copies all variables, as often as you can afford"
    )


def _steps_per_call(model: Any) -> int:
    # Keras 2 has a variable of TensorFlow there.
    found: Any = getattr(model, "steps_per_execution", None)
    found = found or getattr(model, "_steps_per_execution", None)
    return int(found.numpy() if hasattr(found, "numpy") else found or 1)


def values_of_variables(variables: Sequence[Any], earlier: Sequence[Any] = ()) -> list[Any]:
    """Return copies of the values, as arrays of NumPy: in the memory of earlier copies, if any."""
    if len(earlier) != len(variables):
        return [value_of(variable) for variable in variables]
    for copied, variable in zip(earlier, variables, strict=True):
        np.copyto(copied, _array_of(variable))
    return list(earlier)


def assign_variables(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give each variable its value."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def value_of(variable: Any) -> Any:
    """Return a copy of a variable as an array."""
    return np.array(_array_of(variable))


def _array_of(variable: Any) -> Any:
    return variable.numpy() if LEGACY else keras.ops.convert_to_numpy(variable)


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits a state while ``fit`` runs.

    Args:
        state: The state.
        batches_per_commit: How many batches lie between two commits.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to count."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit if it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps ``state.batch``, the number of batches of the epoch that are done.

    Give ``fit(steps_per_epoch=steps - state.batch)`` what is left of the epoch, and put this
    callback before `CommitStateCallback`.

    Args:
        state: Has an attribute ``batch``.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Go on where the state is."""
        self._done = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the batch."""
        self.state.batch = self._done + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch begins at its first batch."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps ``state.epoch``, the number of epochs that are done.

    Args:
        state: Has an attribute ``epoch``; ``fit(epochs=epochs - state.epoch)`` does what is left.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Go on where the state is."""
        self._done = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count the epoch."""
        self.state.epoch = self._done + epoch + 1
