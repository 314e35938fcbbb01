"""Checkpoints with TensorFlow: `hvd.checkpoint`; see `sirtaki.checkpoint.Checkpoints`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki.checkpoint import CheckpointError, Checkpoints, Framework, Guards, Loaded
from sirtaki.elastic.state import require_shapes

__all__ = ["CheckpointError", "Loaded", "latest", "load", "save", "wait"]


class TensorFlowFramework(Framework):
    """Lists of `tf.Variable`s, and states of them."""

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
    return isinstance(value, list | tuple) and all(isinstance(v, tf.Variable) for v in value)


_checkpoints = Checkpoints(TensorFlowFramework())
guards = Guards(TensorFlowFramework())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait
