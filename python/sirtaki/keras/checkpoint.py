"""Checkpoints of models and optimizers: `hvd.checkpoint.save`, `latest`, `load` and `wait`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sirtaki.checkpoint import Checkpoint, CheckpointError, Checkpoints
from sirtaki.checkpoint.codec import (
    Array,
    numpy_from_array,
    numpy_to_array,
    python_random_state,
    set_python_random_state,
)
from sirtaki.keras.elastic import KerasState, assign_variables, values_of_variables
from sirtaki.keras.library import BACKEND, LEGACY, keras

__all__ = ["Checkpoint", "CheckpointError", "latest", "load", "save", "wait"]

_VARIABLES = "variables"


class _Codec:
    """See `sirtaki.checkpoint.Codec`."""

    framework = "keras"

    def capture(self, value: Any) -> Any:
        """Return the variables of a model or an optimizer; a model's optimizer is part of it."""
        if not _has_variables(value):
            return value
        return {_VARIABLES: values_of_variables(_variables(value))}

    def restore(self, value: Any, tree: Any) -> Any:
        """Assign the variables; other values are replaced."""
        if not _has_variables(value):
            return tree
        variables = _variables(value)
        if len(variables) != len(tree[_VARIABLES]):
            raise ValueError(
                f"it has {len(tree[_VARIABLES])} variables, the {type(value).__name__} has "
                f"{len(variables)}"
            )
        assign_variables(variables, tree[_VARIABLES])
        return value

    def to_array(self, value: Any) -> Array | None:
        """Take NumPy's arrays, and tensors and variables of Keras."""
        if keras.backend.is_keras_tensor(value) if LEGACY else keras.ops.is_tensor(value):
            value = np.asarray(value.numpy() if LEGACY else keras.ops.convert_to_numpy(value))
        return numpy_to_array(value)

    def from_array(self, kind: str, dtype: str, shape: tuple[int, ...], data: bytearray) -> Any:
        """Return what NumPy had."""
        return numpy_from_array(kind, dtype, shape, data)

    def members(self, state: Any) -> dict[str, Any]:
        """Return what a `KerasState` looks after."""
        own = {"model": state.model} if isinstance(state, KerasState) else {}
        if own and state.optimizer is not getattr(state.model, "optimizer", None):
            own["optimizer"] = state.optimizer
        return {**own, **{name: getattr(state, name) for name in state._saved_state}}

    def assign(self, state: Any, values: Mapping[str, Any]) -> None:
        """Set the plain objects, and commit without looking for other hosts."""
        for name in state._saved_state:
            setattr(state, name, values[name])
        state.save()

    def random_state(self) -> dict[str, Any]:
        """Return the state of Python's and NumPy's generators."""
        return python_random_state()

    def set_random_state(self, tree: Mapping[str, Any]) -> None:
        """Set them."""
        set_python_random_state(tree)


def _has_variables(value: Any) -> bool:
    return isinstance(value, (keras.Model, keras.optimizers.Optimizer))


def _variables(value: Any) -> list[Any]:
    """Return the variables of a model with those of its optimizer, or of an optimizer."""
    if not isinstance(value, keras.Model):
        found = value.variables
        return list(found() if callable(found) else found)
    if not value.built:
        raise CheckpointError(
            "the model has no variables yet: give its first layer an input shape, or call "
            "model.build(), before it is saved or loaded"
        )
    if BACKEND == "jax":
        value.jax_state_sync()  # while it trains, its values are elsewhere
    optimizer = getattr(value, "optimizer", None)
    if optimizer is None:
        return list(value.variables)
    if not optimizer.built:
        optimizer.build(value.trainable_variables)
    return [*value.variables, *_variables(optimizer)]


_checkpoints = Checkpoints(_Codec())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait
