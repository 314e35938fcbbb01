"""Conversion of NumPy arrays for the core, and checks for unsupported ones."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sirtaki import _core
from sirtaki.core.operations import codes
from sirtaki.core.operations.collectives import Tensors

# Equal to NDArray[Any], whose module is slow to import.
Array = np.ndarray[Any, np.dtype[Any]]

# NumPy's own types; those of ml_dtypes, which may be among its names, have other views.
_CODES = {
    np.dtype(name): code
    for name, code in codes.DTYPES.items()
    if name in np.sctypeDict and np.dtype(name).isbuiltin == 1
}
# Types of the same size in bytes: the buffer protocol does not know ml_dtypes.
_BYTES = {1: np.uint8, 2: np.uint16, 4: np.uint32}
# How to send elements of other types, by kind.
_OBJECTS = "send it with broadcast_object or allgather_object"
_CURES = {
    "M": "give x.view(np.int64)",
    "m": "give x.view(np.int64)",
    "f": "give x.astype(np.float64)",
    "c": "give x.astype(np.complex128)",
    "O": _OBJECTS,
    "S": _OBJECTS,
    "U": _OBJECTS,
    "T": _OBJECTS,
}


def check_array(array: object) -> Array:
    """Return the array.

    Raises:
        TypeError: It is no array, or its class may give elements another meaning.
    """
    kind = type(array)
    if kind is np.ndarray or kind is np.memmap:
        assert isinstance(array, np.ndarray)
        return array
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected a numpy array, not {kind.__name__}: give np.asarray(x)")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"expected a plain numpy array, but a {kind.__name__} would lose its mask: give "
            "x.filled(0), and send np.ma.getmaskarray(x) by itself where it matters"
        )
    raise TypeError(
        f"expected a plain numpy array, but a {kind.__name__} may give its elements another "
        "meaning: give np.asarray(x), and make the result one again"
    )


def check_nested(value: object) -> None:
    """Raise TypeError for objects that `check_array` refuses, also within lists and tuples."""
    if isinstance(value, np.ndarray):
        check_array(value)
    elif isinstance(value, list | tuple):
        for each in value:
            check_nested(each)


def dtype_of(array: Array) -> int:
    """Return the core's code of an array's type; ValueError if it is not supported."""
    code = _CODES.get(array.dtype)
    return _foreign(array.dtype) if code is None else code


def _foreign(dtype: np.dtype[Any]) -> int:
    """Return the core's code of a type of ml_dtypes; ValueError for any other type."""
    if not dtype.isnative:
        cure = 'its bytes are in another order: give x.astype(x.dtype.newbyteorder("="))'
    else:
        code = codes.DTYPES.get(dtype.name)
        if code is not None and codes.DTYPE_BYTES[code] == dtype.itemsize:
            return code
        cure = _CURES.get(dtype.kind, "send its fields, or its bytes by x.view(np.uint8)")
    raise ValueError(f"Tensor type {dtype} is not supported; {cure}")


class _NumpyTensors:
    """The adapter for NumPy."""

    def view(self, tensor: Array) -> tuple[int, tuple[int, ...], int]:
        check_array(tensor)
        code = _CODES.get(tensor.dtype)
        if code is None:
            code = _foreign(tensor.dtype)
            return _core.address(tensor.view(_BYTES[tensor.itemsize])), tensor.shape, code
        return _core.address(tensor), tensor.shape, code

    def contiguous(self, tensor: Array) -> Array:
        check_array(tensor)
        return tensor if tensor.flags.c_contiguous else tensor.copy(order="C")

    def empty_like(self, tensor: Array) -> Array:
        return np.empty(tensor.shape, tensor.dtype)

    def from_buffer(self, buffer: object, like: Array, shape: tuple[int, ...]) -> Array:
        assert isinstance(buffer, np.ndarray)
        return buffer.view(like.dtype).reshape(shape)

    def splits(self, splits: object) -> list[int]:
        array = np.asarray(splits)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError("splits must be a 1-D list or array of integers")
        return [int(rows) for rows in array]

    def wrap_splits(self, received: list[int], like: object) -> Array:
        return np.asarray(received, like.dtype if isinstance(like, np.ndarray) else np.int32)


TENSORS: Final[Tensors[Array]] = _NumpyTensors()
