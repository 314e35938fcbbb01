"""What checkpoints ask of a framework."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np


class Array(NamedTuple):
    """An array of a framework in the host's memory, as bytes."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray[Any, np.dtype[np.uint8]]


class Framework:
    """NumPy's arrays, and what has `state_dict` and `load_state_dict`; the base of the others."""

    name = "numpy"

    def capture(self, value: Any) -> Any:
        """Return a tree of containers, arrays and plain objects that stands for a value."""
        return value.state_dict() if hasattr(value, "state_dict") else value

    def restore(self, value: Any, tree: Any) -> Any:
        """Return what `capture` had; a value that can change is changed.

        Args:
            value: As given to `load`.
            tree: Of the checkpoint.
        """
        if not hasattr(value, "load_state_dict"):
            return tree
        value.load_state_dict(tree)
        return value

    def is_array(self, leaf: Any) -> bool:
        """Tell whether a leaf is written as an array; it has `nbytes` then."""
        return isinstance(leaf, np.ndarray | np.generic) and not leaf.dtype.hasobject

    def is_finite(self, leaf: Any) -> bool:
        """Tell whether all numbers of an array are finite."""
        return leaf.dtype.kind not in "fc" or bool(np.isfinite(leaf).all())

    def to_host(self, leaf: Any) -> Array:
        """Return an array in the host's memory, which may be that of the leaf."""
        kind = "array" if isinstance(leaf, np.ndarray) else "scalar"
        array = np.ascontiguousarray(leaf)
        return Array(kind, array.dtype.str, np.shape(leaf), array.reshape(-1).view(np.uint8))

    def from_host(self, array: Array) -> Any:
        """Return the leaf of which `to_host` has made an array."""
        found = array.data.view(np.dtype(array.dtype)).reshape(array.shape)
        return found[()] if array.kind == "scalar" else found

    def random(self) -> dict[str, Any]:
        """Return the states of this process's generators of random numbers."""
        return {"python": random.getstate(), "numpy": np.random.get_state()}

    def set_random(self, states: dict[str, Any]) -> None:
        """Go on with the random numbers of `random`."""
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
