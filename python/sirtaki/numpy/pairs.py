"""Messages of NumPy arrays from one rank to another.

Messages match by sender, tag and process set. Those between two ranks with one tag arrive in order.
Small messages are sent at once; large ones wait for their receiver.

A rank that calls `shutdown` ends the world of all ranks, unlike `MPI_Finalize`, which lets the
others continue. Unfinished sends and receives fail on every rank, including those between other
ranks. Small messages that have arrived can still be received. So let all ranks meet before they
leave: synchronize every handle, and then call `barrier`.
"""

from __future__ import annotations

import numpy as np

from sirtaki.core.operations.pairs import ANY_SOURCE as ANY_SOURCE
from sirtaki.core.operations.pairs import Pairs
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.numpy.arrays import TENSORS, Array

_pairs: Pairs[Array] = Pairs(TENSORS)


def send(
    array: Array, dest: int, tag: int = 0, process_set: ProcessSet = global_process_set
) -> None:
    """Send an array; return when you may change it again.

    Args:
        array: Any shape; its bytes are sent.
        dest: A rank of the world, possibly this one.
        tag: Not negative, at most 64 bits.
        process_set: The process set of the message; both ranks are members.

    Raises:
        TypeError, ValueError: An argument is wrong; nothing was sent.
        HorovodInternalError: No world, or the message could not be delivered.
    """
    _pairs.send(array, dest, tag, process_set)


def isend(
    array: Array, dest: int, tag: int = 0, process_set: ProcessSet = global_process_set
) -> int:
    """Start `send`; return its handle. The array must not change until it is done."""
    return _pairs.send_async(array, dest, tag, process_set)


def recv(
    array: Array,
    source: int = ANY_SOURCE,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Fill an array with the next matching message.

    Args:
        array: Contiguous and writable, with as many bytes as the message.
        source: The sender's rank in the world; default: any.
        tag: The sender's tag.
        process_set: The sender's process set.

    Returns:
        The sender's rank.

    Raises:
        TypeError, ValueError: An argument is wrong.
        MismatchError: The message has another size; the sender does not learn of it.
        HorovodInternalError: No world, or it ended before a message arrived.
    """
    return _pairs.receive(_writable(array), source, tag, process_set)


def irecv(
    array: Array,
    source: int = ANY_SOURCE,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `recv`; return its handle, whose result is the sender's rank."""
    return _pairs.receive_async(_writable(array), source, tag, process_set)


def _writable(array: Array) -> Array:
    if isinstance(array, np.ndarray) and not array.flags.carray:
        raise ValueError("an array that is received into must be contiguous and writable")
    return array
