"""Allgather, broadcast, alltoall and barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from sirtaki.core.operations import codes
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of, rank_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.arrays import (
    by_dtype,
    check,
    collectives,
    from_host,
    is_key,
    like,
    numbers_of,
    to_host,
)
from sirtaki.jax.calls import checked_name, members, position, require_member, traced
from sirtaki.jax.gradients import traced_allgather, traced_alltoall, traced_broadcast
from sirtaki.jax.primitive import TracedOperation, bind
from sirtaki.numpy.arrays import TENSORS

Tree = TypeVar("Tree")


def allgather(
    x: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Concatenate all ranks' arrays along the first dimension, in rank order.

    The gradient is averaged over the ranks, and each rank gets its own rows of the average.

    Args:
        x: At least one dimension. The first may differ between ranks, except in transformed
            functions: XLA must know the size of the result.
        name, process_set: As for `allreduce`.

    Returns:
        An array of the same dtype with the rows of all ranks.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    [result] = grouped_allgather([x], name, process_set)
    return result


def grouped_allgather(
    xs: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[jax.Array]:
    """Gather several arrays as one operation for each dtype.

    Args:
        xs: At least one array; each as for `allgather`.
        name, process_set: As for `allreduce`.

    Returns:
        The gathered arrays, in the same order.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    arrays = [_with_rows("allgather", x) for x in xs]
    ranks = members(process_set)

    def gather(part: list[jax.Array], part_name: str | None) -> Any:
        if not traced(part):
            handle = collectives.allgather_async(
                to_host(part), name=part_name, process_set=process_set, waits=True
            )
            return from_host(collectives.synchronize(handle), part)
        operation = TracedOperation(
            codes.ALLGATHER,
            "allgather",
            checked_name(part_name),
            number_of(process_set),
            rows=tuple(ranks * array.shape[0] for array in part),
            received=tuple(array.shape[0] for array in part for _ in range(ranks)),
        )
        return traced_allgather(operation, ranks, position(process_set), part)

    return by_dtype(arrays, name, gather)


def broadcast(
    x: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Return the root's array on every rank.

    The gradient is averaged over the ranks on the root, and is zero elsewhere.

    Args:
        x: The same shape and dtype on all ranks; random keys are supported.
        root_rank: A rank of the world, also within a process set.
        name, process_set: As for `allreduce`.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    if is_key(x):
        return like(x, broadcast(numbers_of(x), root_rank, name, process_set))
    array = check("broadcast", x)
    require_member(process_set)
    root = rank_of("root_rank", root_rank, process_set)
    if not traced([array]):
        [source] = to_host([array])
        handle = collectives.broadcast_async(
            source, None, root, name=name, process_set=process_set, waits=True
        )
        return from_host(collectives.synchronize(handle), [array])[0]
    operation = TracedOperation(
        codes.BROADCAST, "broadcast", checked_name(name), number_of(process_set), root=root
    )
    return traced_broadcast(operation, state.rank() == root, array)


def broadcast_tree(
    tree: Tree,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Return the root's pytree, such as parameters or optimizer state, on every rank.

    Args:
        tree: The same structure on all ranks, with leaves of the same shapes and dtypes.
        root_rank, name, process_set: As for `broadcast`.

    Returns:
        A pytree of the same structure with arrays as leaves.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    leaves, structure = jax.tree.flatten(tree)
    names = [name if name is None else f"{name}.{i}" for i in range(len(leaves))]
    sent = [
        broadcast(leaf, root_rank, leaf_name, process_set)
        for leaf, leaf_name in zip(leaves, names, strict=True)
    ]
    result: Tree = jax.tree.unflatten(structure, sent)
    return result


def alltoall(
    x: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    received_splits: Sequence[int] | None = None,
) -> Any:
    """Send rows to every rank and receive rows from every rank, in rank order.

    The gradient sends the rows' gradients back.

    Args:
        x: Rows; other dimensions must agree.
        splits: Rows for each rank; default equal parts. Rows beyond their sum are not sent.
        name: As for `allreduce`.
        process_set: As for `allreduce`.
        received_splits: Rows from each rank; required with `splits` within transformed functions,
            since XLA must know the size of the result.

    Returns:
        The received rows; with `splits`, also the number from each rank.

    Raises:
        TypeError, ValueError, HorovodInternalError: As for `allreduce`.
    """
    array = _with_rows("alltoall", x)
    ranks = members(process_set)
    if not traced([array]):
        handle = collectives.alltoall_async(
            to_host([array])[0], splits, name=name, process_set=process_set, waits=True
        )
        received, counts = collectives.synchronize(handle)
        [rows] = from_host([received], [array])
        return rows if splits is None else (rows, jnp.asarray(counts, jnp.int32))
    sent = _static_splits("splits", splits, array.shape[0], ranks)
    if splits is not None and received_splits is None:
        raise ValueError(
            "alltoall with splits needs received_splits, the rows that each rank sends to this "
            "one, in a transformed function: XLA must know the size of the result"
        )
    got = (
        sent if splits is None else _static_splits("received_splits", received_splits, None, ranks)
    )
    operation = TracedOperation(
        codes.ALLTOALL,
        "alltoall",
        checked_name(name),
        number_of(process_set),
        splits=sent,
        rows=(sum(got),),
        received=got,
    )
    result = traced_alltoall(operation, array.shape[0], array)
    return result if splits is None else (result, jnp.asarray(got, jnp.int32))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return once every rank has called it; a jitted function with it ends only then.

    Args:
        process_set: The ranks that wait for each other.

    Raises:
        ValueError: This rank is not in the process set, or the set is not registered.
        HorovodInternalError: A rank was lost.
    """
    require_member(process_set)
    if traced():
        bind(TracedOperation(codes.BARRIER, "barrier", "", number_of(process_set)), [])
    else:
        collectives.barrier(process_set)


def _with_rows(verb: str, value: object) -> jax.Array:
    array = check(verb, value)
    if not array.ndim:
        raise ValueError(f"{verb} needs rows, but got an array of no dimensions")
    return array


def _static_splits(name: str, splits: Any, rows: int | None, ranks: int) -> tuple[int, ...]:
    if splits is None:
        assert rows is not None
        if rows % ranks:
            raise ValueError(
                f"alltoall without splits needs a first dimension divisible by {ranks} ranks, "
                f"not {rows}"
            )
        return (rows // ranks,) * ranks
    if isinstance(splits, jax.core.Tracer):
        raise ValueError(
            f"alltoall: {name} must be known when the function is traced: give a tuple of ints"
        )
    known = tuple(TENSORS.splits(splits))
    if len(known) != ranks:
        raise ValueError(f"{name} has {len(known)} entries for {ranks} ranks")
    if min(known) < 0 or (rows is not None and sum(known) > rows):
        raise ValueError(f"{name}={list(known)} must be rows of an array that has {rows}")
    return known
