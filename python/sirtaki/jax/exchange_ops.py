"""Allgather, broadcast, alltoall and barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from sirtaki.core.operations import kinds
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of, rank_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.arrays import HOST, by_dtype, check, collectives, from_host, to_host
from sirtaki.jax.calls import checked_name, members, position, traced
from sirtaki.jax.gradients import traced_allgather, traced_alltoall, traced_broadcast
from sirtaki.jax.primitive import TracedOperation, bind

Tree = TypeVar("Tree")


def allgather(
    x: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Concatenate all ranks' arrays along the first dimension, in rank order.

    The first dimension may differ between ranks, but not within transformed functions: XLA must
    know the size of the result. Its gradient is the average of the gradients, of which each rank
    gets its own rows. Arguments and errors as `allreduce`.
    """
    [result] = grouped_allgather([x], name, process_set)
    return result


def grouped_allgather(
    xs: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[jax.Array]:
    """Gather several arrays as one operation for each dtype; as `allgather` otherwise."""
    arrays = [_with_rows("allgather", x) for x in xs]
    ranks = members(process_set)
    gathered: list[Any] = [None] * len(arrays)
    for indices, part_name in by_dtype(arrays, name):
        part = [arrays[i] for i in indices]
        if traced(part):
            operation = TracedOperation(
                kinds.ALLGATHER,
                "allgather",
                checked_name(part_name),
                number_of(process_set),
                rows=tuple(ranks * array.shape[0] for array in part),
                received=tuple(array.shape[0] for array in part for _ in range(ranks)),
            )
            results = traced_allgather(operation, ranks, position(process_set), part)
        else:
            handle = collectives.allgather_async(
                to_host(part), name=part_name, process_set=process_set, waits=True
            )
            results = from_host(collectives.synchronize(handle))
        for i, result in zip(indices, results, strict=True):
            gathered[i] = result
    return gathered


def broadcast(
    x: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Return the root's array on every rank.

    Its gradient is the average of the gradients on the root, and zero elsewhere.

    Args:
        x: Of the same shape and dtype on all ranks.
        root_rank: A rank of the world, also within a process set.
        name: As `allreduce`.
        process_set: As `allreduce`.

    Raises:
        TypeError, ValueError, HorovodInternalError: As `allreduce`.
    """
    array = check("broadcast", x)
    members(process_set)
    root = rank_of("root_rank", root_rank, process_set)
    if not traced([array]):
        [source] = to_host([array])
        handle = collectives.broadcast_async(
            source, None, root, name=name, process_set=process_set, waits=True
        )
        return from_host(collectives.synchronize(handle))[0]
    operation = TracedOperation(
        kinds.BROADCAST, "broadcast", checked_name(name), number_of(process_set), root=root
    )
    return traced_broadcast(operation, state.rank() == root, array)


def broadcast_tree(
    tree: Tree,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Return the root's pytree on every rank: parameters, the state of an optimizer.

    All ranks give a tree of the same structure, with leaves of the same shapes and dtypes, and get
    arrays. Arguments and errors as `broadcast`.
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

    Its gradient sends the gradients of the rows back.

    Args:
        x: Rows; other dimensions must agree.
        splits: Rows for each rank; default equal parts. Rows beyond their sum are not sent.
        name: As `allreduce`.
        process_set: As `allreduce`.
        received_splits: Rows from each rank; within transformed functions needed with `splits`,
            since XLA must know the size of the result, and else not.

    Returns:
        The received rows; with `splits` also how many came from each rank.

    Raises:
        TypeError, ValueError, HorovodInternalError: As `allreduce`.
    """
    array = _with_rows("alltoall", x)
    ranks = members(process_set)
    if not traced([array]):
        handle = collectives.alltoall_async(
            to_host([array])[0], splits, name=name, process_set=process_set, waits=True
        )
        rows, received = from_host(collectives.synchronize(handle))
        return rows if splits is None else (rows, received)
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
        kinds.ALLTOALL,
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
    """Return once every rank has called it; in a jitted function, that ends only then.

    Raises:
        ValueError: This rank is not in the process set, or that is not registered.
        HorovodInternalError: A rank was lost.
    """
    members(process_set)
    if traced():
        bind(TracedOperation(kinds.BARRIER, "barrier", "", number_of(process_set)), [])
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
    known = tuple(HOST.splits(splits))
    if len(known) != ranks:
        raise ValueError(f"{name} has {len(known)} entries for {ranks} ranks")
    if min(known) < 0 or (rows is not None and sum(known) > rows):
        raise ValueError(f"{name}={list(known)} must be rows of an array that has {rows}")
    return known
