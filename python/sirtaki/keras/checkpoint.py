"""Checkpoints with Keras: `hvd.checkpoint`; see `sirtaki.checkpoint.Checkpoints`."""

from __future__ import annotations

from typing import Any

from sirtaki.checkpoint import CheckpointError, Checkpoints, Framework, Loaded
from sirtaki.keras.elastic import KerasState
from sirtaki.keras.library import keras

__all__ = ["CheckpointError", "Loaded", "latest", "load", "save", "wait"]


class KerasFramework(Framework):
    """Keras models, with the optimizer they are compiled with; the same on all backends."""

    name = "Keras"

    def capture(self, value: Any) -> Any:
        """See `Framework`."""
        return super().capture(_as_state(value))

    def restore(self, value: Any, tree: Any) -> Any:
        """See `Framework`."""
        restored = super().restore(_as_state(value), tree)
        return value if isinstance(value, keras.Model) else restored

    def to_host(self, leaf: Any) -> Any:
        """See `Framework`."""
        array = super().to_host(leaf)
        # NumPy's text for another library's type, such as bfloat16, contains only its size.
        return array._replace(dtype=leaf.dtype.name) if leaf.dtype.kind == "V" else array


def _as_state(value: Any) -> Any:
    return KerasState(value) if isinstance(value, keras.Model) else value


_checkpoints = Checkpoints(KerasFramework())
save = _checkpoints.save
latest = _checkpoints.latest
load = _checkpoints.load
wait = _checkpoints.wait
