"""Exchange of variables and Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from sirtaki.core.operations.objects import allgather_object as _allgather_object
from sirtaki.core.operations.objects import broadcast_object as _broadcast_object
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow.ops.dense import broadcast_group
from sirtaki.tensorflow.ops.tracing import plain_python

__all__ = [
    "allgather_object",
    "broadcast_",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]


@plain_python
def broadcast_(
    variables: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrite variables with the root's, like `broadcast_variables`; return their new values.

    In a graph of TensorFlow 1, running the result overwrites them.

    Args:
        variables, root_rank, process_set: As for `broadcast_variables`.
        name: Matches the call with those of the other ranks; by default, calls match by order.

    Raises:
        ValueError, tf.errors.FailedPreconditionError: As for `broadcast_variables`.
    """
    return [tf.identity(each) for each in _assigned(variables, root_rank, name, process_set)]


@plain_python
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrite variables with the root's, all of a dtype in one operation.

    Args:
        variables: Variables of TensorFlow or Keras, in the same order on all ranks.
        root_rank: A rank of the world whose values are sent.
        process_set: The ranks that take part.
        inplace: Accepted; every variable is assigned.

    Returns:
        In a graph of TensorFlow 1, an operation to run; else None.

    Raises:
        ValueError: An argument is no variable, or one not yet built; nothing was sent.
        tf.errors.FailedPreconditionError: The ranks' variables differ in shape or dtype.
    """
    assigned = _assigned(variables, root_rank, "broadcast_variables", process_set)
    return None if tf.executing_eagerly() or tf.inside_function() else tf.group(*assigned)


def _assigned(
    given: Iterable[Any], root_rank: int, name: str | None, process_set: ProcessSet
) -> list[Any]:
    """Overwrite variables; return the results of the assignments."""
    variables = list(given)
    values = [_value(variable) for variable in variables]
    received = broadcast_group(values, root_rank, name, process_set, ordered=True) if values else []
    return [
        variable.assign(tf.ensure_shape(value, variable.shape))
        for variable, value in zip(variables, received, strict=True)
    ]


def _value(variable: Any) -> Any:
    if not hasattr(variable, "assign"):
        raise ValueError(
            f"expected variables to overwrite, got {type(variable).__name__}; to send a value, use "
            "broadcast()"
        )
    return tf.identity(tf.convert_to_tensor(variable))


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's object on every rank; other ranks' objects are ignored.

    Args:
        obj: Anything `cloudpickle` accepts, or `pickle` if that is not installed.
        root_rank: The rank, counted among all ranks, whose object is sent.
        session: Accepted; no graph is needed.
        name: Matches the call with those of the other ranks.
        process_set: The ranks that take part.

    Raises:
        ValueError: An argument is wrong, or the root's object cannot be pickled.
        HorovodInternalError: A rank was lost.
    """
    return _broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Return a function that broadcasts an object like `broadcast_object`.

    Args:
        root_rank, session, name, process_set: As for `broadcast_object`.

    Raises:
        ValueError, HorovodInternalError: Raised by the function, as by `broadcast_object`.
    """

    def send(obj: Any) -> Any:
        return broadcast_object(obj, root_rank, session, name, process_set)

    return send


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all ranks, in order of rank.

    Args:
        obj, session, name, process_set: As for `broadcast_object`.

    Raises:
        ValueError, HorovodInternalError: As for `broadcast_object`.
    """
    return _allgather_object(obj, name, process_set)
