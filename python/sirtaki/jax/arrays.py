"""JAX's arrays as the core takes them: by their memory on this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sirtaki._core import DTYPES
from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.grouping import part_name, parts
from sirtaki.core.operations.reduction import check_reduction

Host = NDArray[Any]


class _HostArrays:
    """The core's view of NumPy arrays, also of the element types that are JAX's own."""

    def view(self, tensor: Host) -> tuple[int, tuple[int, ...], int]:
        return tensor.ctypes.data, tensor.shape, DTYPES[tensor.dtype.name]

    def contiguous(self, tensor: Host) -> Host:
        return np.asarray(tensor, order="C")

    def empty_like(self, tensor: Host) -> Host:
        return np.empty(tensor.shape, tensor.dtype)

    def from_buffer(self, buffer: object, like: Host, shape: tuple[int, ...]) -> Host:
        assert isinstance(buffer, np.ndarray)
        return buffer.view(like.dtype).reshape(shape)

    def splits(self, splits: object) -> list[int]:
        array = np.asarray(splits)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError("splits must be a 1-D list or array of integers")
        return [int(rows) for rows in array]

    def wrap_splits(self, received: list[int], like: object) -> Host:
        return np.asarray(received, np.int32)


HOST: Final = _HostArrays()
collectives: Final[Collectives[Host]] = Collectives(HOST)


def check(verb: str, value: object) -> jax.Array:
    """Return what a collective was given as an array.

    Raises:
        TypeError: It is no array, nor a number.
        ValueError: Its elements cannot be moved, or it is spread over several devices.
    """
    if not isinstance(value, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
        raise TypeError(f"{verb}: expected an array, not {type(value).__name__}")
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        raise ValueError(
            f"{verb}: arrays of {value.dtype} have no elements that can be sent; of random keys, "
            "give jax.random.key_data(key)"
        )
    array = jnp.asarray(value)
    if array.dtype.name not in DTYPES:
        raise ValueError(f"{verb}: arrays of type {array.dtype} are not supported")
    if not isinstance(array, jax.core.Tracer) and len(array.sharding.device_set) > 1:
        raise ValueError(
            f"{verb}: the array is spread over {len(array.sharding.device_set)} devices of this "
            "process; call it within jax.shard_map, where every device works on its own part"
        )
    return array


def check_reducible(verb: str, value: object, op: int) -> jax.Array:
    """Return what a reduction was given; as `check`, and ValueError if it has no meaning for it."""
    array = check(verb, value)
    check_reduction(op, DTYPES[array.dtype.name])
    return array


def by_dtype(arrays: Sequence[jax.Array], name: str | None) -> list[tuple[list[int], str | None]]:
    """Split a group, which may have many element types, into operations, which have one each.

    Returns:
        Which arrays form an operation, and its name.
    """
    split = parts([array.dtype.name for array in arrays])
    return [(indices, part_name(name, suffix)) for indices, suffix in split]


def to_host(arrays: Sequence[jax.Array]) -> list[Host]:
    """Return the arrays in CPU memory, where they are there without copying them."""
    return [np.asarray(array) for array in arrays]


def from_host(arrays: Sequence[Host]) -> list[jax.Array]:
    """Return new arrays of JAX."""
    return [jnp.asarray(array) for array in arrays]
