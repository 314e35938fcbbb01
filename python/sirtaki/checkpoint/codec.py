"""What a framework contributes to checkpoints."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

# An array as it lies on disk: the kind of object it becomes, its dtype, its shape and its bytes.
Array = tuple[str, str, tuple[int, ...], Any]


class Codec(Protocol):
    """Turns a framework's objects into plain containers and arrays, and back."""

    framework: str

    def capture(self, value: Any) -> Any:
        """Return a tree of containers, numbers, texts and arrays that stands for a value."""

    def restore(self, value: Any, tree: Any) -> Any:
        """Bring a value to what `capture` has returned; return it, or what replaces it."""

    def to_array(self, value: Any) -> Array | None:
        """Return an array's kind, dtype, shape and bytes; None for what is no array."""

    def from_array(self, kind: str, dtype: str, shape: tuple[int, ...], data: bytearray) -> Any:
        """Return what `to_array` was given; `data` is the caller's to keep."""

    def members(self, state: Any) -> dict[str, Any]:
        """Return the values of an elastic state by name."""

    def assign(self, state: Any, values: Mapping[str, Any]) -> None:
        """Give an elastic state values that were loaded, as its last commit too."""

    def random_state(self) -> dict[str, Any]:
        """Return a tree for this rank's generators of random numbers."""

    def set_random_state(self, tree: Mapping[str, Any]) -> None:
        """Bring this rank's generators to what `random_state` has returned."""


def numpy_to_array(value: Any) -> Array | None:
    """Do `Codec.to_array` for NumPy's arrays and numbers."""
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.hasobject:
        return None
    array = np.ascontiguousarray(value)
    kind = "numpy" if isinstance(value, np.ndarray) else "number"
    return kind, array.dtype.str, value.shape, array.reshape(-1).view(np.uint8)


def numpy_from_array(kind: str, dtype: str, shape: tuple[int, ...], data: bytearray) -> Any:
    """Do `Codec.from_array` for the same."""
    array = np.frombuffer(data, np.dtype(dtype)).reshape(shape)
    return array[()] if kind == "number" else array


def python_random_state() -> dict[str, Any]:
    """Return a tree for Python's generator and NumPy's old one."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (str(name), np.asarray(keys), int(position), int(has_gauss), float(gauss)),
    }


def set_python_random_state(tree: Mapping[str, Any]) -> None:
    """Bring both to what `python_random_state` has returned."""
    random.setstate(tree["python"])
    np.random.set_state(tree["numpy"])
