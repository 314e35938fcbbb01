"""Values of the world as tensors that are looked up whenever a graph runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from sirtaki.core import elastic
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of, process_set_of, size_of
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.tensorflow.ops.tracing import plain_python


@plain_python
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks of a process set, an int32 scalar.

    Args:
        process_set_id: The id of a registered set; 0 for all ranks.
        name: The name of the operation in the graph.

    Raises:
        ValueError: Before `init()`, or there is no such process set; in a graph when it runs.
    """
    return _value(lambda: size_of(process_set_of(process_set_id)), name)


@plain_python
def rank_op(name: str | None = None) -> Any:
    """Return this process's rank, an int32 scalar.

    Args:
        name: The name of the operation in the graph.

    Raises:
        ValueError: Before `init()`; in a graph when it runs.
    """
    return _value(state.rank, name)


@plain_python
def local_size_op(name: str | None = None) -> Any:
    """Return the number of ranks on this host, an int32 scalar.

    Args:
        name: The name of the operation in the graph.

    Raises:
        ValueError: Before `init()`; in a graph when it runs.
    """
    return _value(state.local_size, name)


@plain_python
def local_rank_op(name: str | None = None) -> Any:
    """Return this process's rank on its host, an int32 scalar.

    Args:
        name: The name of the operation in the graph.

    Raises:
        ValueError: Before `init()`; in a graph when it runs.
    """
    return _value(state.local_rank, name)


@plain_python
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 if this rank is a member of the process set, else 0, an int32 scalar.

    Args:
        process_set_id: The id of a registered set; 0 for all ranks.
        name: The name of the operation in the graph.

    Raises:
        ValueError: There is no such process set; in a graph when it runs.
    """
    return _value(lambda: int(bool(process_set_of(process_set_id).included())), name)


def present_size(process_set: ProcessSet) -> Any:
    """Return the number of ranks in a process set.

    Functions traced in an old world of an elastic job look it up whenever they run.
    """
    if changes():
        return size_op(number_of(process_set))
    return size_of(process_set)


def present_position(process_set_id: int) -> Any:
    """Return this rank's position in a process set, looked up like `present_size`."""

    def look_up() -> int:
        return (process_set_of(process_set_id).ranks or []).index(state.rank())

    return _value(look_up, None) if changes() else look_up()


def changes() -> bool:
    """Return whether the function being traced may run in another world."""
    return elastic.is_elastic() and not tf.executing_eagerly()


def _value(look_up: Callable[[], int], name: str | None) -> Any:
    result = tf.numpy_function(lambda: np.int32(look_up()), [], tf.int32, name=name)
    result.set_shape(())
    return result
