"""The single JAX primitive behind all collectives in traced functions."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

import sirtaki
from sirtaki import ffi
from sirtaki.core.operations import codes
from sirtaki.jax import internals

_TARGET: Final = "sirtaki_collective"
# One-byte types that hold all values of smaller types.
_CARRIERS: Final = {
    "int1": jnp.int8,
    "int2": jnp.int8,
    "int4": jnp.int8,
    "uint1": jnp.uint8,
    "uint2": jnp.uint8,
    "uint4": jnp.uint8,
    "float4_e2m1fn": jnp.float8_e4m3fn,
}
_SAME_SHAPE = (codes.ALLREDUCE, codes.BROADCAST)


@dataclass(frozen=True)
class TracedOperation:
    """A collective without its arrays; equal instances share JAX's compiled code.

    name: "": derived from the jitted function and the operation's position in it. rows: of each
    result; None if results have the shapes of the arrays. received: for allgather and alltoall, the
    expected rows from each member, array by array; other numbers make the operation fail. codec:
    the format in which float32 numbers are sent; see `codecs`.
    """

    kind: int
    verb: str
    name: str
    process_set: int
    reduce: int = 0
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    splits: tuple[int, ...] = ()
    rows: tuple[int, ...] | None = None
    received: tuple[int, ...] = ()
    codec: int = codes.NO_CODEC

    def of_gradient(self, **changes: Any) -> TracedOperation:
        """Return the operation, with `changes`, that reduces this one's gradients."""
        return replace(self, name=f"{self.name}.grad" if self.name else "", **changes)


def bind(operation: TracedOperation, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Add the operation to the traced program, or run it on its own."""
    # XLA packs elements smaller than a byte; the core moves whole bytes.
    carried = [_cast(array, _CARRIERS.get(array.dtype.name, array.dtype)) for array in arrays]
    results = _collective.bind(*carried, operation=operation)
    return [_cast(result, array.dtype) for result, array in zip(results, arrays, strict=True)]


def _cast(array: jax.Array, dtype: Any) -> jax.Array:
    return array if array.dtype == dtype else array.astype(dtype)


def _result_types(*types: Any, operation: TracedOperation) -> tuple[list[Any], set[Any]]:
    if operation.rows is None:
        results = [one.update(weak_type=False) for one in types]
    else:
        results = [
            one.update(shape=(rows, *one.shape[1:]), weak_type=False)
            for one, rows in zip(types, operation.rows, strict=True)
        ]
    return results, {_EFFECT}


def _batch(
    arrays: Sequence[Any], dims: Sequence[int | None], *, operation: TracedOperation
) -> tuple[list[jax.Array], Sequence[int | None]]:
    """Reduce all examples at once, with one more dimension, after the rows if these matter."""
    at = 0 if operation.kind in _SAME_SHAPE else 1
    moved = [
        array if dim is None else jnp.moveaxis(array, dim, at)
        for array, dim in zip(arrays, dims, strict=True)
    ]
    return bind(operation, moved), [None if dim is None else at for dim in dims]


def _lower(context: Any, *operands: Any, operation: TracedOperation) -> Any:
    devices = internals.devices_of_sharding(context)
    if devices > 1:
        raise ValueError(
            f"{operation.verb}: its arrays are spread over {devices} devices of this process; "
            "call it within jax.shard_map, where every device works on its own part"
        )
    in_place = operation.kind in _SAME_SHAPE
    rule = jax.ffi.ffi_lowering(
        _TARGET,
        has_side_effect=True,
        operand_output_aliases={i: i for i in range(len(operands))} if in_place else None,
    )
    return rule(
        context,
        *operands,
        name=_name(context, operation),
        kind=np.int64(operation.kind),
        reduce_op=np.int64(operation.reduce),
        root_rank=np.int64(operation.root),
        process_set=np.int64(operation.process_set),
        codec=np.int64(operation.codec),
        prescale=np.float64(operation.prescale),
        postscale=np.float64(operation.postscale),
        splits=np.array(operation.splits, np.int64),
        received=np.array(operation.received, np.int64),
    )


def _refuse(context: Any, *operands: Any, operation: TracedOperation) -> Any:
    """The lowering for all platforms but the CPU."""
    platforms = ", ".join(context.module_context.platforms)
    raise NotImplementedError(
        f"{operation.verb}: compiled collectives run on CPUs only, and this program is compiled "
        f"for {platforms}; call it outside of jax.jit, through CPU memory, or set JAX_PLATFORMS=cpu"
    )


def _name(context: Any, operation: TracedOperation) -> str:
    """Return a name unique in the module, independent of earlier traces on this rank.

    It is counted at lowering, not at tracing: an unrolled loop or a recomputed function is traced
    once but occurs several times.
    """
    name = f"{operation.verb}.{operation.name or internals.module_name(context)}"
    given = internals.names_in_module(context)
    count = given[name] = given.get(name, -1) + 1
    return f"{name}#{count}" if count or not operation.name else name


@functools.lru_cache(maxsize=1024)
def _alone(operation: TracedOperation) -> Any:
    """Return a compiled program of this operation alone."""

    def collective(*arrays: Any) -> Any:
        return _collective.bind(*arrays, operation=operation)

    return jax.jit(collective)


_EFFECT = internals.CollectiveEffect()
internals.allow_everywhere(internals.CollectiveEffect)
_collective = Primitive("sirtaki_collective")
_collective.multiple_results = True
_collective.def_effectful_abstract_eval(_result_types)
_collective.def_impl(lambda *arrays, operation: _alone(operation)(*arrays))
batching.primitive_batchers[_collective] = _batch
internals.lower_every_occurrence()
mlir.register_lowering(_collective, _lower, platform="cpu")
mlir.register_lowering(_collective, _refuse)


def register() -> None:
    """Pass the engine's functions to the library, and the library's handler to XLA."""
    folder = Path(sirtaki.__file__).parent
    library = ctypes.CDLL(str(folder / "libsirtaki_jax.so"))
    library.sirtaki_jax_connect.argtypes = [ctypes.c_void_p]
    library.sirtaki_jax_connect.restype = ctypes.c_char_p
    wrong = library.sirtaki_jax_connect(ffi.address()).decode()
    if wrong:
        raise ImportError(f"{library._name} does not fit to this sirtaki: {wrong}; install it anew")
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(library.sirtaki_collective), "cpu")
