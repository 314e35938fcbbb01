"""The one primitive of JAX that all collectives are, in traced functions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from sirtaki.core.operations import codecs, kinds
from sirtaki.jax import internals, library

_SAME_SHAPE = (kinds.ALLREDUCE, kinds.BROADCAST)


@dataclass(frozen=True)
class TracedOperation:
    """A collective without its arrays; equal ones share what JAX has compiled.

    name: "": one is made of the jitted function and the operation's place in it.
    rows: of each result; None where results have the shapes of the arrays.
    received: of allgather and alltoall, the rows that are to come from each member, of each array
        in turn; otherwise the operation fails.
    codec: what float32 numbers are rounded to on their way, see `codecs`.
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
    codec: int = codecs.NONE

    def of_gradient(self, **changes: Any) -> TracedOperation:
        """Return the operation, with `changes`, that reduces the gradients of this one."""
        return replace(self, name=f"{self.name}.grad" if self.name else "", **changes)


def bind(operation: TracedOperation, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Put the operation into the program that is being traced, or run it by itself."""
    return list(_collective.bind(*arrays, operation=operation))


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
    """Reduce all examples at once: one more dimension, behind the rows where these matter."""
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
        library.TARGET,
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


def _name(context: Any, operation: TracedOperation) -> str:
    """Return a name that the module has once, whatever else this rank has traced before.

    It is counted where the program is written down, not where it is traced: a loop that is
    unrolled, or a function that is recomputed, is traced once but there several times.
    """
    name = f"{operation.verb}.{operation.name or internals.module_name(context)}"
    given = internals.names_in_module(context)
    count = given[name] = given.get(name, -1) + 1
    return f"{name}#{count}" if count or not operation.name else name


@functools.lru_cache(maxsize=1024)
def _alone(operation: TracedOperation) -> Any:
    """Return the compiled program of this operation and nothing else."""

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
