"""Elastic training with Keras on all its backends; mirrors ``horovod.keras.elastic``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state as world_state
from sirtaki.elastic import HostsUpdatedInterrupt, ObjectState, State, run, run_fn, sample_seed
from sirtaki.elastic.state import Version, require_shapes, say_uncommitted
from sirtaki.keras.distributed import build, variables_of
from sirtaki.keras.elastic_callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
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
        model: The model, already built.
        optimizer: The optimizer; default: the model's, if it is compiled.
        backend: Accepted; a process has one backend.
        every_step: Whether `commit`, called after each batch, copies only untrained variables:
            after a loss the newest step is used, which one of the survivors has completely. On JAX
            all variables are copied, because Keras donates those of a step to the next.
        kwargs: Picklable objects, samplers and loaders; they become attributes.

    Raises:
        ValueError: The model has no variables yet, or `every_step` is unsupported: without an
            optimizer, or with several steps per call (``steps_per_execution``).
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
        if self.optimizer is not None:
            build(self.optimizer, list(model.trainable_variables))
        self._kept = every_step and BACKEND != "jax"
        if every_step:
            _require_whole_steps(model, self.optimizer)
        self._saved_values: list[Any] = []
        self._tells_batch = False
        self._save_variables()
        super().__init__(broadcast_object, world_state.rank, **kwargs)

    @property
    def batch(self) -> Any:
        """The completed batches of the epoch, if the program keeps their number here."""
        self._tells_batch = True
        try:
            return self.__dict__["batch"]
        except KeyError:
            raise AttributeError("this state was made without batch=0") from None

    @batch.setter
    def batch(self, batch: Any) -> None:
        self.__dict__["batch"] = batch

    def _variables(self) -> list[Any]:
        if BACKEND == "jax":
            self.model.jax_state_sync()  # while it trains, its values are elsewhere
        own = [] if self.optimizer is None else variables_of(self.optimizer)
        return [*self.model.variables, *own]

    def _saved_variables(self) -> list[Any]:
        return list(self.model.non_trainable_variables) if self._kept else self._variables()

    def _save_variables(self) -> None:
        self._saved_values = values_of_variables(self._saved_variables(), self._saved_values)
        self._marked = self._applied()

    def _applied(self) -> int:
        # A state that counts steps has an optimizer.
        if not self._kept or self.optimizer is None:
            return 0
        # Before Keras 3.10, one that scales the loss does not count itself.
        counting = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        return int(_array_of(counting.iterations))

    def save(self) -> None:
        """Copy the state into this process's memory; with `every_step`, not what is trained."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Restore the last saved state; with `every_step`, the last complete step."""
        if self._applied() != self._marked:
            say_uncommitted(self._applied())
            return
        # A backend may keep the memory passed to it.
        assign_variables(self._saved_variables(), [each.copy() for each in self._saved_values])
        super().restore()

    def sync(self) -> None:
        """See `State`."""
        super().sync()
        self._tells_batch = False

    def on_reset(self) -> None:
        """See `State`."""
        super().on_reset()
        self._tells_batch = False

    def _version(self) -> Version:
        if not self._kept:
            return super()._version()
        # Objects that match the variables take precedence over newer variables.
        return (int(self._applied() == self._marked), self._applied(), self._commits)

    def _adopt(self, version: Version) -> None:
        super()._adopt(version[-1:])

    def _sync_from(self, root: int, version: Version) -> None:
        own = world_state.rank() == root
        mine = values_of_variables(self._variables()) if own else None
        values = broadcast_object(mine, root)
        super()._sync_from(root, version)
        # Last: if the root is lost during the transfer, this rank's step is needed again.
        assign_variables(self._variables(), values)

    def state_dict(self) -> dict[str, Any]:
        """Return the data for a checkpoint: the current state, not the last committed one."""
        values = values_of_variables(self._variables())
        return {"variables": values, "attributes": super().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`, and commit it.

        Raises:
            ValueError: It belongs to another model or optimizer.
        """
        require_shapes([variable.shape for variable in self._variables()], state_dict["variables"])
        assign_variables(self._variables(), state_dict["variables"])
        super().load_state_dict(state_dict["attributes"])

    def reset(self) -> None:
        """Make Keras recompile its functions if they depend on the old world."""
        if not world_state.functions_depend_on_world():
            return
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
    # In Keras 2 this is a TensorFlow variable.
    found: Any = getattr(model, "steps_per_execution", None)
    found = found or getattr(model, "_steps_per_execution", None)
    return int(found.numpy() if hasattr(found, "numpy") else found or 1)


def values_of_variables(variables: Sequence[Any], earlier: Sequence[Any] = ()) -> list[Any]:
    """Return copies of the values as NumPy arrays, in the memory of earlier copies, if any."""
    if len(earlier) != len(variables):
        return [value_of(variable) for variable in variables]
    for copied, variable in zip(earlier, variables, strict=True):
        np.copyto(copied, _array_of(variable))
    return list(earlier)


def assign_variables(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Assign each variable its value."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def value_of(variable: Any) -> Any:
    """Return a copy of a variable as an array."""
    return np.array(_array_of(variable))


def _array_of(variable: Any) -> Any:
    return variable.numpy() if LEGACY else keras.ops.convert_to_numpy(variable)
