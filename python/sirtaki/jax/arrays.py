"""Conversion of JAX arrays for the core, which accesses their host memory, and compression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sirtaki._core import DTYPES
from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.compression import CastCompressor, Compressions, derive
from sirtaki.core.operations.groups import by_key, part_name
from sirtaki.core.operations.reduction import check_reduction
from sirtaki.numpy.arrays import TENSORS, Array, check_array, dtype_of

collectives: Final[Collectives[Array]] = Collectives(TENSORS)


def is_sparse(value: object) -> bool:
    """Return whether a value is a sparse JAX array, whose parts would be mistaken for arrays."""
    return any(cls.__name__ == "JAXSparse" for cls in type(value).__mro__)


def is_key(value: object) -> bool:
    """Return whether a value is an array of random keys, whose type hides the numbers."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def numbers_of(value: Any) -> Any:
    """Return the numbers of random keys, and any other value unchanged."""
    return jax.random.key_data(value) if is_key(value) else value


def like(value: Any, numbers: Any) -> Any:
    """Return numbers as random keys if a value is an array of random keys."""
    if not is_key(value):
        return numbers
    return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(value))


def check(verb: str, value: object) -> jax.Array:
    """Return a collective's argument as an array.

    Raises:
        TypeError: It is neither an array nor a number.
        ValueError: Its elements cannot be moved, or JAX would change them, or it is not completely
            on one device of this process.
    """
    if not isinstance(value, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
        cure = ": give x.todense()" if is_sparse(value) else ""
        raise TypeError(f"{verb}: expected an array, not {type(value).__name__}{cure}")
    if isinstance(value, jax.Array):
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):
            raise ValueError(
                f"{verb}: arrays of {value.dtype} have no elements that can be sent; of random "
                "keys, give jax.random.key_data(key)"
            )
        if value.dtype != jax.dtypes.canonicalize_dtype(value.dtype):
            raise _too_wide(verb, value.dtype)
        array = value
    else:
        array = _from_numpy(verb, value)
    if array.dtype.name not in DTYPES:
        raise ValueError(f"{verb}: arrays of type {array.dtype} are not supported")
    if not isinstance(array, jax.core.Tracer):
        _check_place(verb, array)
    return array


def _from_numpy(verb: str, value: Any) -> jax.Array:
    """Return a NumPy array, or a number, as a JAX array with equal elements."""
    try:
        host = check_array(value if isinstance(value, np.ndarray) else np.asarray(value))
        dtype_of(host)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{verb}: {error}") from None
    # Floats lose digits here as everywhere in JAX, but integers would change their values.
    kept = jax.dtypes.canonicalize_dtype(host.dtype)
    if host.dtype.kind in "iu" and not np.array_equal(host, host.astype(kept)):
        raise _too_wide(verb, host.dtype)
    try:
        return jnp.asarray(value)
    except jax.errors.JaxRuntimeError:  # a type that XLA lacks
        raise ValueError(f"{verb}: arrays of type {host.dtype} are not supported") from None


def _too_wide(verb: str, dtype: np.dtype[Any]) -> ValueError:
    return ValueError(
        f"{verb}: JAX would cut numbers of type {dtype} to 32 bits: call "
        'jax.config.update("jax_enable_x64", True) before, or give a smaller type'
    )


def _check_place(verb: str, array: jax.Array) -> None:
    """Raise ValueError for arrays that are not on one device of this process."""
    devices = len(array.sharding.device_set)
    if devices > 1:
        raise ValueError(
            f"{verb}: the array is spread over {devices} devices of this process; call it within "
            "jax.shard_map, where every device works on its own part"
        )
    if not array.is_fully_addressable:
        raise ValueError(
            f"{verb}: the array is on a device of another process; give one of this process's"
        )


def check_reducible(verb: str, value: object, op: int) -> jax.Array:
    """Return a reduction's argument as `check` does; ValueError if it cannot be reduced."""
    array = check(verb, value)
    check_reduction(op, DTYPES[array.dtype.name])
    return array


def by_dtype(
    arrays: Sequence[jax.Array],
    name: str | None,
    act: Callable[[list[jax.Array], str | None], Sequence[jax.Array]],
) -> list[jax.Array]:
    """Return the results of one operation for each element type, in the order of the arrays.

    act: Called with the arrays of an operation and its name.
    """
    return by_key(
        arrays,
        lambda array: array.dtype.name,
        lambda part, suffix: act(part, part_name(name, suffix)),
    )


def to_host(arrays: Sequence[jax.Array]) -> list[Array]:
    """Return the arrays in CPU memory, without a copy if they are there."""
    return [np.asarray(array) for array in arrays]


def from_host(results: Sequence[Array], inputs: Sequence[jax.Array]) -> list[jax.Array]:
    """Return new JAX arrays, each on the device of its input."""
    return [_beside(*pair) for pair in zip(results, inputs, strict=True)]


def _beside(result: Array, array: jax.Array) -> jax.Array:
    # JAX moves uncommitted arrays as operations need them.
    committed = getattr(array, "committed", getattr(array, "_committed", True))
    placed = None if committed else jnp.asarray(result)
    if placed is not None and placed.sharding == array.sharding:
        return placed
    return jax.device_put(result, array.sharding)


class _Cast(CastCompressor):
    float32 = jnp.float32

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """See `CastCompressor`."""
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """See `CastCompressor`."""
        return tensor.astype(dtype)


class Compression(Compressions):
    """The available compressions; any class with the methods of `Compressor` works as well."""


derive(Compression, _Cast, jnp)
