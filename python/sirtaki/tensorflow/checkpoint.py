"""Checkpoints with TensorFlow: `hvd.checkpoint`; see `sirtaki.checkpoint.Checkpoints`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki.checkpoint import Array, CheckpointError, Checkpoints, Framework, Guards, Loaded
from sirtaki.checkpoint.guards import named_variables
from sirtaki.elastic.state import require_shapes

__all__ = ["CheckpointError", "Loaded", "latest", "load", "save", "wait"]


class TensorFlowFramework(Framework):
    """Lists of variables, also of Keras 3, and states of them."""

    name = "TensorFlow"

    def capture(self, value: Any) -> Any:
        """See `Framework`."""
        if _are_variables(value):
            return [variable.numpy() for variable in value]
        return super().capture(value)

    def restore(self, value: Any, tree: Any) -> Any:
        """See `Framework`."""
        if not _are_variables(value):
            return super().restore(value, tree)
        require_shapes([variable.shape for variable in value], tree)
        for variable, array in zip(value, tree, strict=True):
            variable.assign(array)
        return value

    def to_host(self, leaf: Any) -> Any:
        """See `Framework`."""
        array = super().to_host(leaf)
        # NumPy's text for another library's type, such as bfloat16, contains only its size.
        return array._replace(dtype=leaf.dtype.name) if leaf.dtype.kind == "V" else array


def _are_variables(value: Any) -> bool:
    # Keras 3's are no `tf.Variable`s.
    return isinstance(value, list | tuple) and all(
        hasattr(each, "assign") and hasattr(each, "numpy") for each in value
    )


class _Guarded(TensorFlowFramework):
    """Guards look at tensors, models and optimizers, too, which are no part of checkpoints."""

    def capture(self, value: Any) -> Any:
        return named_variables(value) or super().capture(value)

    def is_object(self, value: Any) -> bool:
        return hasattr(value, "variables") or super().is_object(value)

    def is_array(self, leaf: Any) -> bool:
        return tf.is_tensor(leaf) or super().is_array(leaf)

    def is_finite(self, leaf: Any) -> bool:
        return super().is_finite(_array_of(leaf))

    def to_host(self, leaf: Any) -> Array:
        array: Array = super().to_host(_array_of(leaf))
        return array


def _array_of(leaf: Any) -> Any:
    # `convert_to_tensor` adds up the rows of sparse gradients.
    return tf.convert_to_tensor(leaf).numpy() if tf.is_tensor(leaf) else leaf


_checkpoints = Checkpoints(TensorFlowFramework())
guards = Guards(_Guarded())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait
