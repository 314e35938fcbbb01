"""Runs collectives and their gradients, which are also collectives, by Horovod's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sirtaki.core.operations import codes
from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.core.world import state
from sirtaki.core.world.participants import process_set_of
from sirtaki.tensorflow.ops import python_operations
from sirtaki.tensorflow.ops.graph_values import (
    changes,
    present_position,
    present_size,
    rank_op,
)
from sirtaki.tensorflow.ops.operation import GraphOperation, compiled
from sirtaki.tensorflow.ops.tracing import in_a_loop, unique_name

_NAMES = {
    codes.ALLREDUCE: "sirtaki_allreduce",
    codes.ALLGATHER: "sirtaki_allgather",
    codes.BROADCAST: "sirtaki_broadcast",
    codes.ALLTOALL: "sirtaki_alltoall",
    codes.REDUCESCATTER: "sirtaki_reducescatter",
    codes.BARRIER: "sirtaki_barrier",
    codes.JOIN: "sirtaki_join",
}
# Types of the compiled operations; not all TensorFlow versions have the small ones.
_COMPILED = frozenset(tf.as_dtype(name) for name in codes.REDUCED_DTYPES if name != "complex32")


class InvalidArgument(tf.errors.InvalidArgumentError, ValueError):  # type: ignore[misc]
    """An argument is invalid, and nothing was sent: TensorFlow's error, and also Python's."""


def invalid(message: str) -> InvalidArgument:
    """Return the error for the caller to raise."""
    return InvalidArgument(None, None, message)


def run(operation: GraphOperation, tensors: Sequence[Any] = (), splits: Any = None) -> list[Any]:
    """Return the results, one per tensor, then received splits or the last rank to join.

    Args:
        operation: The operation, run at once in eager mode, otherwise as a node of a graph.
        tensors: The tensors, of one dtype.
        splits: The splits of an alltoall: 1-D, int32.

    Raises:
        tf.errors.InvalidArgumentError: An argument is wrong; also a ValueError.
    """
    _require_known(operation.process_set)
    if compiled() is None or (tensors and tensors[0].dtype.base_dtype not in _COMPILED):
        return python_operations.run(operation, tensors, splits, gradients_of)
    # Iterations of a loop share the operation's name, so they must not run in parallel.
    ordered = operation.ordered or in_a_loop()
    function = getattr(compiled(), _NAMES[operation.kind] + ("_ordered" if ordered else ""))
    tickets = [] if ordered else [_ticket()]
    try:
        inputs = operation.inputs(tensors, splits)
        result = function(*inputs, *tickets, **operation.attributes())
    except tf.errors.InvalidArgumentError as error:  # at once, from an eager call
        raise invalid(error.message) from None
    return [result] if operation.kind in (codes.BARRIER, codes.JOIN) else list(result)


def _require_known(process_set: int) -> None:
    """Raise ValueError for an unknown process set before it enters a graph."""
    if process_set and process_set not in state.current_world().engine.process_sets():
        raise invalid(f"there is no process set {process_set}")


def _ticket() -> Any:
    """Return an input that keeps TensorFlow from folding operations on constants."""
    return 0 if tf.executing_eagerly() else compiled().sirtaki_ticket()


def gradients_of(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    """Return the gradients of the inputs.

    Args:
        operation: The operation that was run.
        inputs: Its inputs.
        results: Its results.
        upstream: The gradients of the results, of any type; None for results without influence.
    """
    # The other ranks also wait for results on which the loss does not depend here.
    given = [
        tf.zeros_like(result) if each is None else tf.cast(tf.convert_to_tensor(each), result.dtype)
        for each, result in zip(upstream, results, strict=True)
    ]
    return _RULES[operation.kind](operation, inputs, results, given)


def _of_allreduce(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    return run(_named(operation, "allreduce"), upstream)


def _of_allgather(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    reduced = run(_averaged(operation), upstream)
    own = tf.stack([tf.shape(each)[0] for each in inputs])
    rows = run(_gathered(operation), [own[tf.newaxis]])[0]
    me = present_position(operation.process_set)
    begins = tf.reduce_sum(rows[:me], axis=0)
    return [each[begins[i] : begins[i] + own[i]] for i, each in enumerate(reduced)]


def _of_broadcast(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    # Ranks that do not use the average also take part in it.
    reduced = run(_averaged(operation).but(ordered=True), upstream)
    if changes():
        at_root = rank_op() == operation.root_rank
        return [tf.where(at_root, each, tf.zeros_like(each)) for each in reduced]
    if state.rank() == operation.root_rank:
        return reduced
    with tf.control_dependencies(reduced):
        return [tf.zeros_like(each) for each in upstream]


def _of_alltoall(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    back, _ = run(_named(operation, "alltoall"), [upstream[0]], results[1])
    # Rows that were not sent have no influence.
    rest = tf.concat([tf.shape(inputs[0])[:1] - tf.shape(back)[:1], tf.shape(back)[1:]], axis=0)
    return [tf.concat([back, tf.zeros(rest, back.dtype)], axis=0), None]


def _of_reducescatter(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    factor = operation.prescale * operation.postscale
    scaled = [each * tf.cast(factor, each.dtype) for each in upstream]
    if operation.reduce_op == Sum:
        size = present_size(process_set_of(operation.process_set))
        scaled = [each * tf.cast(size, each.dtype) for each in scaled]
    return run(_gathered(operation), scaled)


_RULES: dict[
    int, Callable[[GraphOperation, Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
] = {
    codes.ALLREDUCE: _of_allreduce,
    codes.ALLGATHER: _of_allgather,
    codes.BROADCAST: _of_broadcast,
    codes.ALLTOALL: _of_alltoall,
    codes.REDUCESCATTER: _of_reducescatter,
}


def _averaged(operation: GraphOperation) -> GraphOperation:
    return _named(
        operation, "allreduce", kind=codes.ALLREDUCE, reduce_op=Average, prescale=1.0, postscale=1.0
    )


def _gathered(operation: GraphOperation) -> GraphOperation:
    return _named(operation, "allgather", kind=codes.ALLGATHER)


def _named(operation: GraphOperation, verb: str, **changes: Any) -> GraphOperation:
    """Return the operation for the gradient, with a name of its own if this one has a name."""
    name = f"gradient.{operation.name}" if operation.name else None
    return operation.but(name=unique_name(verb, name), ordered=False, **changes)


def _register() -> None:
    for kind, verb in (
        (codes.ALLREDUCE, "SirtakiAllreduce"),
        (codes.ALLGATHER, "SirtakiAllgather"),
        (codes.BROADCAST, "SirtakiBroadcast"),
        (codes.ALLTOALL, "SirtakiAlltoall"),
        (codes.REDUCESCATTER, "SirtakiReducescatter"),
    ):
        tf.RegisterGradient(verb)(_of_nodes(kind, tickets=1))
        tf.RegisterGradient(verb + "Ordered")(_of_nodes(kind, tickets=0))


def _of_nodes(kind: int, tickets: int) -> Callable[..., list[Any]]:
    def gradient(node: Any, *upstream: Any) -> list[Any]:
        results = list(node.outputs)
        operation = GraphOperation.of_node(kind, node)
        inputs = list(node.inputs)[: len(node.inputs) - tickets]
        return [*gradients_of(operation, inputs, results, upstream), *[None] * tickets]

    return gradient


_register()
