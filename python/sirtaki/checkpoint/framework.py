"""The interface between checkpoints and a framework."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np


class Array(NamedTuple):
    """A framework's array in host memory, as bytes."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray[Any, np.dtype[np.uint8]]


class Framework:
    """NumPy arrays and objects with `state_dict` and `load_state_dict`; base of the others."""

    name = "numpy"

    def capture(self, value: Any) -> Any:
        """Return a tree of containers, arrays and plain objects that represents a value."""
        return value.state_dict() if hasattr(value, "state_dict") else value

    def restore(self, value: Any, tree: Any) -> Any:
        """Restore the value that `capture` read, in place if it is mutable, and return it.

        Args:
            value: The value passed to `load`.
            tree: The tree from the checkpoint.
        """
        if not hasattr(value, "load_state_dict"):
            return tree
        value.load_state_dict(tree)
        return value

    def is_object(self, value: Any) -> bool:
        """Return whether guards look into a value of a tree by `capture`."""
        return hasattr(value, "state_dict")

    def is_array(self, leaf: Any) -> bool:
        """Return whether a leaf is written as an array; it then has `nbytes`."""
        return isinstance(leaf, np.ndarray | np.generic) and not leaf.dtype.hasobject

    def is_finite(self, leaf: Any) -> bool:
        """Return whether all elements of an array are finite."""
        # Of kind V are records, and the types of ml_dtypes, such as bfloat16.
        numbers = "fc" if leaf.dtype.type is np.void else "fcV"
        return leaf.dtype.kind not in numbers or bool(np.isfinite(leaf).all())

    def to_host(self, leaf: Any) -> Array:
        """Return an array in host memory, which may be the leaf's own."""
        kind = "array" if isinstance(leaf, np.ndarray) else "scalar"
        array = np.ascontiguousarray(leaf)
        return Array(kind, array.dtype.str, np.shape(leaf), array.reshape(-1).view(np.uint8))

    def from_host(self, array: Array) -> Any:
        """Return the leaf from which `to_host` made an array."""
        found = array.data.view(np.dtype(array.dtype)).reshape(array.shape)
        return found[()] if array.kind == "scalar" else found

    def random(self) -> dict[str, Any]:
        """Return the states of this process's random number generators."""
        return {"python": random.getstate(), "numpy": np.random.get_state()}

    def set_random(self, states: dict[str, Any]) -> None:
        """Restore the generator states that `random` returned."""
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
